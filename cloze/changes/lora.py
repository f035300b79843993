"""`change: [lora: {rank: 8}]`: low-rank updates of linear maps; all else in the network is frozen (Hu et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Positive, Width
from cloze.changes.change import Change, Tensors
from cloze.changes.maps import chosen_maps, freeze, rows_of
from cloze.networks.blocks.computed import compute_weight
from cloze.registry import register


class LowRankUpdate(NamedTuple):
    """The update of some `rows` of a map: scale · up down, with down (rank, in) and up (rows, rank)."""

    map: str
    rows: slice
    down: Tensor
    up: Tensor


class LowRank(nn.Module):
    """W + (alpha / rank) B A, on some `rows` of W: `down` is A (rank, in), `up` is B (rows, rank), which starts at zero."""

    def __init__(self, weight: Tensor, *, rank: int, alpha: float, rows: slice) -> None:
        super().__init__()
        first, stop, _ = rows.indices(len(weight))
        self.scale, self.margins = alpha / rank, (0, 0, first, len(weight) - stop)
        self.down = nn.Parameter(torch.empty(rank, weight.shape[1], dtype=weight.dtype, device=weight.device))
        self.up = nn.Parameter(torch.zeros(stop - first, rank, dtype=weight.dtype, device=weight.device))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def products(self) -> int:
        """Multiplications of up and down: they make the update whenever the weight is read."""
        return len(self.up) * self.down.numel()

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) to (out, in)."""
        with torch.autocast("cpu" if weight.is_meta else weight.device.type, enabled=False):  # the meta device has no autocast
            update = self.scale * (self.up @ self.down)
        return weight + (F.pad(update, self.margins) if any(self.margins) else update)


@register("change", "lora")
@dataclass(frozen=True)
class LoRA(Change):
    """Low-rank updates (Hu et al., 2021, §4.1): W becomes W + (alpha / rank) B A. Only A, B and the heads are trained.

    `on` names linear maps: `out`, `inner`, `outer`, `attention.out`; in stacked projections `query`, `key` and `value`, as in the
    paper: `on: [query, value]`. A recurrence has `input` and `recurrent`. The default is every map above the embeddings. `alpha`
    is twice the rank if not given, as in the authors' commands for RoBERTa and DeBERTa (microsoft/LoRA, examples/NLU). A is drawn
    as in their code and B is zero, so training starts from the checkpoint's outputs. Export merges the updates into the weights.

    The update is added to the weight, not to the output of the map. The result is the same, and it works in every network; but a
    step saves no time, only the optimizer's memory.

    Differs: what A reads has no dropout of its own. In the authors' code it is 0 unless given, and 0.1 in their example for GPT-2
    (examples/NLG).
    """

    rank: Width = 8
    alpha: Positive | None = None
    on: tuple[str, ...] | None = None

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 10.0

    def apply(self, network: Any) -> None:
        """Freeze the network and add an update to every chosen map."""
        chosen = chosen_maps(network, self.on, of="lora")
        freeze(network)
        alpha = self.scale * self.rank
        for linear, rows in chosen:
            weight = next(linear.parameters())  # not the computed weight
            compute_weight(linear, "lora", LowRank(weight, rank=self.rank, alpha=alpha, rows=rows))

    @property
    def scale(self) -> float:
        """What up · down is multiplied with."""
        return (2.0 * self.rank if self.alpha is None else self.alpha) / self.rank

    def updates(self, state: Tensors) -> list[LowRankUpdate]:
        """The updates in the state of a changed network; each part of stacked projections that `on` names has its own."""
        return [
            LowRankUpdate(name, rows, state[f"{lead}.down"], state[f"{lead}.up"])
            for name in dict.fromkeys(key.partition(".changes.")[0] for key in state if ".changes.lora" in key)
            for rows, lead in self.places(name, len(state[f"{name}.weight"]))
        ]

    def places(self, name: str, height: int) -> list[tuple[slice, str]]:
        """The rows of a map that are updated, and how the names of the updates begin; `height` is the number of rows."""
        slices = [slice(None)] if self.on is None else [rows_of(name, height, part) for part in self.on]
        chosen = [slice(*rows.indices(height)) for rows in slices if rows is not None]
        return [(rows, f"{name}.changes.lora{f'_{number}' if number > 1 else ''}") for number, rows in enumerate(chosen, 1)]
