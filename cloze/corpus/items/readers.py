"""Files of items → pictures with their items: `.npz` of many pictures, tables as LXMERT publishes them, folders, databases.

Every reader yields the items of one picture after another, so memory does not depend on the size of the file.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.databases import HDF5, is_lmdb, read_hdf5, read_lmdb
from cloze.corpus.items.item_store import FEATURES
from cloze.corpus.items.picture import OTHER_NAMES, ItemFile, Picture, picture_of
from cloze.corpus.readers.pictured.films import is_pickle
from cloze.corpus.readers.pictured.plain_pickle import read_plain
from cloze.corpus.readers.text_files import open_text
from cloze.errors import CorpusError

_KEYS = ("keys", "ids", "image_ids")
_OF_FILE = ("offsets", "count", "size", "extractor")
_COLUMNS = ("img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes", "features")
_SHORT = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_TABLES = {len(columns): columns for columns in (_COLUMNS, _SHORT, (*_SHORT, "cls_prob"))}
_FORMS = ".npz, .tsv as LXMERT writes it, HDF5 (.h5), LMDB, a folder of .npz or .npy, or films as UniVL's (.csv, .pickle)"
_LISTED = ("video_id", "feature_file")
_ROWS = 4096  # items read together


def read_pictures(path: str | Path) -> ItemFile:
    """The pictures of a file of items.

    `.npz`: `keys` (P,), `offsets` (P + 1,) and arrays of all items one after another, such as `features` (R, F), `boxes` (R, 4),
    `class` (R,); or arrays (P, R, …) of pictures with equally many items. `size` (P, 2) is width and height of the pictures;
    boxes are then in pixels. `<array>_names` are the names of classes, and `extractor` says what made the features. `.tsv`: the
    columns of LXMERT and of bottom-up attention, arrays in base64. A folder: a `.npz` or `.npy` for each picture, under its key.
    HDF5 and LMDB: see `databases`. `.csv`: UniVL's list of films, video_id and feature_file, the path of a `.npy` from its own.
    `.pickle`: a dictionary of arrays (seconds, F) by film.

    Raises `CorpusError` for a file that is missing, of another form or damaged.
    """
    location = Path(path)
    if not location.exists():
        raise CorpusError(f"{path}: no such file; expected items: {_FORMS}.")
    if is_lmdb(location):
        return read_lmdb(location)
    if location.is_dir():
        return ItemFile(_folder(location), {})
    suffixes = [suffix for suffix in location.suffixes if suffix not in (".gz", ".xz")]
    if suffixes[-1:] == [".tsv"]:
        return ItemFile(_table(location), {})
    if suffixes[-1:] == [".npz"]:
        return _archive(location)
    if suffixes[-1:] and suffixes[-1] in HDF5:
        return read_hdf5(location)
    if suffixes[-1:] == [".csv"]:
        return ItemFile((_picture(key, file) for key, file in _listed(location)), {})
    if is_pickle(location):
        return ItemFile(_pickled(location), {})
    raise CorpusError(f"{path}: expected items: {_FORMS}, one for each picture.")


def _archive(path: Path) -> ItemFile:
    """The pictures of an `.npz` of many pictures, read from the file piece by piece."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): _shape(archive, name) for name in archive.namelist()}
            key_name = next((name for name in _KEYS if name in members), None)
            small = [name for name in members if name == key_name or name in _OF_FILE or name.endswith("_names")]
            metadata = {name: _whole(archive, name, path) for name in small}
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise CorpusError(f"{path}: damaged, or not an .npz of arrays ({error}).") from None
    if key_name is None:
        raise CorpusError(
            f"{path}: has no `keys`, the names by which captions call its pictures; it has {', '.join(sorted(members))}."
        )
    keys = [str(key) for key in metadata[key_name].tolist()]
    arrays = {name: shape for name, shape in members.items() if name not in small}
    if not arrays:
        raise CorpusError(f"{path}: has no arrays of items, such as `features` and `boxes`.")
    counts = _counts(path, keys, metadata, arrays)
    names = {
        OTHER_NAMES.get(name.removesuffix("_names"), name.removesuffix("_names")): tuple(map(str, value.tolist()))
        for name, value in metadata.items() if name.endswith("_names")
    }
    sizes = metadata.get("size")
    if sizes is not None and sizes.shape != (len(keys), 2):
        raise CorpusError(f"{path}: size has the shape {sizes.shape}; expected ({len(keys)}, 2), width and height.")
    extractor = str(metadata["extractor"]) if "extractor" in metadata else None
    return ItemFile(_pictures(path, keys, counts, list(arrays), sizes, "offsets" not in metadata), names, extractor)


def _counts(
    path: Path, keys: list[str], metadata: Mapping[str, NDArray[Any]], arrays: Mapping[str, tuple[int, ...]]
) -> NDArray[np.int64]:
    """How many items each picture has."""
    if "offsets" in metadata:
        offsets = metadata["offsets"].astype(np.int64)
        ends = int(offsets[-1]) if len(offsets) == len(keys) + 1 else -1
        wrong = {name: shape for name, shape in arrays.items() if shape[:1] != (ends,)}
        if ends < 0 or wrong or (np.diff(offsets) < 0).any() or offsets[0] != 0:
            raise CorpusError(
                f"{path}: {len(keys)} keys, offsets of shape {metadata['offsets'].shape} up to "
                f"{metadata['offsets'].max(initial=0)}, and arrays {dict(arrays)}.\n"
                "  Expected one offset more than keys, ascending from 0, and arrays as long as the last."
            )
        return np.diff(offsets)
    shapes = {shape[:2] for shape in arrays.values()}
    if len(shapes) != 1 or min(map(len, shapes)) < 2 or next(iter(shapes))[0] != len(keys):
        raise CorpusError(
            f"{path}: {len(keys)} keys and arrays {dict(arrays)}, but no offsets.\n  Expected arrays of the shape (pictures, "
            "items, …), or all items one after another and `offsets` with where each picture begins and, last, their number."
        )
    return np.full(len(keys), next(iter(shapes))[1], np.int64)


def _pictures(
    path: Path, keys: list[str], counts: NDArray[np.int64], arrays: list[str], sizes: NDArray[Any] | None, dense: bool
) -> Iterator[Picture]:
    """The pictures of an archive, some thousands of items at a time."""
    with ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path))
        streams = {name: _Stream(stack.enter_context(archive.open(f"{name}.npy")), dense) for name in arrays}
        low = 0
        while low < len(keys):
            ends = np.cumsum(counts[low : low + _ROWS])
            high = low + max(1, int(np.searchsorted(ends, _ROWS, side="right")))
            sizes_here = counts[low:high]
            block = {OTHER_NAMES.get(name, name): stream.read(int(sizes_here.sum()), path) for name, stream in streams.items()}
            stops = np.cumsum(sizes_here)
            for number, stop in enumerate(stops.tolist()):
                span = slice(stop - int(sizes_here[number]), stop)
                size = None if sizes is None else (float(sizes[low + number, 0]), float(sizes[low + number, 1]))
                yield Picture(keys[low + number], {name: values[span] for name, values in block.items()}, size)
            low = high


class _Stream:
    """An array inside an archive that is read from its beginning to its end."""

    def __init__(self, stream: IO[bytes], dense: bool) -> None:
        self.stream = stream
        self.shape, self.dtype = _header(stream)
        self.width = self.shape[2:] if dense else self.shape[1:]

    def read(self, rows: int, path: Path) -> NDArray[Any]:
        """The next rows."""
        size = rows * int(np.prod(self.width, dtype=np.int64)) * self.dtype.itemsize
        data = self.stream.read(size)
        if len(data) != size:
            raise CorpusError(f"{path}: ends in the middle of an array; copy it again.")
        return np.frombuffer(data, self.dtype).reshape(rows, *self.width)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of an array in C order, the one in which it can be read piece by piece."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are not read")
    if fortran and len(shape) > 1:
        raise ValueError("an array in Fortran order is not read: save np.ascontiguousarray of it")
    return shape, dtype


def _shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    with archive.open(name) as stream:
        return _header(stream)[0]


def _whole(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def keys_in(path: str | Path) -> frozenset[str]:
    """The keys of the pictures or films in a file of items."""
    location = Path(path)
    if location.is_dir() and not is_lmdb(location):
        return frozenset(key for key, _ in _files(location))
    if location.suffix == ".csv":
        return frozenset(key for key, _ in _listed(location))
    return frozenset(picture.key for picture in read_pictures(path).pictures)


def _folder(path: Path) -> Iterator[Picture]:
    """A file for each picture; its key is its path below the folder, without the ending."""
    files = _files(path)
    if not files:
        raise CorpusError(f"{path}: has no .npz or .npy in it; expected one for each picture, named by its key.")
    return (_picture(key, file) for key, file in files)


def _files(path: Path) -> list[tuple[str, Path]]:
    """The files of a folder, each with its key."""
    files = sorted(file for file in path.rglob("*") if file.suffix in (".npz", ".npy"))
    return [(file.relative_to(path).with_suffix("").as_posix(), file) for file in files]


def _listed(path: Path) -> list[tuple[str, Path]]:
    """The files that a table of films names, each with its key."""
    with open_text(path) as stream:
        rows = csv.DictReader(stream)
        if not set(_LISTED) <= set(rows.fieldnames or ()):
            raise CorpusError(f"{path}: has the columns {', '.join(rows.fieldnames or ())}; expected {' and '.join(_LISTED)}.")
        return [(row[_LISTED[0]], path.parent / row[_LISTED[1]]) for row in rows]


def _picture(key: str, file: Path) -> Picture:
    """The picture or film in a file of its own."""
    try:
        read = np.load(file, allow_pickle=False)
        arrays = {FEATURES: read} if isinstance(read, np.ndarray) else {name: read[name] for name in read.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise CorpusError(f"{file}: damaged, or not an array of numbers ({error}).") from None
    size = arrays.pop("size", None)
    if size is not None and size.shape != (2,):
        raise CorpusError(f"{file}: size has the shape {size.shape}; expected width and height.")
    ragged = {name: value for name, value in arrays.items() if value.ndim in (1, 2)}
    return Picture(
        key, {OTHER_NAMES.get(name, name): value for name, value in ragged.items()},
        None if size is None else (float(size[0]), float(size[1])),
    )


def _pickled(path: Path) -> Iterator[Picture]:
    """The films of a dictionary of arrays."""
    try:
        films = read_plain(path.read_bytes())
    except ValueError as error:
        raise CorpusError(f"{path}: cannot be read: {error}.") from None
    if not isinstance(films, dict) or not all(isinstance(film, np.ndarray) for film in films.values()):
        raise CorpusError(f"{path}: expected a dictionary of arrays (seconds, numbers) by film.")
    return (Picture(str(key), {FEATURES: film}) for key, film in films.items())


def _table(path: Path) -> Iterator[Picture]:
    """Rows of LXMERT's or of bottom-up attention's table, or of that with which ViLBERT's authors wrote probabilities."""
    csv.field_size_limit(1 << 30)
    with open_text(path) as stream:
        for line, cells in enumerate(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            names = _TABLES.get(len(cells))
            if names is None:
                raise CorpusError(
                    f"{path}:{line}: {len(cells)} columns; expected {len(_COLUMNS)} ({', '.join(_COLUMNS)}) or {len(_SHORT)} "
                    f"({', '.join(_SHORT)}, and cls_prob as a further one)."
                )
            row = dict(zip(names, cells, strict=True))
            if line == 1 and row["features"] == "features":
                continue
            try:
                picture = picture_of(row.get("img_id") or row["image_id"], row)
            except (ValueError, KeyError) as error:
                raise CorpusError(f"{path}:{line}: a row that cannot be read ({error}).") from None
            yield picture
