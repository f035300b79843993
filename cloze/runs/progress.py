"""A progress line for work other than training: redrawn in a terminal or a notebook, silent elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cloze.display import choose_display
from cloze.errors import Say

Progress = Callable[[int, "int | None"], None]


@contextmanager
def reading_corpus(say: Say) -> Iterator[tuple[Say, Progress]]:
    """Two functions to use while a corpus is read: one prints whole lines, one updates the progress line (bytes done, total
    bytes).

    The line shows how much of the corpus has been read, at most ten times a second; whole lines replace it.
    """
    display, started, last = choose_display(), time.perf_counter(), 0.0

    def tell(line: str) -> None:
        display.clear()
        say(line)

    def progress(done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        if not display.live or now - last < 0.1:
            return
        last = now
        speed = done / max(now - started, 1e-3)
        left = f", {max(total - done, 0) / max(speed, 1.0):,.0f} s left" if total else ""
        of = f" of {_size(total)}" if total else ""
        display.show(f"reading the corpus: {_size(done)}{of}, {_size(speed)}/s{left}", done / total if total else None)

    try:
        yield tell, progress
    finally:
        display.clear()


def _size(count: float) -> str:
    """Bytes as text.

    >>> _size(2_340), _size(45_600_000)
    ('2.3 kB', '45.6 MB')
    """
    return f"{count / 1e3:,.1f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"
