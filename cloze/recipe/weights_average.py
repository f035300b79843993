"""The section `training.average` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from cloze.bounds import BelowOne


@dataclass(frozen=True)
class WeightsAverage:
    """The exponential mean of all weights that a run measures and exports. The signature is the schema of `training.average`."""

    decay: BelowOne
