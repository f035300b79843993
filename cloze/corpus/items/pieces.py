"""Wide rows of a file, read a few together at random places: the features of the items of pictures.

`ItemSet.read` calls `RowFile.read` for arrays whose items are wide. A memory-mapped array would fetch each page when it is
touched, one after another, with neighbours that nobody needs. Here the operating system gets the
places of all pieces of a block before the first one is read (`posix_fadvise`), so it fetches them at the same time.
"""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError

#: The bytes of an item from which on it is read as a piece; narrower arrays are mapped, and many items share a page.
WIDE = 512


class RowFile:
    """A file of rows of `width` numbers of one type. It stays open as long as the object lives; any process may read it."""

    def __init__(self, path: Path, dtype: np.dtype[Any], width: int) -> None:
        self.path, self.dtype, self.width = path, dtype, width
        self._file = os.open(path, os.O_RDONLY)
        self._closing = weakref.finalize(self, os.close, self._file)

    def read(self, start: NDArray[np.int64], count: NDArray[np.int64], most: int) -> NDArray[Any]:
        """The rows `start` to `start + count` of each piece (B,) as (B, `most`, width), padded with 0."""
        rows = np.empty((len(start), most, self.width), self.dtype)
        size = self.width * self.dtype.itemsize
        pieces = list(zip((start * size).tolist(), (count * size).tolist(), strict=True))
        if sys.platform == "linux":
            for offset, length in pieces:
                os.posix_fadvise(self._file, offset, length, os.POSIX_FADV_WILLNEED)
        flat = rows.data.cast("B") if rows.size else memoryview(b"")
        for number, (offset, length) in enumerate(pieces):
            begin = number * most * size
            if length and os.preadv(self._file, [flat[begin : begin + length]], offset) != length:
                raise CorpusError(f"{self.path}: ends before byte {offset + length}; it was changed while it was read.")
            rows[number, length // size :] = 0
        return rows
