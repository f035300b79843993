"""The one stack: layers in order, and objects around them. Adapters, n-grams, entities or a second stream are such objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cloze import rng
from cloze.errors import RecipeError
from cloze.networks.blocks.around import Around
from cloze.networks.blocks.attention import AttentionInputs, Record
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.selected import Selected
from cloze.networks.clock import Clock


class Cache:
    """Keys and values of the tokens read so far, for generation from left to right."""

    def __init__(self, layers: int) -> None:
        self.layers: list[list[Tensor]] = [[] for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens read so far."""
        return self.layers[0][0].shape[2] if self.layers and self.layers[0] else 0


@dataclass(frozen=True)
class Stack:
    """Layers, what attention is given in each of them (one entry per layer), and the objects around them.

    `across` is what the layers of a decoder read of their source, one entry per layer.
    """

    layers: Sequence[Layer]
    given: Sequence[AttentionInputs]
    around: Sequence[Around] = ()
    across: Sequence[AttentionInputs] | None = None

    def run(self, x: Tensor, *, at: Selected | None = None, unread: bool = False) -> list[Tensor]:
        """What goes into every layer and comes out of the last: N + 1 states (B, L, D).

        With `at` the last layer runs at these tokens alone, and its states are (M, D). With `unread` nobody reads the last state:
        the objects around the last layer are called before it, and the layer is left out.
        """
        for each in self.around:
            x = each.enter(x)
        passed, last = [x], len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            given = self.given[number]
            for each in self.around:
                given = each.before(number, layer, passed[-1], given)
            if unread and number == last:
                break
            selected = at if number == last else None
            if selected is not None:
                given = replace(given, seen=given.seen.at(selected), relation=given.relation.at(selected), at=selected)
            made = layer(passed[-1], given, None if self.across is None else self.across[number])
            for each in self.around:
                made = each.after(number, made, selected)
            passed.append(made)
        return passed

    @property
    def per_token(self) -> bool:
        """Whether the last layer may run at some tokens alone."""
        return len(self.layers) > 0 and all(each.per_token for each in self.around)


def seed_kernels(layers: Sequence[Layer], clock: Clock, device: torch.device) -> None:
    """Attention kernels of a GPU draw from its generator: set it by the clock, so that a step can be repeated."""
    drawing = any(layer.attention.dropout.active for layer in layers)
    if device.type != "cuda" or not drawing or torch.cuda.is_current_stream_capturing():
        return
    with torch.cuda.device(device):
        torch.cuda.manual_seed(rng.fold(*clock.numbers, layers[0].attention.dropout.key) >> 1)


def each_layer(
    given: Sequence[AttentionInputs],
    *,
    caches: Sequence[list[Tensor]] | None = None,
    past: Tensor | None = None,
    gates: Tensor | None = None,
    record: Record | None = None,
) -> list[AttentionInputs]:
    """`given` with what differs from layer to layer: caches, a memory (B, N, M, D), gates (N, H) or (N, B, H), states to record.

    Raises `RecipeError` if there are not as many gates as layers and heads.
    """
    if gates is not None and len(gates) != len(given):
        raise RecipeError(f"gates: {tuple(gates.shape)}, expected (N, H) or (N, B, H) for N = {len(given)} layers.")
    if caches is None and past is None and gates is None and record is None:
        return list(given)
    return [
        replace(
            each, record=record, cache=None if caches is None else caches[number],
            past=None if past is None else past[:, number], gates=None if gates is None else gates[number],
        )
        for number, each in enumerate(given)
    ]
