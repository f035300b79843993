"""Whether a run learns anything: its losses next to those of predictions that need no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cloze.training.baselines import baselines_from, not_learning, with_measured
from cloze.training.run import Run


class LearningCheck:
    """The baselines of a run, and one warning after a third of the budget if no loss is better than they are.

    Losses and baselines are by the objectives' names in the log. `saved` is the state of the checkpoint that the run continues
    from, so that a run which was interrupted warns as one that was not.
    """

    def __init__(self, run: Run, saved: Mapping[str, Any] | None = None) -> None:
        self.run = run
        fresh: dict[str, Any] = {"measured": {}, "first": {}, "done": False}
        state: Mapping[str, Any] = fresh if saved is None else saved["learning_check"]
        self.baselines = baselines_from(state["measured"]) | dict(run.baselines)
        self._first_losses: dict[str, float] = dict(state["first"])
        self._done: bool = state["done"]

    def add_first(self, losses: Mapping[str, float]) -> None:
        """Record the training losses of the first step of a run."""
        self._first_losses = dict(losses)

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add the baselines of objectives whose targets are made during the step."""
        self.baselines = with_measured(self.baselines, metrics)

    def due(self, share: float) -> bool:
        """Whether the next `warning` needs held-out losses."""
        return not self._done and share >= 1 / 3

    def warning(self, held_out: Mapping[str, float], *, share: float, updates: int, learning_rate: float) -> str | None:
        """A message, once, if after a third of the budget nothing has been learned by these held-out losses."""
        if not self.due(share):
            return None
        self._done = True
        rising = learning_rate < self.run.rate(min(share + 0.02, 1.0), self.run.training.nominal_steps)
        return not_learning(
            self.baselines, held_out, share=share, updates=updates, warmed_up=not rising,
            labels=self.baselines.keys() - self.run.baselines.keys(),  # whose targets the step makes: which tokens were replaced
            first=self._first_losses,
        )

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint holds of this."""
        measured = {name: asdict(baseline) for name, baseline in self.baselines.items() if name not in self.run.baselines}
        return {"learning_check": {"measured": measured, "first": self._first_losses, "done": self._done}}

    def compare(self, held_out: Mapping[str, float]) -> str:
        """A line for each of these losses that has baselines."""
        return "".join(
            f"\n  {name} {loss:.3f}: {self.baselines[name].describe(loss)}"
            for name, loss in held_out.items() if name in self.baselines
        )
