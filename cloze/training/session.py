"""The session of a run: its parts, each with its own part of the state, and what is done with them between updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloze.training.distribution import Ranks
from cloze.training.due import Due
from cloze.training.evaluation.evaluations import Evaluations
from cloze.training.evaluation.learning_check import LearningCheck
from cloze.training.evaluation.selection_state import SelectionState
from cloze.training.events import Events
from cloze.training.hardware import allocator_hint, environment, keep_memory, matrix_rate
from cloze.training.meter import Meter
from cloze.training.run import Run, check_folder, read_run_record
from cloze.training.run_progress import RunProgress
from cloze.training.saving import Saver
from cloze.training.trainee import Trainee


class Session:
    """A run in progress on this rank. `stopping`: a signal has come on some rank."""

    def __init__(self, run: Run, ranks: Ranks) -> None:
        self.run, self.ranks = run, ranks
        check_folder(run, read_run_record(run.folder))
        self.events = Events(run, first=ranks.first)
        self.saver = Saver(run, ranks, say=self.events.say)
        saved = self.saver.load()
        state = None if saved is None else saved.state
        memory_kept = ranks.device.type == "cpu" and keep_memory()
        self.trainee = Trainee(run, ranks)
        if saved is None:
            self.trainee.model.begin_averages()
        else:
            self.saver.restore(saved, self.trainee)
        self.selection_state = SelectionState(run.selection, self.saver.checkpoints, state)
        self.run_progress = RunProgress(run, self.trainee.model, first=ranks.first, saved=state)
        self.learning_check = LearningCheck(run, state)
        parts = self.trainee, self.run_progress, self.events, self.selection_state, self.learning_check
        self.evaluations = Evaluations(run, *parts, saved=state)
        self.due = Due(run, self.run_progress)
        self.matrix_rate = matrix_rate(ranks.device, self.trainee.precision)  # FLOP/s of this rank
        self.meter = Meter(self.trainee.single_objective)
        self.stopping = False
        try:
            self._open(resumed=saved is not None, hint=None if memory_kept else allocator_hint(ranks.device))
        except BaseException:
            self.close()
            raise

    def _open(self, *, resumed: bool, hint: str | None) -> None:
        """Open the log, and write the checkpoint of step 0 or publish the last one again."""
        machine = environment(self.ranks.device, self.trainee.precision)
        machine |= {"matrix_rate": self.matrix_rate, "ranks": self.ranks.world}
        self.events.open(self.run_progress, machine, resumed=resumed)
        if resumed:
            self.saver.publish_last()
            self.events.say_resumed(self.run_progress, stalled=self.selection_state.over)
            return
        if hint is not None:
            self.events.say(hint)
        if self.run.selection is not None and self.run.selection.start is not None:
            self.evaluate()
        self.checkpoint()

    @property
    def over(self) -> bool:
        """Whether the run ends here: by its budget, by patience or by a signal."""
        return self.run_progress.reached or self.selection_state.over or self.stopping

    def enter_phase(self) -> None:
        """Apply what the share spent has reached: frozen depth groups, and the values of the phase."""
        run_progress = self.run_progress
        self.trainee.freezing.enter(epochs=run_progress.progress.spent.epochs, share=run_progress.share)
        run_progress.enter_phase()

    def agree_to_step(self, seconds: float, *, stop: bool) -> bool:
        """Whether the coming step may be done, by the seconds of training and the signals that all ranks agree on."""
        self.run_progress.set_seconds(seconds)
        self.stopping = stop
        return not stop and not self.run_progress.reached

    def after_update(self, before: float, share: float, sync_parameters: Callable[[], None] = lambda: None) -> None:
        """Do what is due after the share spent has gone from `before` to `share`.

        `sync_parameters` first brings the parameters up to date if an engine holds newer ones.
        """
        self.trainee.observe()
        self.run.require_undamaged_text()
        if self.due.log(before, share):
            self.write_log()
        evaluating, saving = self.due.evaluation(before, share), self.due.checkpoint(before, share)
        if evaluating or saving:
            sync_parameters()
        if evaluating:
            self.evaluate()
            self.evaluations.warn(share)
            saving |= self.selection_state.is_best(self.run_progress.step)
        if saving:
            self.checkpoint(background=True)

    def write_log(self) -> None:
        """Write a `train` event: means over the steps since the last one. A collective: all ranks must call it."""
        if not self.meter.targets:
            return
        self.meter.check()
        means, step = self.meter.means(self.ranks), self.run_progress.step
        if step == 1:
            self.learning_check.add_first(means["objectives"])
        record = self.events.write(
            "train", step, **self.run_progress.spent_now(), **means, learning_rate=self.trainee.learning_rate,
            **self.meter.speed(self.matrix_rate * self.ranks.world),
        )
        if record is not None:
            self.learning_check.add_metrics(means["metrics"])
            self.events.line.show(record, self.learning_check.baselines)
        self.meter.clear()

    def evaluate(self, *, observed: bool = True) -> None:
        """Write a `train` event and the events of `Evaluations.measure`. A collective."""
        self.write_log()
        self.evaluations.measure(observed=observed)
        self.due.record_evaluation()
        self.meter.clear()  # the time of an evaluation is not training time

    def checkpoint(self, *, background: bool = False) -> None:
        """Write a checkpoint of this step, on rank 0, at once or in the `background`; all fail together. A collective."""
        self.write_log()
        self.meter.check()
        self.run.require_undamaged_text()
        self.saver.save(self._state(), self.trainee, background=background)
        self.due.record_checkpoint()
        self.meter.clear()  # the time of writing a checkpoint is not training time

    def _state(self) -> dict[str, Any]:
        """The record of a checkpoint, without the checksums of its files."""
        run, run_progress = self.run, self.run_progress
        return {
            "step": run_progress.step, **run_progress.to_json(), "seed": run.seed, "budget": str(run.budget),
            "recipe_hash": run.identity.recipe_hash, **self.evaluations.to_json(), "ranks": self.ranks.world,
            **self.selection_state.to_json(), **self.learning_check.to_json(),
        }

    def close(self) -> None:
        """Close the log, keep the progress line, and let a checkpoint that is being written become whole."""
        self.saver.close()
        self.events.close()
