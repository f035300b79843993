"""Which evaluation was the best so far, and whether the run still waits for a better one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.selection import Metrics, Selection, SelectionStanding


class SelectionState:
    """The standing of a run that chooses among its checkpoints by `selection`; None: it does not choose.

    `saved` is the state of the checkpoint that the run continues from. `outputs` are those of the dev rows at the evaluation of
    the resulting checkpoint; empty if an earlier process measured it.
    """

    def __init__(
        self, selection: Selection | None, checkpoints: Checkpoints, saved: Mapping[str, Any] | None = None
    ) -> None:
        self.selection, self.checkpoints = selection, checkpoints
        self.standing: SelectionStanding | None = None
        self.outputs: Mapping[str, Any] = {}
        self._set(SelectionStanding.from_json((saved or {}).get("standing")))

    @property
    def over(self) -> bool:
        """Whether the metric has not improved for `patience` evaluations."""
        return self.selection is not None and self.selection.ends(self.standing)

    def add(self, step: int, metrics: Metrics) -> None:
        """Record the metrics of an evaluation. The run must have a selection."""
        if self.selection is not None:
            self._set(self.selection.after(self.standing, step, metrics))
            if self.is_best(step) or not self._keeps_best:
                self.outputs = self.selection.outputs()

    def is_best(self, step: int) -> bool:
        """Whether this step is the best so far of a run that keeps its best checkpoint."""
        return self._keeps_best and self.standing is not None and self.standing.step == step

    def describe(self, step: int) -> str:
        """A line about the checkpoint in the folder, if a held-out loss has chosen another one than that of `step`."""
        selection, standing = self.selection, self.standing
        if selection is None or selection.measure is not None or standing is None or standing.step == step:
            return ""
        loss = f"{selection.metric} {standing.metrics[selection.metric]:.4f}"
        return f"\n  the folder holds the checkpoint of step {standing.step:,}, with the lowest held-out loss: {loss}"

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint holds of this."""
        return {"standing": None if self.standing is None else self.standing.to_json()}

    @property
    def _keeps_best(self) -> bool:
        return self.selection is not None and self.selection.best

    def _set(self, standing: SelectionStanding | None) -> None:
        self.standing = standing
        if standing is not None and self._keeps_best:
            self.checkpoints.keep_best(standing.step)
