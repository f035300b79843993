"""Rates by depth."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from cloze.bounds import NonNegative, Positive
from cloze.errors import RecipeError
from cloze.registry import register


class LayerwiseRates(ABC):
    """A factor of the rate for each depth group and for the heads: the base class of every part `layerwise_rates`.

    `times_argument`: the argument that says how many times the rate of the network the heads have. `divisor_argument`: the one by
    which the rate of a depth group is that of the group above it divided. `moves`: the factors depend on the share of the budget
    that is spent.
    """

    times_argument: ClassVar[str | None] = None
    divisor_argument: ClassVar[str | None] = None
    moves: ClassVar[bool] = False

    @abstractmethod
    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """The factors of so many depth groups, embeddings first, and that of the heads."""


@register("layerwise", "divide")
@dataclass(frozen=True)
class Divide(LayerwiseRates):
    """Each depth group has the rate of the group above it divided by `by`, heads the full rate (Howard and Ruder, 2018, §3.2).

    With `heads: false` the top layer has the full rate too: for a language model whose output layer is tied to its embeddings.
    """

    divisor_argument: ClassVar[str | None] = "by"

    by: Positive = 2.6
    heads: bool = True

    def __post_init__(self) -> None:
        if not self.by > 0:
            raise RecipeError(f"layerwise_rates.divide.by: {self.by}. Expected a number above 0, such as 2.6.")

    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """by^-groups … by^-1, 1."""
        top = groups if self.heads else groups - 1
        return tuple(self.by ** -max(top - number, 0) for number in range(groups + 1))


@register("layerwise", "factors")
@dataclass(frozen=True)
class Factors(LayerwiseRates):
    """A factor of the rate for each depth group, embeddings first, and one for the `heads`.

    ULMFiT's code trains its language model with `[0.5, 0.1667, 0.3333, 1.0]`: embeddings with half of the rate, the LSTMs with
    a sixth, a third and all of it (fastai `courses/dl2/imdb_scripts/finetune_lm.py`).
    """

    each: tuple[NonNegative, ...]
    heads: NonNegative = 1.0

    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """As given."""
        return (*self.each, self.heads)


@register("layerwise", "heads")
@dataclass(frozen=True)
class Heads(LayerwiseRates):
    """The network has the rate; the heads, which start at random, have `times` that rate. With 0 they stay as they are."""

    times: NonNegative

    times_argument: ClassVar[str | None] = "times"

    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """1, …, 1, times."""
        return (*[1.0] * groups, self.times)


@register("layerwise", "parts")
@dataclass(frozen=True)
class Parts(LayerwiseRates):
    """A factor of the rate for the embeddings, one for all layers, and one for the heads, however many layers there are."""

    embeddings: NonNegative = 1.0
    layers: NonNegative = 1.0
    heads: NonNegative = 1.0

    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """embeddings, layers, …, layers, heads."""
        return (self.embeddings, *[self.layers] * (groups - 1), self.heads)


@register("layerwise", "progressive")
@dataclass(frozen=True)
class Progressive(LayerwiseRates):
    """Layers learn one after another, each in an equal part of the budget (progressive transfer; Sun et al., 2020, §3.6).

    A layer does not learn before its part; in it, it has `within` times the rate, and `after` times afterwards. In each part
    these rates grow from 0 over the first tenth and fall to 0.9 of themselves (google-research/mobilebert, `distill_util.py`).
    Embeddings and heads have the rate itself.

    Differs: in the authors' code, embeddings do not learn either; they are those of the teacher.

    >>> Progressive().factors(3, 0.5), [round(factor, 3) for factor in Progressive().factors(3, 0.75)]
    ((1.0, 0.0, 0.0, 1.0), [1.0, 0.291, 2.912, 1.0])
    """

    within: Positive = 3.0
    after: NonNegative = 0.3

    moves: ClassVar[bool] = True

    def factors(self, groups: int, share: float = 0.0) -> tuple[float, ...]:
        """1, those of the layers, 1."""
        layers = groups - 1
        turn = min(int(share * layers), layers - 1)
        done = min(share * layers - turn, 1.0)
        course = min(10.0 * done, 0.9 + 0.1 * math.sqrt(1.0 - done))
        factors = [course * (self.within if layer == turn else self.after if layer < turn else 0.0) for layer in range(layers)]
        return (1.0, *factors, 1.0)
