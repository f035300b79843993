"""Arrays into files by the file's own `write`.

numpy writes the memory of an array with the C library, and if the disk is full, its error has no number (`errno`), only words.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Writer(NamedTuple):
    """A file of which numpy knows only that it can write."""

    write: Callable[[bytes], Any]


def write_values(file: IO[bytes] | Path, values: NDArray[Any]) -> None:
    """Write the values of an array, as `values.tofile(file)` does."""
    if isinstance(file, Path):
        with file.open("wb") as stream:
            write_values(stream, values)
        return
    file.write(np.ascontiguousarray(values).data)


def save_array(file: IO[bytes], values: NDArray[Any]) -> None:
    """Write an array in the format of `.npy` files, as `np.save(file, values)` does."""
    np.save(_Writer(file.write), values)
