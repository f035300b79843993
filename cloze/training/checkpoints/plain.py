"""Opening the files that a run itself writes: never through a symbolic link, never a pipe or a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from cloze.errors import CheckpointError


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
