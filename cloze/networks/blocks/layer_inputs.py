"""The inputs of attention in each layer of a `Transformer`: who sees whom, and how positions enter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.positions.buckets import Bias, Buckets
from cloze.networks.blocks.positions.disentangled import DistanceVectors
from cloze.networks.blocks.positions.functional import functional
from cloze.networks.blocks.positions.relation import NONE, Relation
from cloze.networks.blocks.positions.rotary import FrequencyTable, rotation, rotation_by
from cloze.networks.blocks.visibility import AnyOrder, Restricted, narrow, visibility
from cloze.networks.choices import Band, Disentangled, FunctionalPositions, LearnedWithBuckets, Rotary, RotaryTable

#: The module that a network has once for all layers where positions act in attention.
PositionModule = DistanceVectors | Buckets | FrequencyTable


def make_positions(positions: Any, *, width: int, heads: int, epsilon: float) -> PositionModule | None:
    """The module of such positions, for layers of `width`; None where attention needs no tensors for them."""
    if isinstance(positions, Disentangled):
        return DistanceVectors(positions, width, epsilon)
    if isinstance(positions, LearnedWithBuckets):
        return Buckets(heads=heads, both=True, buckets=positions.buckets, farthest=positions.farthest)
    return FrequencyTable(width // heads, positions.base) if isinstance(positions, RotaryTable) else None


@dataclass(frozen=True)
class LayerInputs:
    """Makes the inputs of attention of all layers. `band` restricts some of them to a neighbourhood; `positions` may enter
    attention, as rotations or as vectors of distances."""

    layers: int
    head_width: int
    positions: Any
    band: Band | None

    def __post_init__(self) -> None:
        if isinstance(self.positions, Rotary | RotaryTable) and self.head_width % 2:
            raise RecipeError(
                f"transformer: rotary positions rotate pairs of numbers, and heads are {self.head_width} wide. Give an even "
                "width of heads."
            )

    def banded(self, layer: int) -> bool:
        """Whether tokens of a layer see only their neighbourhood."""
        return self.band is not None and self.band.limits(layer)

    def rotated(self, layer: int) -> bool:
        """Whether a layer rotates queries and keys, where positions are rotary."""
        return not isinstance(self.positions, Rotary) or self.positions.rotates_in(layer)

    def __call__(
        self, tokens: Tensor, *, position_ids: Tensor | None, order: AnyOrder, block: Tensor | None, past: int,
        distances: PositionModule | None = None,
    ) -> list[AttentionInputs]:
        """The inputs of each layer for tokens (B, L) that follow `past` cached ones; equal layers share one object. `distances`
        is the network's module of positions, where it has one."""
        length, device = tokens.shape[1], tokens.device
        seen = visibility(order, block, length=length, past=past, device=device)
        in_band = seen
        if self.band is not None:
            in_band = narrow(seen, order, self.band.width, length=length, past=past, device=device)
        branched = isinstance(order, Restricted)
        dense_relation, banded_relation = self._relations(position_ids, branched, length, past, device, distances)
        dense, banded = AttentionInputs(seen, dense_relation), AttentionInputs(in_band, banded_relation)
        plain = AttentionInputs(seen), AttentionInputs(in_band)
        return [
            (banded if self.banded(layer) else dense) if self.rotated(layer) else plain[self.banded(layer)]
            for layer in range(self.layers)
        ]

    def _relations(
        self, position_ids: Tensor | None, branched: bool, length: int, past: int, device: torch.device,
        distances: PositionModule | None,
    ) -> tuple[Relation, Relation]:
        """The relations of positions in dense and in banded layers. In rows that are not `branched`, two tokens of an example are
        as far apart as their columns."""
        branch_positions = position_ids if branched else None
        if isinstance(distances, Buckets):
            bias = Bias(distances(length, past, branch_positions))
            return bias, bias
        if isinstance(distances, DistanceVectors):
            learned = distances.relation(length=length, past=past, device=device, position_ids=branch_positions)
            return learned, learned
        if isinstance(self.positions, FunctionalPositions):
            relative = functional(
                self.positions.limit, self.head_width, length=length, past=past, device=device, position_ids=branch_positions
            )
            return relative, relative
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=device)[None]
        if isinstance(distances, FrequencyTable):
            rotated = rotation_by(position_ids, distances())
            return rotated, rotated
        if isinstance(self.positions, Rotary):
            part = self.positions
            base, local = part.base, part.local_base or part.base
            dense = rotation(position_ids, self.head_width, base, part.scaling, values=part.values)
            same = self.band is None or local == base
            return dense, dense if same else rotation(position_ids, self.head_width, local, part.scaling, values=part.values)
        return NONE, NONE
