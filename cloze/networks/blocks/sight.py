"""What attention is told in each layer: who sees whom, and how it knows about positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.band import narrow
from cloze.networks.blocks.functional import functional
from cloze.networks.blocks.relation import NONE, Relation
from cloze.networks.blocks.rotary import rotation
from cloze.networks.blocks.visibility import visibility
from cloze.networks.choices import Band, Functional, Rotary


@dataclass(frozen=True)
class Sights:
    """The views of all layers: which of them `band` cuts, and how `positions` tell attention of positions, if they do."""

    layers: int
    head_width: int
    positions: Any
    band: Band | None

    def __post_init__(self) -> None:
        if isinstance(self.positions, Rotary) and self.head_width % 2:
            raise RecipeError(
                f"transformer: rotary positions rotate pairs of numbers, and heads are {self.head_width} wide. Give an even "
                "width of heads."
            )

    def banded(self, layer: int) -> bool:
        """Whether a layer sees its neighbourhood alone; layer 0 is the first dense one."""
        return self.band is not None and (self.band.dense_every is None or layer % self.band.dense_every > 0)

    def __call__(
        self, tokens: Tensor, *, position_ids: Tensor | None, order: Tensor | str, block: Tensor | None, past: int
    ) -> list[AttentionInputs]:
        """One view for each layer of tokens (B, L) after `past` cached ones; layers of a kind hold the same objects."""
        length, device = tokens.shape[1], tokens.device
        seen = visibility(order, block, length=length, past=past, device=device)
        near = seen
        if self.band is not None:
            near = narrow(seen, order, self.band.width, length=length, past=past, device=device)
        far_where, near_where = self._where(position_ids, length, past, device)
        far, near_by = AttentionInputs(seen, far_where), AttentionInputs(near, near_where)
        return [near_by if self.banded(layer) else far for layer in range(self.layers)]

    def _where(
        self, position_ids: Tensor | None, length: int, past: int, device: torch.device
    ) -> tuple[Relation, Relation]:
        """For global and for local layers."""
        if isinstance(self.positions, Functional):
            relative = functional(self.positions.limit, self.head_width, length=length, past=past, device=device)
            return relative, relative
        if isinstance(self.positions, Rotary):
            if position_ids is None:
                position_ids = torch.arange(past, past + length, device=device)[None]
            base, local = self.positions.base, self.positions.local_base or self.positions.base
            far = rotation(position_ids, self.head_width, base)
            return far, far if self.band is None or local == base else rotation(position_ids, self.head_width, local)
        return NONE, NONE
