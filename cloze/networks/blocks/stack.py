"""The stack of every Transformer: runs the layers in order and calls the hooks around them.

Hooks are adapters, n-grams, entities or a second stream (`hooks.py`). A network makes the states that enter the stack
(`embeddings.py`) and the inputs of attention of each layer (`layer_inputs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from cloze import rng
from cloze.errors import RecipeError
from cloze.networks.blocks.attention import AttentionInputs, AttentionRecord
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.selected import Selected


class Cache:
    """Keys and values of the tokens read so far, for generation from left to right."""

    #: Whether tokens can be forgotten again.
    forgets: ClassVar[bool] = True

    def __init__(self, layers: int) -> None:
        self.layers: list[list[Tensor]] = [[] for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens read so far."""
        return self.layers[0][0].shape[2] if self.layers and self.layers[0] else 0

    def forget(self, count: int) -> None:
        """Take back the last `count` tokens. What a layer keeps behind its keys and values is of another sequence."""
        for cache in self.layers:
            cache[:2] = [tensor[:, :, : tensor.shape[2] - count] for tensor in cache[:2]]


@dataclass(frozen=True)
class Stack:
    """Layers, the inputs of attention of each layer (`inputs`), and the hooks around the layers.

    `across`: for a decoder, the inputs of each layer's attention to the source.
    """

    layers: Sequence[Layer]
    inputs: Sequence[AttentionInputs]
    layer_hooks: Sequence[LayerHook] = ()
    across: Sequence[AttentionInputs] | None = None

    def run(
        self, x: Tensor, *, selected: Selected | None = None, unread: bool = False, rows: Selected | None = None
    ) -> list[Tensor]:
        """The input of every layer and the output of the last: N + 1 states (B, L, D).

        With `selected` the last layer computes only these tokens, and its output is (M, D). With `unread` nobody reads the output
        of the last layer: the hooks are called before that layer, the layer is skipped, and there are N states. With `rows`, the
        tokens that are not padding, the layers pass on their states alone, (M, D), if they can (`skips_padding`).
        """
        self._seed_kernels(x.device)
        for hook in self.layer_hooks:
            x = hook.enter(x)
        layer_states, last = [x if rows is None else rows.take(x)], len(self.layers) - 1
        earlier = [x] if any(layer.means for layer in self.layers) else None
        for number, layer in enumerate(self.layers):
            inputs = self.inputs[number] if earlier is None else replace(self.inputs[number], earlier=earlier)
            for hook in self.layer_hooks:
                inputs = hook.before(number, layer, layer_states[-1], inputs)
            if unread and number == last:
                break
            queries = selected if number == last else None
            if queries is not None:
                seen, relation = inputs.seen.select(queries), inputs.relation.select(queries)
                inputs = replace(inputs, seen=seen, relation=relation, selected=queries)
                if rows is not None:  # the selected tokens are numbered among all
                    layer_states[-1] = rows.put_back(layer_states[-1])
            elif rows is not None:
                inputs = replace(inputs, rows=rows)
            output = layer(layer_states[-1], inputs, None if self.across is None else self.across[number])
            for hook in self.layer_hooks:
                output = hook.after(number, output, queries)
            layer_states.append(output)
        return layer_states

    @property
    def per_token(self) -> bool:
        """Whether the last layer may compute only some tokens."""
        return len(self.layers) > 0 and all(hook.per_token for hook in self.layer_hooks)

    @property
    def skips_padding(self) -> bool:
        """Whether the layers may leave padding out: nothing around them expects rows, none reads a mean of earlier states, and
        nothing observes the inputs of maps, which would depend on how much padding a micro-batch has."""
        return not self.layer_hooks and not any(layer.means or layer.surrounded for layer in self.layers)

    def _seed_kernels(self, device: torch.device) -> None:
        """Seed the GPU's generator, from which attention kernels draw dropout, by the clock, so that a step can be repeated."""
        dropouts = [layer.attention.dropout for layer in self.layers]
        if device.type != "cuda" or not any(dropout.active for dropout in dropouts) or torch.cuda.is_current_stream_capturing():
            return
        with torch.cuda.device(device):
            torch.cuda.manual_seed(rng.fold(*dropouts[0].clock.numbers, dropouts[0].key) >> 1)


def each_layer(
    inputs: Sequence[AttentionInputs], *, caches: Sequence[list[Tensor]] | None = None, past: Tensor | None = None,
    gates: Tensor | None = None, record: AttentionRecord | None = None,
) -> list[AttentionInputs]:
    """`inputs` with what differs between layers: caches, a memory (B, N, M, D), gates (N, H) or (N, B, H), and the record.

    Raises `RecipeError` if there are not as many gates as layers and heads.
    """
    if gates is not None and len(gates) != len(inputs):
        raise RecipeError(f"gates: {tuple(gates.shape)}, expected (N, H) or (N, B, H) for N = {len(inputs)} layers.")
    if caches is None and past is None and gates is None and record is None:
        return list(inputs)
    return [
        replace(
            layer_inputs, record=record, cache=None if caches is None else caches[number],
            past=None if past is None else past[:, number], gates=None if gates is None else gates[number],
        )
        for number, layer_inputs in enumerate(inputs)
    ]
