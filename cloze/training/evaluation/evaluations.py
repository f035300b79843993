"""Evaluations during a run: held-out losses, the metric that chooses the checkpoint, and samples."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from cloze.networks.remembered import remembering
from cloze.training.carry import Carries
from cloze.training.evaluation.learning_check import LearningCheck
from cloze.training.evaluation.selection_state import SelectionState
from cloze.training.events import Events
from cloze.training.meter import Meter, StepTotals
from cloze.training.optimizers.averaged import averages, observe_loss
from cloze.training.run import Run
from cloze.training.run_progress import RunProgress
from cloze.training.schedule.rates import observe_losses
from cloze.training.selection import Metrics
from cloze.training.trainee import Trainee


class Evaluations:
    """Measures a run and remembers the results.

    `held_out` is the last held-out loss; of a mixture, that of its entries together. `by_objective` are the last held-out
    losses by the objectives' names in the log. `history` are the losses that rates and optimizers have learned of.
    `saved` is the state of the checkpoint that the run continues from.
    """

    def __init__(
        self, run: Run, trainee: Trainee, run_progress: RunProgress, events: Events, selection_state: SelectionState,
        learning_check: LearningCheck, saved: Mapping[str, Any] | None,
    ) -> None:
        self.run, self.trainee, self.run_progress, self.events = run, trainee, run_progress, events
        self.selection_state, self.learning_check = selection_state, learning_check
        self.held_out: float | None = (saved or {}).get("held_out")
        self.history: list[float] = []
        self.by_objective: dict[str, float] = {}
        self._measured_step: int | None = None
        if saved is not None:
            self.history = list(saved["held_out_losses"])
            observe_losses(run.rate, self.history)

    def measure(self, *, observed: bool) -> None:
        """Write the events of an evaluation: `held_out` per entry with held-out examples, `samples`, and `dev`.

        Rates, optimizers and the choice of the best checkpoint learn of it only if it is `observed`; there is no `dev`
        otherwise. In a run that chooses by a metric of its dev rows, losses are measured only at its end, and for the learning
        check if the metric is no better than that of a constant answer. A collective.
        """
        model, optimizer = self.trainee.model, self.trainee.optimizer
        model.eval()
        # The metric and the losses are about the same rows.
        remembers = self._may_need_losses() and not self.trainee.ranks.sharded
        with averages(optimizer), remembering(model.networks.values() if remembers else ()):
            metrics = self._selecting_metrics() if observed else None
            if metrics is None or self._needs_losses(metrics):
                self._measure_entries()
            self._write_samples()
            dev = self._record_dev(metrics) if observed else None
        model.train()
        loss = dev if dev is not None else self.held_out
        if observed and loss is not None:
            observe_loss(optimizer, loss)
            self.history.append(loss)
            observe_losses(self.run.rate, self.history)

    def _selecting_metrics(self) -> Metrics | None:
        """The metrics of a run that chooses by those of its dev rows; before the first step they are known."""
        selection = self.run.selection
        if selection is None or selection.measure is None:
            return None
        return selection.start if self.run_progress.step == 0 and selection.start is not None else selection.measure()

    def _may_need_losses(self) -> bool:
        share = self.run_progress.share
        return share >= 1 or self.learning_check.due(share)

    def _needs_losses(self, metrics: Metrics) -> bool:
        selection = self.run.selection
        above = selection is not None and selection.above_constant(metrics)
        return self.run_progress.share >= 1 or (self._may_need_losses() and not above)

    def warn(self, share: float) -> None:
        """Say once, after a third of the budget, if nothing has been learned."""
        warning = self.learning_check.warning(
            self.by_objective, share=share, updates=self.run_progress.step, learning_rate=self.trainee.learning_rate
        )
        if warning is not None:
            self.events.say(warning)

    def describe(self) -> tuple[str, str]:
        """The held-out loss of this step, to follow other words, and lines that compare it with baselines and with the best
        step."""
        step = self.run_progress.step
        measured = self._measured_step == step
        loss = f", held-out loss {self.held_out:.4f}" if measured and self.held_out is not None else ""
        lines = self.learning_check.compare(self.by_objective) if measured else ""
        return loss, lines + self.selection_state.describe(step)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint holds of this."""
        return {"held_out": self.held_out, "held_out_losses": list(self.history)}

    def _measure_entries(self) -> None:
        """Measure each entry and write its event; `held_out` is the loss of all of them together. The events of several entries
        say how much the loss of each weighs in it."""
        self._measured_step = self.run_progress.step
        measured = {entry: means for entry in self.trainee.model.entries if (means := self._means(entry)) is not None}
        weights = weights_of(measured, None if self.run.mixing == "all" else self.run_progress.odds)
        for entry, means in measured.items():
            name = self.trainee.log_name
            self.by_objective |= {name(entry, objective): loss for objective, loss in means["objectives"].items()}
            self.learning_check.add_metrics({name(entry, metric): value for metric, value in means["metrics"].items()})
            step, spent = self.run_progress.step, self.run_progress.spent_now()
            weight = {"weight": weights[entry]} if len(measured) > 1 else {}
            record = self.events.write("held_out", step, entry=entry, **spent, **weight, **means)
            if record is not None and self.run.verbose:
                self.events.say(f"step {step:,}  held-out loss of {entry}: {means['loss']:.3f}")
        if measured:
            self.held_out = sum(means["loss"] * weights[entry] for entry, means in measured.items())

    @torch.no_grad()
    def _means(self, entry: str) -> dict[str, Any] | None:
        """The means over an entry's held-out examples, as `Meter.means` gives them; None if it has no targets.

        Every evaluation has the random numbers of step 0, so that only the model differs.
        """
        trainee, ranks, share = self.trainee, self.trainee.ranks, self.run_progress.share
        micros = list(self.run.data.held_out(entry))
        if ranks.sharded:
            micros = micros[: int(ranks.least(len(micros)))]
        meter, carries, weights = Meter(trainee.single_objective), Carries(), trainee.model.weights(entry, share)
        # The metric is measured in fp32; then the states of these rows are remembered.
        by_metric = self.run.selection is not None and self.run.selection.measure is not None
        precision = "fp32" if by_metric and not ranks.sharded else trainee.precision
        for micro in micros:
            meter.add_losses(trainee.forward(
                trainee.model, entry, micro, step=0, share=share, first_row=micro.first_row, carries=carries, precision=precision
            ))
            meter.add_step(self.run_progress.step, None, StepTotals(trainee.model.count(entry, micro.batch)), weights)
        meter.add_ranks(ranks)
        return meter.means(ranks) if any(meter.targets.values()) else None

    def _write_samples(self) -> None:
        """Write what a report shows of the model, such as filled masks. All ranks make the samples, the first writes."""
        samples = None if self.run.samples is None else self.run.samples(self.run_progress.step)
        if samples:
            self.events.write("samples", self.run_progress.step, **samples)

    def _record_dev(self, metrics: Metrics | None) -> float | None:
        """Record the `metrics` of a run that chooses among its checkpoints: a `dev` event, and the deciding metric as a loss.

        None if the run does not choose, or chooses by the held-out losses that are measured already.
        """
        selection, step = self.run.selection, self.run_progress.step
        if selection is None:
            return None
        if metrics is None:
            self.selection_state.add(step, {selection.metric: self.by_objective.get(selection.metric, math.nan)})
            return None
        self.selection_state.add(step, metrics)
        record = self.events.write("dev", step, **self.run_progress.spent_now(), metrics=dict(metrics))
        if record is not None:
            self.events.line.show_dev(record, self.events.say)
        return selection.loss(metrics)


def weights_of(entries: Collection[str], odds: Mapping[str, float] | None) -> dict[str, float]:
    """How much the loss of each entry of a mixture weighs in the loss of all: 1 where every step has them all, else (with `odds`)
    its share of the steps."""
    if odds is None:
        return dict.fromkeys(entries, 1.0)
    total = sum(odds[entry] for entry in entries)  # 0 in a phase that trains only entries without held-out examples
    return {entry: odds[entry] / total if total else 1 / len(entries) for entry in entries}
