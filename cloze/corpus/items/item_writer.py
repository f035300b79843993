"""Writes the items of records into a store under construction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_store import BOXES, CLASS, FOLDER, KEYS, MADE, PICTURES, SECOND, ItemArray
from cloze.corpus.items.links import RecordLinks
from cloze.corpus.items.picture import Picture
from cloze.corpus.items.readers import keys_in, read_pictures
from cloze.corpus.readers.labelled import Format, Quoting, read_rows
from cloze.corpus.readers.pictured.clips import Caption, Clip, film_of, joined
from cloze.corpus.stores.writer import HashedFile
from cloze.errors import CorpusError, Parameter, Say, counted, propose

START, END = "start", "end"  # the columns with the times of a caption
_EDGE = 1e-3  # by which a box may leave its picture: rounding of detectors
_SHOWN = 3
_INT32 = np.iinfo(np.int32)


class ItemFiles(NamedTuple):
    """The file of each set of items, and the column of the labelled text that names the picture of a record; `second` is that of
    a second picture. With `seconds`, the column names the film, whose captions, from `start` to `end`, are joined until they last
    so long."""

    files: Mapping[str, str]
    column: str
    seconds: float | None = None
    second: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of keys."""
        return (self.column,) if self.second is None else (self.column, self.second)


class ItemsWriter:
    """Collects the pictures of records, then copies their items from the files: only those of pictures that records show."""

    def __init__(self, item_files: ItemFiles, folder: Path, files: dict[str, HashedFile]) -> None:
        self.item_files, self.folder, self.files = item_files, folder, files
        self.numbers: dict[str, int] = {}
        self.unknown: set[str] = set()  # films of captions that the files lack
        (folder / FOLDER).mkdir()
        for name in (PICTURES, SECOND)[: len(item_files.columns)]:
            files[name] = HashedFile(folder / name)

    def add(self, keys: Sequence[str]) -> int:
        """The picture of the next record, or its two. Returns the number of the first."""
        numbers = [self.numbers.setdefault(key, len(self.numbers)) for key in keys]
        for name, number in zip((PICTURES, SECOND), numbers, strict=False):
            self.files[name].write(np.array([number], np.int64))
        return numbers[0]

    def of_known_films(self, keyed: Iterator[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
        """The records whose films all files have: many of the films that were listed once cannot be downloaded any more."""
        film_keys = frozenset.intersection(*map(keys_in, self.item_files.files.values()))
        for record, film in keyed:
            if film in film_keys:
                yield record, film
            else:
                self.unknown.add(film)

    def finish(self, report: Say, linked: RecordLinks | None = None) -> dict[str, Any]:
        """Copy the items of every set, which must have those that `linked` names. Returns what the header says about them."""
        for key in self.numbers:
            if len(key.splitlines()) != 1:
                raise CorpusError(f"the picture {key!r}: expected a name of one line.")
        self._lines(KEYS, list(self.numbers))
        if self.unknown:
            files, films = ", ".join(self.item_files.files.values()), counted(len(self.unknown), "film")
            if not self.numbers:
                raise CorpusError(
                    f"{files}: no frames of any film with captions ({films}, such as {min(self.unknown)!r}).\n"
                    "  A file of frames has the name of its film, and "
                    f"the column {self.item_files.column!r} of the captions must hold it; name another with --picture."
                )
            report(f"{files}: no frames of {films} with captions, which are left out")
        return {name: self._set(name, path, report, linked) for name, path in self.item_files.files.items()}

    def _file(self, name: str) -> HashedFile:
        file = self.files[name] = HashedFile(self.folder / name)
        return file

    def _lines(self, name: str, lines: Sequence[str]) -> None:
        self._file(name).write(np.frombuffer("".join(f"{line}\n" for line in lines).encode(), np.uint8))

    def _set(self, name: str, path: str, report: Say, linked: RecordLinks | None) -> dict[str, Any]:
        (self.folder / FOLDER / name).mkdir()
        spans = np.full((len(self.numbers), 2), -1, np.int64)
        read, clips_by_film = read_pictures(path), self._clips_by_film()
        kinds: dict[str, ItemArray] = {}
        size = unused_count = 0
        for picture in read.pictures:
            numbers = clips_by_film.get(picture.key, [])
            if not numbers:
                unused_count += 1
                continue
            where = f"{path}: picture {picture.key!r}"
            if spans[numbers[0][0], 0] >= 0:
                raise CorpusError(f"{where} is there twice; expected all its items together.")
            rows = checked(picture, where)
            picture_kinds = {array: kind_of(values) for array, values in rows.items()}
            if not kinds:
                kinds = picture_kinds
                files = {array: self._file(f"{FOLDER}{name}/{array}.bin") for array in kinds}
            elif picture_kinds != kinds:
                raise CorpusError(f"{where} has {_said(picture_kinds)}; the pictures before it have {_said(kinds)}.")
            for array, array_names in read.names.items():
                if array in rows and rows[array].max(initial=-1) >= len(array_names):
                    name_count = counted(len(array_names), "name")
                    raise CorpusError(f"{where}: {array} is {rows[array].max()}; the file has {name_count}, from 0.")
            for array, values in rows.items():
                files[array].write(values.astype(kinds[array].dtype, copy=False))
            count = len(next(iter(rows.values())))
            for number, clip in numbers:
                first, stop = (0, count) if clip is None else clip.frames(count)
                spans[number] = size + first, size + stop
            size += count
        self._require_all(name, path, spans)
        if linked is not None:
            linked.require(name, spans[:, 1] - spans[:, 0], list(self.numbers))
        self._file(f"{FOLDER}{name}/spans.bin").write(spans)
        names = {array: array_names for array, array_names in read.names.items() if array in kinds}
        for array, array_names in names.items():
            self._lines(f"{FOLDER}{name}/{array}.names", array_names)
        unused = f"; {counted(unused_count, 'picture')} without a caption left out" if unused_count else ""
        report(f"{path}: {counted(size, 'item')} {name!r} of {counted(len(spans), 'picture')}: {_said(kinds)}{unused}")
        made_by = {} if read.extractor is None else {"extractor": read.extractor}
        return {"file": path, **made_by, "arrays": {
            array: {"dtype": kind.dtype, "width": kind.width, **({"names": True} if array in names else {})}
            for array, kind in kinds.items()
        }}  # fmt: skip

    def _clips_by_film(self) -> dict[str, list[tuple[int, Clip | None]]]:
        """By the key of a picture or film in the files, what the records show of it: the number, and the clip, None for all."""
        clips: dict[str, list[tuple[int, Clip | None]]] = {}
        for key, number in self.numbers.items():
            clips.setdefault(film_of(key), []).append((number, Clip.of_key(key)))
        return clips

    def _require_all(self, name: str, path: str, spans: NDArray[np.int64]) -> None:
        missing = np.flatnonzero(spans[:, 0] < 0)
        if not len(missing):
            return
        keys = list(self.numbers)
        if missing.size == len(keys) and next(read_pictures(path).pictures, None) is None:
            raise CorpusError(f"{path}: has no picture in it; expected the items of {counted(len(keys), 'picture')}.")
        file_keys = [picture.key for picture, _ in zip(read_pictures(path).pictures, range(10_000), strict=False)]
        examples = ", ".join(repr(film_of(keys[number])) for number in missing[:_SHOWN])
        raise CorpusError(
            f"{path}: has no items of {counted(len(missing), 'picture')} of the captions: {examples}"
            f"{', …' if len(missing) > _SHOWN else ''}. {propose(film_of(keys[missing[0]]), file_keys)}\n"
            f"  The column {self.item_files.column!r} must hold keys of the file, such as {file_keys[0]!r}; name another with "
            "--picture."
        )


def checked(picture: Picture, where: str) -> dict[str, NDArray[Any]]:
    """The arrays of a picture, ready to be stored: boxes as shares of it, finite numbers, one row for each item."""
    rows = {name: np.ascontiguousarray(values) for name, values in picture.arrays.items()}
    sizes = {name: len(values) for name, values in rows.items()}
    if len(set(sizes.values())) > 1:
        raise CorpusError(f"{where}: its arrays have different lengths: {sizes}.")
    for name in sorted(MADE & rows.keys()):
        raise CorpusError(f"{where}: has an array {name!r}, which cloze makes itself. Give it another name in the file.")
    for name, values in rows.items():
        if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or values.dtype.kind in "iub" and values.ndim == 2:
            description = f"{name} is {values.dtype} {values.shape}"
            raise CorpusError(f"{where}: {description}; expected numbers (items, width) or classes (items,).")
        if values.dtype.kind == "f" and not (np.abs(values) <= np.finfo(np.float32).max).all():
            raise CorpusError(f"{where}: {name} has a value that is not a finite 32-bit number.")
        if values.dtype.kind in "iu" and values.size and (values.min() < _INT32.min or values.max() > _INT32.max):
            raise CorpusError(f"{where}: {name} has {values.min()} to {values.max()}; expected 32-bit numbers, such as classes.")
    if BOXES in rows:
        rows[BOXES] = boxes(rows[BOXES], picture.size, where)
    classes = rows.get(CLASS, np.zeros(0, np.int32))
    if classes.dtype.kind == "f" or classes.min(initial=0) < -1:
        raise CorpusError(f"{where}: class is {classes.min()}; expected whole numbers from 0, or -1 for none.")
    return {name: values.astype(kind_of(values).dtype, copy=False) for name, values in rows.items()}


def boxes(array: NDArray[Any], size: tuple[float, float] | None, where: str) -> NDArray[np.float32]:
    """Boxes (R, 4) as x1 y1 x2 y2, shares of the picture's width and height; pixels are divided by its size."""
    if array.shape[1:] not in ((4,), (5,), (6,), (7,)):  # UNITER's files have width and height as the fifth and sixth
        raise CorpusError(f"{where}: boxes have the shape {array.shape}; expected (items, 4): x1, y1, x2, y2.")
    shares: NDArray[np.float32] = array[:, :4].astype(np.float32)
    if size is not None and shares.size and float(shares.max()) > 1 + _EDGE:
        shares /= np.array([size[0], size[1]] * 2, np.float32)
    backwards = np.flatnonzero((shares[:, 2] < shares[:, 0]) | (shares[:, 3] < shares[:, 1]))
    outside = np.flatnonzero((shares < -_EDGE).any(1) | (shares > 1 + _EDGE).any(1))
    if len(backwards):
        raise CorpusError(
            f"{where}: box {backwards[0]} is {array[backwards[0]].tolist()}, whose right or lower edge lies before the other.\n"
            "  Expected x1, y1, x2, y2. Are these x, y, width, height? Then add x to width and y to height."
        )
    if len(outside):
        way_out = "Give `size` (pictures, 2), width and height in pixels." if size is None else "Is `size` width, height?"
        raise CorpusError(
            f"{where}: box {outside[0]} is {array[outside[0]].tolist()}, outside of its picture; expected shares of it from 0 "
            f"to 1, or pixels and the size.\n  {way_out}"
        )
    return np.clip(shares, 0, 1)


def kind_of(values: NDArray[Any]) -> ItemArray:
    """The type and the width that an array is stored with."""
    if values.dtype.kind in "iub":
        return ItemArray("int32", 1)
    return ItemArray("float16" if values.dtype == np.float16 else "float32", values.shape[1] if values.ndim > 1 else 1)


def pictures_of(
    path: str | Path, records: Iterator[Any], key_columns: Sequence[str], *, format: Format | None,
    columns: Sequence[str] | None, quoting: Quoting,
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Each record of a file with the pictures that its line names."""
    if str(path) == "-":
        raise CorpusError("-: labelled text with items cannot come from standard input, which is read only once. Give a file.")
    options = {name: Parameter("corpus.picture", "NAME", "option") for name in key_columns}
    rows = read_rows(path, options, format=format, columns=columns, quoting=quoting, fault=lambda line, why: None)
    line, keys = 0, tuple("" for _ in key_columns)
    for record in records:
        while line < record.line:
            line, keys = next(rows, (record.line, tuple("" for _ in key_columns)))
        empty = next((name for name, key in zip(key_columns, keys, strict=True) if line != record.line or not key.strip()), None)
        if empty is not None:
            raise CorpusError(f"{path}:{record.line}: no picture in {empty!r}; expected its key in every row.")
        yield record, keys


def clips_of(
    path: str | Path, records: Iterator[tuple[Any, str]], seconds: float, *, format: Format | None, columns: Sequence[str] | None,
    quoting: Quoting,
) -> Iterator[tuple[Any, str]]:
    """The records of a file, of which each is given with its film, joined until they last `seconds`; each with the key of its
    clip."""
    times = {name: Parameter(name, f"column {name}", "words") for name in (START, END)}
    rows = read_rows(path, times, format=format, columns=columns, quoting=quoting, fault=lambda line, why: None)

    def captions() -> Iterator[Caption]:
        line, cells = 0, ("", "")
        for record, film in records:
            while line < record.line:
                line, cells = next(rows, (record.line, ("", "")))  # type: ignore[assignment]
            try:
                start, end = map(float, cells if line == record.line else ("", ""))
                if not 0 <= start <= end < float("inf"):
                    raise ValueError
            except ValueError:
                raise CorpusError(
                    f"{path}:{record.line}: {START} and {END} are {cells[0]!r} and {cells[1]!r}; expected seconds, the first not "
                    "after the last."
                ) from None
            yield Caption(record, Clip(film, start, end))

    for record, clip in joined(captions(), seconds, _join):
        yield record, clip.key


def _join(records: Sequence[Any]) -> Any:
    """The first record with the texts of all, one after another."""
    texts = zip(*(record.texts for record in records), strict=True)
    return records[0]._replace(texts=tuple(" ".join(column) for column in texts))


def _said(kinds: Mapping[str, ItemArray]) -> str:
    widths = {name: "" if kind.width == 1 else f" x {kind.width}" for name, kind in kinds.items()}
    return ", ".join(f"{name} ({kind.dtype}{widths[name]})" for name, kind in kinds.items())
