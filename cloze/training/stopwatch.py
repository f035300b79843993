"""The seconds of training, counted on when a run resumes."""

from __future__ import annotations

import time

from cloze.training.schedule.budget import Spent


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
