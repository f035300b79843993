"""How rotary positions are slowed for texts longer than those of training: parts of a recipe (`positions.rotary.scaling`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from cloze.bounds import Count, Positive
from cloze.errors import RecipeError
from cloze.registry import register


@register("scaling", "linear")
@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """All angles are divided by `factor`, so that a network trained on short texts reads texts that many times as long (position
    interpolation; Chen et al., 2023, §2.3)."""

    factor: Positive


@register("scaling", "llama3")
@dataclass(frozen=True, kw_only=True)
class LlamaScaling:
    """Angles that turn slowly are divided by `factor`, those that turn fast stay, and the others lie between (Llama 3.1;
    meta-llama/llama-models, `apply_scaling`).

    Slow are angles that turn less than `low` times within `length` tokens, fast those that turn more than `high` times; `length`
    is that of the texts before scaling.
    """

    factor: Positive = 8.0
    low: Positive = 1.0
    high: Positive = 4.0
    length: Count = 8192

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise RecipeError(f"scaling.llama3: low is {self.low:g} and high {self.high:g}. Give a low below high.")


def scaled(frequencies: Tensor, scaling: LinearScaling | LlamaScaling | None) -> Tensor:
    """The angles per token (W/2,) as a recipe's `scaling` slows them."""
    if scaling is None:
        return frequencies
    slowed = frequencies / scaling.factor
    if isinstance(scaling, LinearScaling):
        return slowed
    turns = frequencies * (scaling.length / (2 * math.pi))
    share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
    return (1.0 - share) * slowed + share * frequencies
