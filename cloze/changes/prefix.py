"""`change: [prefix: {tokens: 20}]`: trained keys and values in front of those of every layer of a frozen network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Count, Positive
from cloze.changes.change import Change
from cloze.changes.maps import put_in_front
from cloze.errors import CheckpointError
from cloze.networks import choices
from cloze.networks.blocks.attention import AttentionCall
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.transformer import Transformer
from cloze.registry import register

Function = Callable[..., Any]


class InFront(nn.Module):
    """A `NormPlace` whose attention also sees keys and values that stand in front of every row: `rows` (K, 2, G, W) for
    G heads of keys and values, each
    `shared_by` so many heads of queries."""

    def __init__(self, norm_place: Any, rows: Tensor, shared_by: int) -> None:
        super().__init__()
        self.place, self.pre, self.shared_by = norm_place, norm_place.pre, shared_by
        self.norms_sum: bool = norm_place.norms_sum
        self.rows = nn.Parameter(rows)

    def connect(self, x: Tensor, attention: AttentionCall, norm: Function, drop: Function, take: Function) -> Tensor:
        """As in `NormPlace`. A cache keeps the keys and values of tokens alone."""
        count, past, real = len(self.rows), attention.inputs.cache, attention.inputs.rows
        batch, length = x.shape[:2] if real is None else (real.batch, real.length)
        prefix = [vectors.expand(batch, -1, -1, -1).to(x.dtype) for vectors in self.rows.permute(1, 2, 0, 3)]
        cache = [torch.cat(both, dim=2) for both in zip(prefix, past, strict=True)] if past else prefix
        seen = _widened(attention.inputs.seen, count, length, x.device)
        call = replace(attention, inputs=replace(attention.inputs, cache=cache, seen=seen))
        output: Tensor = self.place.connect(x, call, norm, drop, take)
        if past is not None:
            past[:] = [tensor[:, :, count:] for tensor in cache]
        return output

    def count_inside(self, counted: Operations, size: SequenceSize) -> None:
        """The products of tokens with the keys and values in front."""
        counted.pass_through(self)
        counted.add_row_products(size.tokens * self.rows.numel() * self.shared_by)


def _widened(seen: Visibility, count: int, length: int, device: torch.device) -> Visibility:
    """What the tokens of rows of `length` see if `count` more keys stand in front, which all of them see."""
    if seen.kind == "all":
        return seen
    mask = seen.mask
    if mask is None:  # causal
        mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    return Visibility("mask", F.pad(mask, (count, 0), value=True))


class PrefixOffset(nn.Module, NetworkHook):
    """Counts the positions of a text from `tokens` on, and leaves what stands in front out of the states of attention."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The states of the text, whose first token has the position `tokens`."""
        if "position_ids" in network.takes:
            tokens, cache = inputs["tokens"], inputs.get("cache")
            length = tokens.shape[1]
            past = 0 if cache is None else cache.length
            position_ids = inputs.get("position_ids")
            ids = torch.arange(past, past + length, device=tokens.device)[None] if position_ids is None else position_ids
            inputs["position_ids"] = ids.expand(len(tokens), -1) + self.tokens
        return {name: self._of_text(state, name) for name, state in forward(want=want, **inputs).items()}

    def _of_text(self, state: Any, name: str) -> Any:
        """A state without the keys in front: scores (…, Lq, Lk), keys and values (…, Lk, W)."""
        axis = {"scores": -1, "attention": -1, "keys": -2, "values": -2}.get(name)
        return state if axis is None else state.narrow(axis, self.tokens, state.shape[axis] - self.tokens)


@register("change", "prefix")
@dataclass(frozen=True)
class Prefix(Change):
    """Prefix tuning (Li and Liang, 2021, §4): `tokens` trained keys and values in front of every layer's; the network is frozen.

    For Transformers without relative distances. The positions of a text begin after the prefix, as in peft, so it shortens the
    texts that the network can read. Keys and values are drawn with the deviation `std`. Trained are they and the heads, at a
    hundred times the rate of full fine-tuning. They cannot be merged into weights: cloze alone opens the folder.

    Differs: the authors train a network that makes the keys and values (§4.3); here they are parameters themselves, as in peft
    without `prefix_projection`.
    """

    tokens: Count = 20
    std: Positive = 0.5

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 100.0

    def apply(self, network: Any) -> None:
        """Freeze the network and put keys and values in front of each layer's."""
        kind = type(network)
        shared = kind is Transformer and any(layer.lends for layer in network.layers)
        relative = kind is Transformer and isinstance(
            network.layer_inputs.positions, choices.FunctionalPositions | choices.Disentangled | choices.LearnedWithBuckets
        )
        if kind is not Transformer or relative or shared:
            has = " with relative distances" if relative else " with shared weights" if shared else ""
            raise CheckpointError(
                "prefix: expected a Transformer whose layers have weights of their own and no relative distances, got "
                f"{kind.__name__}{has}.\n  Use another change, such as prompt or lora."
            )
        put_in_front(network, PrefixOffset(self.tokens), self.tokens, of="prefix")
        for layer in network.layers:
            attention, like = layer.attention, layer.attention.out.weight
            rows = torch.empty(
                self.tokens, 2, attention.key_value_heads, attention.head_width, dtype=like.dtype, device=like.device
            )
            layer.around["attention"] = InFront(
                layer.place_of("attention"), rows.normal_(std=self.std), attention.heads // attention.key_value_heads
            )

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("prefixes are keys and values in front of the text, which cannot be merged into weights.")
