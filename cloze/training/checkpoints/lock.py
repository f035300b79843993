"""One process at a time in a run folder: two would overwrite each other's checkpoints and mix their logs."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cloze.errors import CheckpointError
from cloze.training.checkpoints.plain import open_plain

LOCK = Path("cloze") / "lock"

_held: dict[Path, tuple[int, int]] = {}  # by folder: the process and the thread that hold its lock


@contextmanager
def alone_in(folder: Path, *, first: bool) -> Iterator[None]:
    """Hold the folder's lock, on the first rank; the lock is re-entrant within a thread.

    The lock is released however the process ends. Raises `CheckpointError` if another process or thread holds it, or
    if the folder cannot be written.
    """
    if not first or holds(folder):
        yield
        return
    path, me = folder.resolve(), (os.getpid(), threading.get_ident())
    with _locked(folder) as held:
        held.truncate(0)
        held.write(f"pid {os.getpid()}")
        held.flush()
        _held[path] = me
        try:
            yield
        finally:
            del _held[path]


def holds(folder: Path) -> bool:
    """Whether this thread holds the folder's lock."""
    return _held.get(folder.resolve()) == (os.getpid(), threading.get_ident())


def require_free(folder: Path) -> None:
    """Raise the `CheckpointError` of `alone_in` if another process or thread holds the folder's lock; writes nothing."""
    if not holds(folder) and is_held(folder):
        raise _refused(folder, (folder / LOCK).read_text(encoding="utf-8"))


def is_held(folder: Path) -> bool:
    """Whether a process trains in a folder now."""
    try:
        with os.fdopen(open_plain(folder / LOCK, os.O_RDONLY), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, CheckpointError):  # no lock, none that cloze made, or a file system without locks
        pass
    return False


@contextmanager
def _locked(folder: Path) -> Iterator[TextIO]:
    """The folder's lock file, open and locked."""
    path = folder / LOCK
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held = os.fdopen(open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+", encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CheckpointError(f"{folder}: cannot be written: {reason}. Choose another --out.") from None
        with held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.seek(0)
                raise _refused(folder, held.read()) from None
            if not _is_at(held, path):  # its holder removed the folder meanwhile
                continue
            yield held
            return


def _refused(folder: Path, holder: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}: another process ({holder.strip() or 'unknown'}) is training in this folder.\n"
        "  Wait until it has ended, or give this run a folder of its own with --out."
    )


def _is_at(file: TextIO, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        path_stat = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(file.fileno())
    return (here.st_dev, here.st_ino) == (path_stat.st_dev, path_stat.st_ino)
