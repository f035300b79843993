"""`change: [prune_heads: {heads: [[0, 3], [1, 0]]}]`: some heads of attention give nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Natural
from cloze.changes.change import Change
from cloze.changes.compressing.attentions import AttentionName, attentions
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import compute_weight
from cloze.registry import register


class HeadMask(nn.Module):
    """The weight of an output projection (D, H·W) with zeros in the columns of pruned heads; `kept` is (H·W)."""

    kept: Tensor

    def __init__(self, keep: Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", keep)

    def forward(self, weight: Tensor) -> Tensor:
        """(D, H·W) to (D, H·W)."""
        return weight * self.kept


@register("change", "prune_heads")
@dataclass(frozen=True)
class PruneHeads(Change):
    """Attention heads without effect (Michel et al., 2019, §2): `heads` lists them as [layer, head], both counted from 0.

    Their columns of the output projection are zero, which equals a gate of 0, and stay zero while the network is trained. `of`
    says in which attention of an encoder-decoder: the encoder's (`attention`), the `decoder`'s, or the decoder's attention to the
    encoder (`crossing`). Export writes the zeros, so transformers opens the network in its usual class.
    """

    heads: tuple[tuple[Natural, Natural], ...]
    of: AttentionName = "attention"

    lasts: ClassVar[bool] = True
    masks: ClassVar[bool] = True

    def apply(self, network: Any) -> None:
        """Mask the columns of these heads."""
        layers = heads_of(network).get(self.of)
        if layers is None:
            raise CheckpointError(
                f"prune_heads: {type(network).__name__} has no attention {self.of!r}. It has: {', '.join(attentions(network))}."
            )
        pruned: dict[int, list[int]] = {}
        for layer, head in self.heads:
            if layer >= len(layers) or head >= layers[layer].heads:
                most = f"layers 0 to {len(layers) - 1} with heads 0 to {layers[0].heads - 1}"
                raise CheckpointError(f"prune_heads: there is no head [{layer}, {head}]. Expected {most}.")
            pruned.setdefault(layer, []).append(head)
        for layer, heads in pruned.items():
            attention = layers[layer]
            weight = next(attention.out.parameters())
            mask = torch.ones(attention.heads, attention.head_width, dtype=weight.dtype, device=weight.device)
            mask[heads] = 0.0
            compute_weight(attention.out, "prune_heads", HeadMask(mask.flatten()))


def heads_of(network: Any) -> Mapping[AttentionName, list[Any]]:
    """The attentions of a network by kind, as `attentions` gives them; a `CheckpointError` where heads cannot be pruned."""
    layers_by_kind = attentions(network)
    name = type(network).__name__
    if not layers_by_kind:
        raise CheckpointError(f"prune_heads: {name} has no attention heads. Use sparsify, quantise or keep_layers.")
    for kind, layers in layers_by_kind.items():
        if len({id(attention.out) for attention in layers}) < len(layers):
            raise CheckpointError(
                f"prune_heads: the layers of {name} share the weights of {kind}: a head of one layer is a head of all.\n"
                "  Use sparsify (cloze compress --magnitude) or quantise (--bits)."
            )
    return layers_by_kind
