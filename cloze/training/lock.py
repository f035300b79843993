"""One process at a time in a run folder: two would overwrite each other's checkpoints and mix their logs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloze.errors import RunError

LOCK = Path("cloze") / "lock"


@contextmanager
def alone_in(folder: Path, *, first: bool) -> Iterator[None]:
    """Hold the folder's lock, on the first rank. It is let go of however the process ends.

    Raises `RunError` if another process holds it.
    """
    if not first:
        yield
        return
    path = folder / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.seek(0)
            raise RunError(
                f"{folder}: another process ({held.read().strip() or 'unknown'}) is training in this folder.\n"
                "  Wait until it has ended, or give this run a folder of its own with --out."
            ) from None
        held.truncate(0)
        held.write(f"pid {os.getpid()}")
        held.flush()
        yield
