"""One line of progress for work that is not training: drawn anew at a terminal, silent elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def reading_corpus() -> Iterator[Callable[[int, int | None], None]]:
    """A function (bytes done, bytes in all) that shows how far a corpus has been read, at most ten times a second."""
    shown, started, last = sys.stderr.isatty(), time.perf_counter(), 0.0

    def progress(done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        if not shown or now - last < 0.1:
            return
        last = now
        speed = done / max(now - started, 1e-3)
        left = f", {(total - done) / max(speed, 1.0):,.0f} s left" if total else ""
        of = f" of {total / 1e6:,.0f}" if total else ""
        sys.stderr.write(f"\r\x1b[Kreading the corpus: {done / 1e6:,.0f}{of} MB, {speed / 1e6:,.1f} MB/s{left}")
        sys.stderr.flush()

    try:
        yield progress
    finally:
        if shown and last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
