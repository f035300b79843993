"""How far a run is in its budget, and which entries and values its next step uses."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.batching import Cursor
from cloze.batching.deck import Deck
from cloze.networks.blocks.dropout import set_dropouts
from cloze.training.run import Run, SavedProgress
from cloze.training.schedule.budget import Spent
from cloze.training.schedule.phases import phase_at
from cloze.training.step import StepModule


class Stopwatch:
    """Counts on from the seconds that are `spent`, once it is started.

    It starts when the first step begins: opening text and compiling kernels take nothing of a budget in seconds.
    """

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self._zero: float | None = None

    def start(self) -> None:
        """Begin to count, unless that has been done."""
        if self._zero is None:
            self._zero = time.perf_counter() - self.spent.seconds

    def now(self) -> float:
        """Seconds of training so far."""
        return self.spent.seconds if self._zero is None else time.perf_counter() - self._zero


class RunProgress:
    """The progress of a run and the phase that it is in.

    `saved` is the state of the checkpoint that the run continues from, `first` whether this is rank 0. `worked`: this
    process has done a step; `new_epoch`: the last step began one.
    """

    def __init__(self, run: Run, model: StepModule, *, first: bool, saved: Mapping[str, Any] | None = None) -> None:
        self.run, self.model, self.first = run, model, first
        if saved is None:
            self.progress = SavedProgress(Spent(seconds=run.setup_seconds), {entry: Cursor() for entry in model.entries})
        else:
            self.progress = SavedProgress.from_json(saved)
            if str(run.budget) != saved["budget"]:  # --extend: shares of the old budget mean nothing under the new one
                self.progress.share = self.share
                self.progress.phase = phase_at(run.phases, self.share)
        self.stopwatch = Stopwatch(self.progress.spent)
        self.worked = self.new_epoch = False
        self._set_phase(self.progress.phase)

    @property
    def step(self) -> int:
        """Steps done."""
        return self.progress.spent.steps

    @property
    def share(self) -> float:
        """Share of the budget spent, equal on all ranks."""
        return self.run.budget.share(self.progress.spent)

    @property
    def reached(self) -> bool:
        """Whether the budget is spent, or the share of it at which the run is to pause; never before the first step."""
        return self.step > 0 and self.share >= self.run.until

    def seconds_now(self) -> float:
        """Seconds of training so far, as rank 0 measures them; 0 on the other ranks, so that the sum is rank 0's."""
        return self.stopwatch.now() if self.first else 0.0

    def set_seconds(self, seconds: float) -> None:
        """Set the seconds of training that all ranks agree on."""
        self.progress.spent.seconds = seconds

    def spend_seconds(self) -> None:
        """Count a budget of time as spent, because nothing is left to learn."""
        if self.run.budget.kind == "seconds":
            self.progress.spent.seconds, self.progress.share = self.run.budget.amount, 1.0

    def entries(self) -> list[str]:
        """The mixture entries of the coming step."""
        return list(self.model.entries) if self.run.mixing == "all" else [self.deck.entry(self.step)]

    def enter_phase(self) -> None:
        """Apply the values of the phase that the share spent has reached; a new length begins a new epoch."""
        phase = phase_at(self.run.phases, self.share)
        while self.progress.phase < phase:
            self.progress.phase += 1
            if self._set_phase(self.progress.phase):
                self.progress.cursors = {
                    entry: Cursor(cursor.epoch + 1, 0) if cursor.row else cursor
                    for entry, cursor in self.progress.cursors.items()
                }

    def _set_phase(self, phase: int) -> bool:
        """Apply the values of a phase; whether the data of an epoch are others now."""
        values = dict(self.run.phases[phase].set) if self.run.phases else {}
        odds = {entry: float(self.run.odds.get(entry, 1.0)) for entry in self.model.entries}
        self.odds = {entry: float(values.get(f"odds.{entry}", usual)) for entry, usual in odds.items()}
        self.deck = Deck(self.odds, seed=self.run.seed)
        if self.run.phases:
            set_dropouts(self.model, self.run.phases[phase].rates)
            for name, positions in self.run.phases[phase].positions.items():
                network: Any = self.model.networks[name]
                network.rotate_by(positions)
        return self.run.data.change(values)

    def advance(
        self, cursors: Mapping[str, Cursor], *, tokens: float, examples: float, flops: float
    ) -> tuple[float, float]:
        """Count a finished step; returns the shares spent before and after it, which decide what is due.

        `cursors` are where the data of the next step begin.
        """
        spent, total = self.progress.spent, sum(self.odds.values())
        epochs_before = spent.epochs
        for entry, after in cursors.items():
            before = self.progress.cursors[entry]
            read = after.epoch - before.epoch + (after.row - before.row) / max(self.run.data.rows_in_epoch(entry), 1)
            spent.epochs = _whole(spent.epochs + read * self.odds[entry] / total)
            self.progress.cursors[entry] = after
        self.new_epoch = math.floor(spent.epochs) > math.floor(epochs_before)
        spent.steps += 1
        spent.tokens += int(tokens)
        spent.examples += int(examples)
        spent.flops += flops
        spent.bytes += tokens * (self.run.bytes_per_token or 0.0)
        self.worked = True
        share_before, self.progress.share = self.progress.share, self.share
        return share_before, self.progress.share

    def spent_now(self) -> dict[str, Any]:
        """What has been spent until this moment, for an event in the log."""
        spent = self.progress.spent
        seconds = self.seconds_now() if self.first else spent.seconds
        share = self.run.budget.share(replace(spent, seconds=seconds))  # with `seconds`, it gives the time left
        return {"tokens": spent.tokens, "seconds": round(seconds, 3), "share": share, "epochs": spent.epochs,
                "flops": spent.flops, "examples": spent.examples}

    def to_json(self) -> dict[str, Any]:
        """The progress as plain values, with rank 0's current time; while training, ranks use the time they agreed on."""
        state = self.progress.to_json()
        state["spent"]["seconds"] = self.seconds_now()
        return state


def _whole(epochs: float) -> float:
    """A sum of small shares; five epochs are not 4.9999999999."""
    nearest = float(round(epochs))
    return nearest if abs(epochs - nearest) < 1e-9 else epochs
