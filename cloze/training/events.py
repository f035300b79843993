"""What a run tells while it trains: events in its log, and lines in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.training.checkpoints.plain import writing
from cloze.training.log import Log, ProgressLine
from cloze.training.run import Run, write_run_record
from cloze.training.run_progress import RunProgress
from cloze.training.trackers import open_trackers


class Events:
    """The log and the terminal of a run. Only the first rank writes and speaks; the others call the same methods."""

    def __init__(self, run: Run, *, first: bool) -> None:
        self.run, self.first = run, first
        self.line = ProgressLine(verbose=run.verbose)
        self.log: Log | None = None

    def open(self, run_progress: RunProgress, machine: Mapping[str, Any], *, resumed: bool) -> None:
        """Write the record of the run and of its `machine`, open the log, and write its first event.

        A resumed run first drops the events of later steps.
        """
        if not self.first:
            return
        run = self.run
        with writing(run.folder):
            write_run_record(run, machine)
        after = run_progress.step if resumed else None
        trackers = open_trackers(run.training.track, run.folder, run.identity.recipe, after, self.say)
        self.log = Log(run.folder, after=after, trackers=trackers)
        record = self.log.write(
            "resume" if resumed else "start", run_progress.step, budget=str(run.budget),
            baselines={name: baseline.to_json() for name, baseline in run.baselines.items()}, **run_progress.spent_now(),
        )
        self.line.begin(record)

    def say(self, text: str) -> None:
        """Tell the user something, below the progress line."""
        if self.first:
            self.line.display.keep()
            (self.run.say or self.line.display.say)(text)

    def write(self, event: str, step: int, **values: Any) -> dict[str, Any] | None:
        """Append an event to the log and return it; None on ranks that have no log."""
        return None if self.log is None else self.log.write(event, step, **values)

    def say_resumed(self, run_progress: RunProgress, *, stalled: bool) -> None:
        """Say where a run goes on, or why it does not."""
        run, step, share = self.run, run_progress.step, run_progress.share
        if share < 1 and stalled and run.selection is not None:
            self.say(f"{run.folder}: finished at step {step}: no improvement in {run.selection.patience} evaluations.")
        elif share >= 1:
            larger = "a larger --budget" if run.budget.max_epochs is None else f"--budget {2 * run.budget.max_epochs:g}epochs"
            end = run.budget.end(run_progress.progress.spent, name=True)
            self.say(f"{run.folder}: {end}. To continue, give {larger} and --extend.")
        else:
            self.say(f"{run.folder}: continues from step {step} ({share:.1%} of {run.budget.words} spent).")

    def close(self) -> None:
        """Close the log, and end the progress line."""
        self.line.close()
        if self.log is not None:
            self.log.close()
