"""Vectors as text: word2vec's and fastText's (a first line with the two sizes) and GloVe's (rows alone)."""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError
from cloze.interop.vectors.spellings import Spellings
from cloze.interop.vectors.vectors import Matrix, Vectors, refuse_infinite, refuse_repeated

_ROWS = 4096  # parsed together
_WIDEST = 1 << 20  # numbers of a vector; more is a damaged first line
_DIGITS = 30  # of a size; Python refuses to read numbers of more than 4,300


def sizes_of(line: bytes) -> tuple[int, int] | None:
    """The two whole numbers of a first line such as `71290 100`; None if it is something else."""
    fields = line.split()
    if len(fields) != 2 or not all(f.lstrip(b"-+").isdigit() and len(f) <= _DIGITS for f in fields):
        return None
    return int(fields[0]), int(fields[1])


def check_sizes(rows: int, width: int, path: str) -> None:
    """Raise a `CheckpointError` for impossible sizes."""
    if not (rows > 0 and 0 < width <= _WIDEST):
        raise CheckpointError(
            f"{path}:1: the first line says {rows} words of {width} numbers; expected two numbers above 0, such as "
            f"`71290 100`.\n  Copy the file again, or correct its first line."
        )


def read_text(stream: IO[bytes], path: str, *, repeated: str = "refuse") -> Vectors:
    """Read vectors from text, whose first line gives the sizes (word2vec, fastText) or is a row already (GloVe).

    A row is a word and its numbers, separated by spaces or a tab; a word may contain spaces itself (GloVe's 840B has some).
    Faults are `CheckpointError`s with the line: sizes that do not fit, ragged rows, values that are not finite numbers, repeated
    words. Words that are not UTF-8 are spelled as `Spellings` says.
    """
    start = stream.readline().removeprefix(codecs.BOM_UTF8)
    sizes = sizes_of(start)
    if sizes is not None:
        check_sizes(*sizes, path)
        rows, width = sizes
        lines: Iterator[bytes] = iter(stream)
    else:
        rows, width = -1, _width_of(start, path)
        lines = _again(start, stream)
    first = 1 if sizes is None else 2
    words, matrix = _rows(lines, path, width, first, headed=sizes is not None)
    if sizes is not None and len(words) != rows:
        raise CheckpointError(
            f"{path}:1: the first line says {rows:,} words, {len(words):,} follow.\n"
            f"  If the file is whole, its first line should be `{len(words)} {width}`; else copy it again."
        )
    refuse_infinite(matrix, words, path)
    words, matrix, _ = refuse_repeated(words, matrix, path, repeated, unit="line", first=first)
    return Vectors(words, matrix, path)


def write_text(file: IO[bytes], vectors: Vectors, *, header: bool = True) -> list[str]:
    """Write a row per word, with the sizes first unless `header` is off (GloVe). Nine digits: reading gives the same floats.

    Returns remarks: words with white space in them are left out, because no reader could tell them from their numbers.
    """
    rows = writable(vectors)
    if header:
        file.write(b"%d %d\n" % (len(rows), vectors.width))
    form = " %.9g" * vectors.width + "\n"
    for row in rows:
        file.write((vectors.words[row] + form % tuple(vectors.matrix[row].tolist())).encode())
    return left_out(vectors, len(rows))


def writable(vectors: Vectors) -> list[int]:
    """The rows of the words without white space."""
    return [row for row, word in enumerate(vectors.words) if word and not any(map(str.isspace, word))]


def left_out(vectors: Vectors, count: int) -> list[str]:
    """A remark on words that a format cannot hold."""
    lost = len(vectors) - count
    return [f"{lost:,} words with white space in them were left out: this format has no place for them."] if lost else []


def _again(start: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    yield start
    yield from stream


def _width_of(line: bytes, path: str) -> int:
    """How many numbers follow the word of a first row."""
    fields = line.split()
    width = len(fields) - 1
    if width < 1 or not all(map(_is_number, fields[max(1, len(fields) - 2) :])):
        excerpt = line.decode("utf-8", "backslashreplace").strip()[:60]
        raise CheckpointError(
            f"{path}:1: {excerpt!r} does not begin a file of vectors; expected the two sizes of word2vec's text format "
            "(`71290 100`), or a word and its numbers (GloVe).\n  Give a file of vectors, or correct the first line."
        )
    return width


def _rows(
    lines: Iterator[bytes], path: str, width: int, first: int, headed: bool
) -> tuple[list[str], Matrix]:
    spellings = Spellings()
    matrix = np.empty((0, width), np.float32)
    ended = False
    while block := list(islice(lines, _ROWS)):
        filled = len(block)
        while filled and not block[filled - 1].strip():  # empty lines may stand at the end
            filled -= 1
        words, values = _block(block if ended else block[:filled], path, width, first + len(spellings), headed)
        ended = ended or filled < len(block)
        rows = len(spellings) + len(words)
        if rows > len(matrix):
            matrix.resize((max(2 * len(matrix), rows), width), refcheck=False)
        matrix[rows - len(words) : rows] = values
        spellings.add(words)
    matrix.resize((len(spellings), width), refcheck=False)
    return spellings.words(path, first), matrix


def _block(
    lines: list[bytes], path: str, width: int, first: int, headed: bool
) -> tuple[list[bytes], NDArray[np.float32]]:
    """The words and the numbers (rows, width) of some lines."""
    words, rests = [], []
    for number, line in enumerate(lines, start=first):
        word, _, rest = line.rstrip(b" \t\r\n").partition(b" ")
        if not word or rest.count(b" ") != width - 1 or b"\t" in word:
            word, rest = _divided(line, path, number, width, headed)
        words.append(word)
        rests.append(rest)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an unreadable number is a warning in some versions of numpy
            values = np.fromstring(b" ".join(rests), np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        values = np.empty(0, np.float32)
    if len(values) != len(lines) * width:
        values = np.array([_numbers(rest, path, first + i) for i, rest in enumerate(rests)], np.float32)
    return words, values.reshape(len(lines), width)


#: An element of a sparse vector, such as `9:0.0221`.
_SPARSE = re.compile(rb"\d+:[-+.\deE]+").fullmatch


def _divided(line: bytes, path: str, number: int, width: int, headed: bool) -> tuple[bytes, bytes]:
    """Word and numbers of a row that is not plainly `word number number …`."""
    fields = line.replace(b"\t", b" ").rstrip(b" \r\n").split(b" ")
    numbers = [f for f in fields[1:] if f]
    if fields[0] and len(numbers) == width:
        return fields[0], b" ".join(numbers)
    spaced = len(numbers) > width and not all(map(_is_number, numbers[:-width]))
    if fields[0] and spaced and all(map(_is_number, numbers[-width:])):
        return b" ".join(fields[: len(fields) - width]), b" ".join(numbers[-width:])
    if not line.strip():
        raise CheckpointError(f"{path}:{number}: an empty line; expected a word and {width} numbers. Copy the file again.")
    if numbers and all(map(_SPARSE, numbers)):
        raise CheckpointError(
            f"{path}:{number}: {numbers[0].decode()!r} is an index and a value: this file holds sparse vectors. Expected a "
            f"word and all its {width} numbers. Take dense vectors of the same words, such as those of SVD or SGNS."
        )
    contents = "no word" if not fields[0] else f"{fields[0].decode('utf-8', 'backslashreplace')!r} with {len(numbers)} numbers"
    source = "as the first line says" if headed else "as in the first line"
    if headed and number == 2:
        raise CheckpointError(
            f"{path}:2: {contents}; the first line says {width} numbers for each word.\n"
            f"  If the rows are right, correct the second number of the first line; else copy the file again."
        )
    raise CheckpointError(
        f"{path}:{number}: {contents}; expected a word and {width} numbers, {source}.\n"
        f"  A cut off or damaged row: copy the file again, or take the row out."
    )


def _numbers(rest: bytes, path: str, number: int) -> list[float]:
    numbers = []
    for field in rest.split(b" "):
        if not _is_number(field):
            raise CheckpointError(
                f"{path}:{number}: {field.decode('utf-8', 'backslashreplace')[:40]!r} is not a number; expected a word "
                f"and its numbers.\n  A damaged row: copy the file again, or take the row out."
            )
        numbers.append(float(field))
    return numbers


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
