"""What is due after a step: a log event, an evaluation, a checkpoint."""

from __future__ import annotations

import math

from cloze.training.run import Run
from cloze.training.run_progress import RunProgress

_LOG_SHARE, _CHECKPOINT_SHARE = 1 / 500, 1 / 10


class Due:
    """Decides what is due, from the shares of the budget spent `before` a step and after it (`share`).

    `evaluated` and `saved` are the steps of the last evaluation and the last checkpoint of this process; -1 before
    the first.
    """

    def __init__(self, run: Run, run_progress: RunProgress) -> None:
        self.training, self.selection, self.run_progress = run.training, run.selection, run_progress
        self.evaluated = self.saved = -1
        self._saved_at = run_progress.progress.spent.seconds  # seconds of training, as all ranks know them

    def log(self, before: float, share: float) -> bool:
        """Whether a log event is due; the first step always logs."""
        return self.run_progress.step == 1 or self._due(before, share, self.training.log_every, _LOG_SHARE)

    def evaluation(self, before: float, share: float) -> bool:
        """Whether an evaluation is due; the end of the budget has its own."""
        every = self.training.evaluate_every
        if isinstance(every, str):  # an epoch
            return share < 1 and self.run_progress.new_epoch
        return share < 1 and self._due(before, share, None, every)

    def checkpoint(self, before: float, share: float) -> bool:
        """Whether a checkpoint is due: by cadence, by the clock, or because this step is among `keep_steps`."""
        if share >= 1:  # the end of the budget has its own
            return False
        steps, seconds = self.training.checkpoint_every, self.training.checkpoint_seconds
        if self.run_progress.step in self.training.keep_steps:
            return True
        if seconds is not None and self.run_progress.progress.spent.seconds - self._saved_at >= seconds:
            return True
        if steps is None and self.selection is not None:
            return self.evaluation(before, share)
        if steps is None and seconds is not None:
            return False
        return self._due(before, share, steps, _CHECKPOINT_SHARE)

    def _due(self, before: float, share: float, steps: int | None, part: float) -> bool:
        """Whether the step is a multiple of `steps`; if those are None, whether the share has passed one of `part`."""
        if steps is not None:
            return self.run_progress.step % steps == 0
        return part > 0 and math.floor(share / part) > math.floor(before / part)

    def record_evaluation(self) -> None:
        """This step has been evaluated."""
        self.evaluated = self.run_progress.step

    def record_checkpoint(self) -> None:
        """This step has been saved."""
        self.saved, self._saved_at = self.run_progress.step, self.run_progress.progress.spent.seconds
