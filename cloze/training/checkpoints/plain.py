"""The files that a run itself writes: never opened through a symbolic link, never a pipe or a device.

A failure to write, such as that of a full disk, is a plain error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloze.errors import CheckpointError, RunError


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Around what writes into a run folder: an `OSError`, such as that of a full disk, becomes a `RunError`."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror or error}.") from error


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of an ordinary file, made if `flags` say so.

    A run folder may come from another person. Through a link with the name of a file that a run writes, the run would overwrite
    another file: that is a `CheckpointError`, as is anything else that is not an ordinary file.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _refused(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path)
    return descriptor


def _refused(path: Path) -> CheckpointError:
    kind = "a symbolic link" if path.is_symlink() else "no ordinary file"
    return CheckpointError(f"{path}: is {kind}, where a run keeps a file of its own. Remove it, or choose another --out.")
