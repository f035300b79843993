"""Tell from the two tokens around a mention whether it is the one that the author wrote (WKLM)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.bounds import BelowOne
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.classify import Classify
from cloze.objectives.heads import ClassHead
from cloze.registry import Given, register


class ClassifyOutside(Classify):
    """Binary cross-entropy of `targets/<set>`, read from the states left and right of each unit.

    `positions/<set>` and `positions/<set>_right` are their flat positions. Metrics: `correct`, `positive`.
    """

    def __init__(self, head: ClassHead, *, set: str) -> None:
        super().__init__(head, set=set)
        self.right = f"positions/{set}_right"
        self.at = (self.positions_field, self.right)
        self.takes = frozenset({self.targets_field, self.positions_field, self.right})

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The states left and right of each unit, (M, 2D)."""
        state = states[self.reads[0]].flatten(0, -2)
        return torch.cat([state.index_select(0, batch[name].long()) for name in self.at], dim=-1)


@register("objective", "outside")
def outside(*, set: str = "kept", dropout: BelowOne = 0.0, width: Given[int], clock: Given[Clock]) -> ClassifyOutside:
    """Predict whether each unit of a layer is the original one: σ(w · [left; right] + b), from the states of the tokens before
    and after it (Xiong et al., 2020, WKLM), with `dropout` of both. `label: {of: around}` gives the targets. Parameters:
    `head.output.*`.
    """
    return ClassifyOutside(ClassHead(width=2 * width, classes=1, transform=None, dropout=Dropout(dropout, clock)), set=set)
