"""Standard input and the pipes of a shell, copied to disk: readers look at a file more than once, and a pipe gives its bytes
once."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import weakref
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, cast

STDIN = "-"
_OF_SHELLS = ("/dev/", "/proc/")  # where `<(…)` and /dev/stdin are


def open_pipe(path: Path | str) -> IO[bytes] | None:
    """The bytes of standard input (`-`) or of a shell's pipe, such as `<(zcat A.gz)`, from their beginning, as often as they are
    asked for; None for other files."""
    if str(path) == STDIN:
        copy = _copy_of_input(sys.stdin.buffer)
    elif str(path).startswith(_OF_SHELLS) and Path(path).is_fifo():
        copy = _copy_of_pipe(str(path), os.stat(path).st_ino)
    else:
        return None
    return cast(IO[bytes], io.BufferedReader(_CopyReader(copy)))


class _Copy:
    """The bytes of a stream in a file without a name, which is closed with the object."""

    def __init__(self, stream: IO[bytes]) -> None:
        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(stream, file, 1 << 20)
            file.flush()
            self.size = file.tell()
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)


@lru_cache(maxsize=1)
def _copy_of_input(stream: IO[bytes]) -> _Copy:
    return _Copy(stream)


@lru_cache(maxsize=8)
def _copy_of_pipe(path: str, number: int) -> _Copy:
    """A copy of the pipe of this number, which no other pipe has."""
    with open(path, "rb") as stream:
        return _Copy(stream)


class _CopyReader(io.RawIOBase):
    """A copy from its beginning. Each reader of a copy has an offset of its own."""

    def __init__(self, copy: _Copy) -> None:
        self._copy, self._offset = copy, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._offset = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._copy.size}[whence] + offset
        return self._offset

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._copy.descriptor, len(buffer), self._offset)
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)
