"""fastText's .bin and .ftz files: settings, dictionary, and the matrices of words with n-grams and of answers.

Layout, all little-endian (facebookresearch/fastText: fasttext.cc `saveModel`, args.cc `save`, dictionary.cc `save`,
densematrix.cc `save`): int32 793712314 and version 12; twelve int32 and a double of settings; int32 entries, words, labels;
int64 tokens read and size of the pruning table (-1: none); per entry its bytes, a NUL, int64 count, int8 kind (0 word,
1 label); the pruning table, int32 bucket and row; a byte (is it quantised?), int64 rows and columns, float32 numbers, or a
quantised matrix (`quantised.py`); the same again for the answers.

Files of before 2017 begin with the settings and lack the size of the pruning table and the bytes on quantisation.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError
from cloze.interop.vectors.quantised import read_quantised, write_quantised
from cloze.interop.vectors.spellings import Spellings
from cloze.interop.vectors.subwords import Subwords
from cloze.interop.vectors.vectors import Matrix, Vectors, refuse_infinite, refuse_repeated

MAGIC = 793712314
VERSION = 12
_SETTINGS = struct.Struct("<12id")
_SIZES = struct.Struct("<3iq")
_ROWS = 65536  # written together


@dataclass(frozen=True)
class Settings:
    """The settings in the order of the file. loss: 1 hierarchical softmax, 2 negative sampling, 3 softmax, 4 one vs all;
    model: 1 CBOW, 2 skip-gram, 3 supervised; threshold: of subsampling."""

    width: int
    window: int = 5
    epochs: int = 5
    min_count: int = 5
    negatives: int = 5
    word_ngrams: int = 1
    loss: int = 2
    model: int = 2
    buckets: int = 2_000_000
    shortest: int = 3
    longest: int = 6
    rate_updates: int = 100
    threshold: float = 1e-4


@dataclass(frozen=True)
class FastText:
    """The contents of a .bin file: words, then labels; the counts of both; the number of tokens read; `table`, a row per word and
    per bucket (words + buckets, D); `answers`, the output matrix. A quantised matrix is given as the numbers that it stands for.
    `pruned`: only these buckets (K,) have rows, and those rows (K,), counted from the last word's; None: all have one."""

    settings: Settings
    words: Sequence[str]
    labels: Sequence[str]
    counts: NDArray[np.int64]
    tokens: int
    table: Matrix
    answers: Matrix
    pruned: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def vectors(self, path: str, *, repeated: str = "refuse") -> Vectors:
        """The words with their n-grams, without labels."""
        count = len(self.words)
        refuse_infinite(self.table[:count], self.words, path)
        words, rows, indices = refuse_repeated(self.words, self.table[:count], path, repeated)
        counts = self.counts[:count] if indices is None else self.counts[indices]
        grams = self.settings.longest > 0 and self.pruned is None and len(self.table) > count
        part = Subwords(self.table[count:], self.settings.shortest, self.settings.longest) if grams else None
        return Vectors(words, rows, path, part, counts)


def read_fasttext(data: bytes | mmap.mmap, path: str) -> FastText:
    """Read the bytes of a .bin file; the matrices are views of them, so only the used parts of a mapped file are read.

    Faults are `CheckpointError`s: another version, a quantised model, a file cut off, sizes that do not fit.
    """
    try:
        return _read(data, path)
    except (struct.error, IndexError):
        raise CheckpointError(_cut_off(path, len(data))) from None


class Quantising(NamedTuple):
    """How a .ftz file is quantised: numbers in a piece, if lengths of rows are apart (-qnorm), and if the answers are (-qout)."""

    size: int = 2
    norms: bool = False
    answers: bool = False


def write_fasttext(file: IO[bytes], model: FastText, quantising: Quantising | None = None) -> None:
    """Write a .bin file that fastText and gensim's `load_facebook_model` open, or with `quantising` a .ftz file.

    Only a .ftz file may be pruned; in a .bin file buckets without a row get zeros.
    """
    file.write(struct.pack("<2i", MAGIC, VERSION))
    file.write(_SETTINGS.pack(*astuple(model.settings)))
    entries, pruned = len(model.words) + len(model.labels), model.pruned if quantising is not None else None
    file.write(_SIZES.pack(entries, len(model.words), len(model.labels), model.tokens))
    file.write(struct.pack("<q", -1 if pruned is None else len(pruned[0])))
    for index, word in enumerate([*model.words, *model.labels]):
        file.write(word.encode("utf-8") + b"\0" + struct.pack("<qb", model.counts[index], index >= len(model.words)))
    if quantising is not None:
        if pruned is not None:
            file.write(np.stack(pruned, 1).astype("<i4").tobytes())
        file.write(b"\1")
        write_quantised(file, model.table, size=quantising.size, norms=quantising.norms)
        if quantising.answers:
            file.write(b"\1")
            write_quantised(file, model.answers, norms=quantising.norms)
            return
    else:
        _write_rows(file, len(model.words), model)
    file.write(struct.pack("<b2q", 0, *model.answers.shape) + model.answers.astype("<f4", copy=False).tobytes())


def _write_rows(file: IO[bytes], words: int, model: FastText) -> None:
    """The table whole: a row for every bucket, zeros for those that have none."""
    count = len(model.table) if model.pruned is None else words + model.settings.buckets
    width = model.table.shape[1]
    file.write(struct.pack("<b2q", 0, count, width))
    table = model.table if model.pruned is None else model.table[:words]
    for start in range(0, len(table), _ROWS):
        file.write(table[start : start + _ROWS].astype("<f4", copy=False).tobytes())
    if model.pruned is None:
        return
    buckets, rows = model.pruned
    for start in range(0, model.settings.buckets, _ROWS):
        part = np.zeros((min(_ROWS, model.settings.buckets - start), width), "<f4")
        first, last = np.searchsorted(buckets, [start, start + _ROWS])
        part[buckets[first:last] - start] = model.table[words + rows[first:last]]
        file.write(part.tobytes())


def is_fasttext(start: bytes) -> bool:
    """Whether a file that begins so is fastText's: by its magic number, or, of before 2017, by settings that can be ones."""
    if start[:4] == struct.pack("<i", MAGIC):
        return True
    if len(start) < _SETTINGS.size + _SIZES.size:
        return False
    width, window, _, _, _, _, loss, model, *_ = _SETTINGS.unpack_from(start)
    entries, words, labels, _ = _SIZES.unpack_from(start, _SETTINGS.size)
    return 0 < width < 1 << 16 and 0 < window < 1 << 16 and loss in (1, 2, 3) and model in (1, 2, 3) and entries == words + labels


def as_fasttext(vectors: Vectors, *, answers: Matrix | None = None) -> tuple[FastText, list[str]]:
    """Any vectors as a fastText model, and remarks on invented values.

    Vectors without n-grams get none (`maxn` 0). Without counts, words get decreasing ones that keep their order; without
    `answers` the output matrix is zeros, as in a fresh model: vectors are the same, further training learns it from zero.
    Settings that vectors do not have are fastText's defaults. A word with a NUL is a `CheckpointError`.
    """
    remarks = []
    grams = vectors.subwords
    table = vectors.own if grams is None else np.concatenate((vectors.own, grams.rows))
    counts = vectors.counts
    if counts is None:
        counts = np.arange(len(vectors), 0, -1, dtype=np.int64)
        remarks.append("word counts are not known: the file contains decreasing numbers that keep the order.")
    if answers is None:
        answers = np.zeros((len(vectors), vectors.width), np.float32)
        remarks.append("the output matrix is zeros: the vectors are right, further training from this file learns it from zero.")
    shape = (0, 0, 0) if grams is None else (len(grams.rows), grams.shortest, grams.longest)
    settings = Settings(vectors.width, buckets=shape[0], shortest=shape[1], longest=shape[2])
    if any("\0" in word for word in vectors.words):
        raise CheckpointError(f"{vectors.place}: a word holds a NUL, which ends words in fastText's file. Use another format.")
    counts = np.maximum(counts, 1)
    return FastText(settings, vectors.words, (), counts, int(counts.sum()), table, answers), remarks


def _read(data: bytes | mmap.mmap, path: str) -> FastText:
    magic, version = struct.unpack_from("<2i", data)
    old = magic != MAGIC
    if not old and version not in (11, VERSION):
        raise CheckpointError(
            f"{path}: version {version} of fastText's file; cloze reads versions 11 and {VERSION} (2017 and later).\n"
            f"  Save the model again with a current fastText, or take its .vec file."
        )
    settings = Settings(*_SETTINGS.unpack_from(data, 0 if old else 8))
    if version == 11 and not old and settings.model == 3:  # classifiers of that time had no n-grams, whatever the settings say
        settings = replace(settings, longest=0)
    position = (0 if old else 8) + _SETTINGS.size
    entries, count, labels, tokens = _SIZES.unpack_from(data, position)
    position += _SIZES.size
    pruned = 0
    if not old:
        (pruned,) = struct.unpack_from("<q", data, position)
        position += 8
    if min(entries, count, labels) < 0 or entries != count + labels or settings.width < 1 or entries > len(data):
        raise CheckpointError(
            f"{path}: {entries} entries, {count} words, {labels} labels, width {settings.width}: a damaged file. Copy it again."
        )
    if min(settings.shortest, settings.longest, settings.buckets, settings.word_ngrams) < 0:
        raise CheckpointError(
            f"{path}: n-grams of {settings.shortest} to {settings.longest} characters and {settings.word_ngrams} words in "
            f"{settings.buckets} buckets: a damaged file. Copy it again."
        )
    spelled: list[bytes] = []
    counts = np.empty(entries, np.int64)
    for entry in range(entries):
        end = data.find(b"\0", position)
        if end < 0:
            raise IndexError
        spelled.append(data[position:end])
        counts[entry], _ = struct.unpack_from("<qb", data, end + 1)
        position = end + 10
    buckets: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    if pruned >= 0 and not old:
        if position + 8 * pruned > len(data):
            raise IndexError
        pairs = np.frombuffer(data, "<i4", 2 * pruned, position).reshape(-1, 2).astype(np.int64)
        buckets = pairs[np.argsort(pairs[:, 0])].T[0], pairs[np.argsort(pairs[:, 0])].T[1]
        position += 8 * pruned
    table, position = _matrix(data, position, path, marked=not old)
    answers, position = _matrix(data, position, path, marked=not old)
    hashed = settings.buckets if settings.longest > 0 or settings.word_ngrams > 1 else 0
    expected = count + (hashed if buckets is None else len(buckets[0]))
    rows_fit = len(table) == expected or (buckets is None and len(table) == count + settings.buckets)
    if table.shape[1] != settings.width or not rows_fit or (buckets is not None and not _fits(*buckets, settings.buckets)):
        raise CheckpointError(
            f"{path}: a table of {table.shape[0]:,} x {table.shape[1]}; expected {expected:,} rows (words and buckets) of "
            f"{settings.width} numbers. A damaged file: copy it again."
        )
    spellings = Spellings()
    spellings.add(spelled)
    names = spellings.words(path)
    return FastText(settings, names[:count], names[count:], counts, tokens, table, answers, buckets)


def _fits(buckets: NDArray[np.int64], rows: NDArray[np.int64], most: int) -> bool:
    """Whether buckets in ascending order are different ones, and their rows are 0, 1, …."""
    inside = not len(buckets) or bool(buckets[0] >= 0 and buckets[-1] < most)
    return inside and bool((np.diff(buckets) > 0).all() and (np.sort(rows) == np.arange(len(rows))).all())


def _matrix(data: bytes | mmap.mmap, position: int, path: str, *, marked: bool) -> tuple[Matrix, int]:
    """A matrix, a view of the bytes if it is whole, and where it ends; `marked`: a byte before it says if it is quantised."""
    if marked and struct.unpack_from("<b", data, position)[0]:
        return read_quantised(data, position + 1)
    position += marked
    rows, columns = struct.unpack_from("<2q", data, position)
    start = position + 16
    end = start + 4 * rows * columns
    if rows < 0 or columns < 0 or end > len(data):
        raise CheckpointError(_cut_off(path, len(data)))
    return np.frombuffer(data, "<f4", rows * columns, start).reshape(rows, columns), end


def _cut_off(path: str, size: int) -> str:
    return f"{path}: ends after {size:,} bytes, before its last matrix does. It is cut off: copy the file again."
