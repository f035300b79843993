"""Baselines of losses: predictions that need no network. No torch.

`chance` is the loss of uniform guesses, `single` that of always predicting the frequencies of the targets, and `pairs`, if the
targets are tokens, that of knowing the neighbouring token.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """Nats per target of one objective. `pairs` is None if the targets are not tokens of running text."""

    chance: float
    single: float
    pairs: float | None = None

    def describe(self, loss: float) -> str:
        """Compare a loss with them, in words.

        >>> Baseline(chance=8.99, single=7.07, pairs=5.31).describe(6.35)
        '0.72 nats below single tokens (7.07); pairs 5.31'
        """
        name = "constant prediction" if self.pairs is None else "single tokens"
        gap = self.single - loss
        text = f"{abs(gap):.2f} nats {'below' if gap >= 0 else 'above'} {name} ({self.single:.2f})"
        return text if self.pairs is None else f"{text}; pairs {self.pairs:.2f}"

    def to_json(self) -> dict[str, float]:
        """The numbers by name, without those that are absent."""
        return {name: round(value, 4) for name, value in asdict(self).items() if value is not None}


def baselines_from(record: Mapping[str, Any] | None) -> dict[str, Baseline]:
    """The baselines of a log's `start` event, if it has any."""
    return {name: Baseline(**values) for name, values in (record or {}).items()}


def with_measured(baselines: Mapping[str, Baseline], metrics: Mapping[str, float]) -> dict[str, Baseline]:
    """The baselines, and those of binary objectives whose targets are made during the step, from the fraction of positive
    ones."""
    merged = dict(baselines)
    for name, share in metrics.items():
        objective, _, metric = name.rpartition(".")
        if metric == "positive" and objective not in merged and 0.0 <= share <= 1.0:
            rest = [part for part in (share, 1.0 - share) if part > 0]
            merged[objective] = Baseline(math.log(2), -sum(part * math.log(part) for part in rest))
    return merged


def not_learning(
    baselines: Mapping[str, Baseline], objectives: Mapping[str, float], *, share: float, updates: int, warmed_up: bool,
    labels: Collection[str] = (), first: Mapping[str, float] = MappingProxyType({}),
) -> str | None:
    """A message about a run that has learned nothing; None if it has learned something.

    It has learned something once an objective over tokens is better than a table of single tokens. The objectives `labels`, which
    label every token (replaced or not), must then be better than a constant prediction. `share` is that of the budget, `updates`
    the updates so far; `warmed_up`: the rate has reached its peak. `first` are the training losses of the first step, where they
    are known.
    """
    measured = {name: loss for name, loss in objectives.items() if name in baselines and baselines[name].pairs is not None}
    still = _none_better(baselines, measured) or _none_better(
        baselines, {name: loss for name, loss in objectives.items() if name in baselines and name in labels}
    )
    if still is None:
        return None
    loss, base, total = objectives[still], baselines[still], updates / max(share, 1e-9)
    moved = base.chance - _UNMOVED * (base.chance - base.single)  # less than this: more than the first updates have learned
    if not warmed_up:
        why = (
            "the learning rate is still rising, because the warm-up is too long for this budget. Set training.rate.warmup to "
            "0.05 or 0.1, and warmup_steps to 0 if the recipe has them."
        )
    elif base.pairs is not None and first.get(still, 0.0) > base.chance + _DIVERGED:
        why = (
            f"the network begins with scores that are too large: its loss was {first[still]:.2f} at the first step, and uniform "
            f"guesses give {base.chance:.2f}. Give it smaller initial weights, or a larger budget."
        )
    elif base.pairs is not None and loss > base.chance + _DIVERGED:
        why = f"the learning rate is too high: uniform guesses give {base.chance:.2f}. Divide training.rate.peak by ten."
    elif base.pairs is not None and loss > moved and updates >= _SOME:
        why = (
            f"the learning rate is too low: the loss is still that of uniform guesses ({base.chance:.2f}). Multiply "
            "training.rate.peak by ten."
        )
    elif total < _FEW:
        why = (
            f"the whole budget is only about {total:,.0f} updates. Use a smaller batch (--set training.batch=N), a smaller "
            "network, or a larger budget."
        )
    else:
        why = (
            "often a peak learning rate that is too high for post-norm layers, or too low for so few updates. Try half and "
            "twice training.rate.peak."
        )
    counting = "predicting the frequencies of " + ("single tokens" if base.pairs is not None else "the labels")
    return (
        f"{still} has learned nothing yet: after {share:.0%} of the budget ({updates:,} updates) its held-out loss is "
        f"{loss:.2f}, and {counting} gives {base.single:.2f}.\n  Likely cause: {why}"
    )


def _none_better(baselines: Mapping[str, Baseline], measured: Mapping[str, float]) -> str | None:
    """The first of the objectives if none is better than its baseline."""
    for name, loss in measured.items():
        if loss < baselines[name].single - (_BETTER if baselines[name].pairs is not None else _BETTER_LABEL):
            return None
    return next(iter(measured), None)


_BETTER = 0.05  # nats below single tokens that count as having learned something
_BETTER_LABEL = 0.005  # the same for a constant label, whose entropy is a fraction of a nat
_DIVERGED = 1.0  # nats above uniform guesses that a network does not begin with
_UNMOVED = 0.1  # of the way from uniform guesses to single tokens, which the first updates go
_FEW, _SOME = 1000, 20  # updates: too few in a whole run; enough to leave uniform guesses
