"""Choose the best checkpoint of a run by a metric on a dev set, or by a held-out loss, measured at every evaluation. No torch.

The standing is part of a run's state: a resumed run keeps the same checkpoint and ends at the same evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class SelectionStanding:
    """Where a selection stands: the best evaluation so far, with its number from 1, its step and its metrics, and how many
    evaluations there were.

    An evaluation before the first step has the number 0 and the metrics `start`. `last` is the latest evaluation, as the standing
    would be if that were the best; None if it is.
    """

    evaluation: int
    step: int
    metrics: dict[str, float]
    evaluations: int
    worth: float  # by the metric that decides: more is better
    last: SelectionStanding | None = None
    start: dict[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> SelectionStanding | None:
        """The inverse of `to_json`."""
        return None if saved is None else cls(**{**saved, "last": cls.from_json(saved["last"])})

    def result(self, *, keep_best: bool) -> SelectionStanding:
        """The evaluation of the run's resulting checkpoint: its best, else its last."""
        return self if keep_best or self.last is None else self.last


@dataclass(frozen=True)
class Selection:
    """How a run is measured and its checkpoint chosen.

    `measure()` gives the metrics of the parameters as they are; it is called on every rank. None: the metrics are the held-out
    losses by the names that objectives have in the log. `metric` is the deciding one. `best`: the result is the best checkpoint,
    else the last. `patience`: the run ends after this many evaluations without improvement; 0: never. `constant_metric` is the
    metric of a constant answer. Until the best is better than that, `patience` does not count: a tagger of rare names gives one
    label to all words for some epochs. `start` are the metrics of the parameters before the first step, if these may stay the
    best. `outputs()` is what the network said of the dev rows at the last `measure()`, by task; None where it is not known.
    """

    measure: Callable[[], Metrics] | None
    metric: str
    higher_is_better: bool = True
    best: bool = True
    patience: int = 0
    constant_metric: float | None = None
    start: Metrics | None = None
    outputs: Callable[[], Mapping[str, Any]] = dict

    def after(self, standing: SelectionStanding | None, step: int, metrics: Metrics) -> SelectionStanding:
        """The standing after another evaluation; the first of equals is the best."""
        first = 0 if step == 0 else 1  # 0: before the first step
        number = first if standing is None else standing.evaluations + 1
        start = standing.start if standing is not None else None if step else dict(metrics)
        latest = SelectionStanding(number, step, dict(metrics), number, -self.loss(metrics), start=start)
        if standing is None or self.loss(metrics) < self.loss(standing.metrics):
            return latest
        return replace(standing, evaluations=number, last=latest)

    def loss(self, metrics: Metrics) -> float:
        """The metric as a loss: lower is better, and NaN counts as the worst."""
        return self._as_loss(metrics[self.metric])

    def _as_loss(self, value: float) -> float:
        loss = -value if self.higher_is_better else value
        return math.inf if math.isnan(loss) else loss

    def above_constant(self, metrics: Metrics) -> bool:
        """Whether metrics are known to be better than those of a constant answer."""
        return self.constant_metric is not None and self.loss(metrics) < self._as_loss(self.constant_metric)

    def ends(self, standing: SelectionStanding | None) -> bool:
        """Whether the run has waited long enough."""
        if standing is None:
            return False
        if self.constant_metric is not None and not self.above_constant(standing.metrics):
            return False
        return 0 < self.patience <= standing.evaluations - standing.evaluation
