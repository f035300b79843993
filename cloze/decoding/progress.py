"""Progress: what is done, how fast, how long it will take. From the third second on, a line that is rewritten. In a file, there
are new lines instead: the first after half a minute, later ones less and less often."""

from __future__ import annotations

import time
from typing import TextIO

from cloze.display import choose_display, duration

_RARELY = 30.0  # seconds between two lines of a file, or a tenth of the time so far


class DecodingProgress:
    """Counts work of `total` units; used as a context manager, and called with the number of units just done.

    >>> with DecodingProgress(3, "texts") as progress:
    ...     progress(3)
    """

    def __init__(self, total: int, unit: str, stream: TextIO | None = None) -> None:
        self.total, self.unit = total, unit
        self.display = choose_display(stream)
        self.done = 0
        self.started = self.shown = time.monotonic()

    def __enter__(self) -> DecodingProgress:
        return self

    def __call__(self, done: int, note: str = "") -> None:
        """Add `done` units; `note` is shown after the figures."""
        self.done += done
        now = time.monotonic()
        pause = 0.2 if self.display.live else max(_RARELY, (now - self.started) / 10)
        if now - self.started < 2.0 or now - self.shown < pause:
            return
        self.shown = now
        rate = self.done / (now - self.started)
        left = (self.total - self.done) / rate if rate else 0.0
        line = f"{self.done:,} of {self.total:,} {self.unit}, {rate:,.0f}/s, {duration(left)} left{note}"
        self.display.show(line, self.done / max(self.total, 1))

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        self.display.clear()

    def __exit__(self, *exception: object) -> None:
        self.clear()
