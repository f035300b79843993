"""A progress line for work other than training: redrawn in a terminal, silent elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cloze.errors import Say

Progress = Callable[[int, "int | None"], None]


@contextmanager
def reading_corpus(say: Say) -> Iterator[tuple[Say, Progress]]:
    """Two functions to use while a corpus is read: one prints whole lines, one updates the progress line (bytes done, total
    bytes).

    The line shows how much of the corpus has been read, at most ten times a second; whole lines replace it.
    """
    live, started, last, visible = sys.stderr.isatty(), time.perf_counter(), 0.0, False

    def clear() -> None:
        nonlocal visible
        if visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            visible = False

    def tell(line: str) -> None:
        clear()
        say(line)

    def progress(done: int, total: int | None) -> None:
        nonlocal last, visible
        now = time.perf_counter()
        if not live or now - last < 0.1:
            return
        last, visible = now, True
        speed = done / max(now - started, 1e-3)
        left = f", {max(total - done, 0) / max(speed, 1.0):,.0f} s left" if total else ""
        of = f" of {_size(total)}" if total else ""
        sys.stderr.write(f"\r\x1b[Kreading the corpus: {_size(done)}{of}, {_size(speed)}/s{left}")
        sys.stderr.flush()

    try:
        yield tell, progress
    finally:
        clear()


def _size(count: float) -> str:
    """Bytes as text.

    >>> _size(2_340), _size(45_600_000)
    ('2.3 kB', '45.6 MB')
    """
    return f"{count / 1e3:,.1f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"
