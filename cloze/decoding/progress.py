"""Progress: what is done, how fast, how long it will take. On a terminal it is one line, from the third second on; in a file a
further line, first after half a minute and then ever more rarely."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_RARELY = 30.0  # seconds between two lines of a file, or a tenth of the time so far


class DecodingProgress:
    """Counts work of `total` units; used as a context manager, and called with the number of units just done.

    >>> with DecodingProgress(3, "texts") as progress:
    ...     progress(3)
    """

    def __init__(self, total: int, unit: str, stream: TextIO | None = None) -> None:
        self.total, self.unit = total, unit
        self.stream = stream or sys.stderr
        self.done = 0
        self.started = self.shown = time.monotonic()
        self.width = 0

    def __enter__(self) -> DecodingProgress:
        return self

    def __call__(self, done: int, note: str = "") -> None:
        """Add `done` units; `note` is shown after the figures."""
        self.done += done
        now = time.monotonic()
        terminal = self.stream.isatty()
        pause = 0.2 if terminal else max(_RARELY, (now - self.started) / 10)
        if now - self.started < 2.0 or now - self.shown < pause:
            return
        self.shown = now
        rate = self.done / (now - self.started)
        left = (self.total - self.done) / rate if rate else 0.0
        text = f"  {self.done:,} of {self.total:,} {self.unit}, {rate:,.0f}/s, {duration(left)} left{note}"
        if terminal:
            self._write(text)
        else:
            print(text.strip(), file=self.stream, flush=True)

    def _write(self, text: str) -> None:
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self.width:
            self._write("")
            self.stream.write("\r")
            self.width = 0

    def __exit__(self, *exception: object) -> None:
        self.clear()


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"
