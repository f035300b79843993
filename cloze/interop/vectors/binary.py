"""word2vec's binary file: a first line with the two sizes, then each word, a space and its numbers as float32."""

from __future__ import annotations

import mmap
from typing import IO

import numpy as np

from cloze.errors import CheckpointError
from cloze.interop.vectors.spellings import Spellings
from cloze.interop.vectors.text import check_sizes, left_out, sizes_of, writable
from cloze.interop.vectors.vectors import Vectors, refuse_infinite, refuse_repeated

_LONGEST = 4096  # bytes of a word; word2vec.c itself cuts at 99


def read_binary(data: bytes | mmap.mmap, path: str, *, repeated: str = "refuse") -> Vectors:
    """Read vectors from the bytes of a file, with or without the line feed that word2vec.c puts after each vector.

    Faults are `CheckpointError`s: sizes that do not fit the file, a truncated file, numbers that are not finite, repeated words.
    The numbers are copied, because they lie between words of different lengths.
    """
    end = data.find(b"\n", 0, 64)
    sizes = sizes_of(data[: max(0, end)])
    if sizes is None:
        raise CheckpointError(f"{path}: does not begin with the two sizes of word2vec's binary file. Copy the file again.")
    check_sizes(*sizes, path)
    rows, width = sizes
    if rows * (4 * width + 2) > len(data):
        raise CheckpointError(_too_short(path, rows, width, len(data)))
    matrix = np.empty((rows, width), np.float32)
    spelled: list[bytes] = []
    position = end + 1
    for row in range(rows):
        space = data.find(b" ", position, position + _LONGEST)
        word = data[position:space].lstrip(b"\r\n") if space >= 0 else b""
        if space + 1 + 4 * width > len(data) or (space < 0 and len(data) - position < _LONGEST):
            raise CheckpointError(_too_short(path, rows, width, len(data), row))
        if not word or min(word) < 32:
            raise CheckpointError(
                f"{path}: no word where row {row + 1} of {rows:,} should begin (byte {position:,}).\n"
                f"  The first line says vectors of {width} numbers; the file has others, or it is damaged: copy it again."
            )
        spelled.append(word)
        position = space + 1 + 4 * width
        matrix[row] = np.frombuffer(data, "<f4", width, space + 1)
    rest = len(data) - position
    if data[position : position + 64].strip():
        raise CheckpointError(
            f"{path}: the first line says {rows:,} words of {width} numbers, and {rest:,} bytes follow after them.\n"
            f"  The first line is wrong, or two files were put together: copy the file again."
        )
    spellings = Spellings()
    spellings.add(spelled)
    words = spellings.words(path)
    refuse_infinite(matrix, words, path)
    words, matrix, _ = refuse_repeated(words, matrix, path, repeated)
    return Vectors(words, matrix, path)


def write_binary(file: IO[bytes], vectors: Vectors) -> list[str]:
    """Write what word2vec.c writes with `-binary 1`. Returns remarks: words with white space in them are left out."""
    rows = writable(vectors)
    file.write(b"%d %d\n" % (len(rows), vectors.width))
    for row in rows:
        file.write(vectors.words[row].encode() + b" " + vectors.matrix[row].astype("<f4").tobytes() + b"\n")
    return left_out(vectors, len(rows))


def _too_short(path: str, rows: int, width: int, size: int, row: int | None = None) -> str:
    where = "" if row is None else f" inside row {row + 1}"
    return (
        f"{path}: the first line says {rows:,} words of {width} numbers, but the file ends{where} after {size:,} bytes.\n"
        f"  It is cut off, or its first line is wrong: copy the file again."
    )
