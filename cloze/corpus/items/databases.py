"""HDF5 files and LMDB databases of items → pictures with their items."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_store import FEATURES
from cloze.corpus.items.picture import HEIGHTS, OTHER_NAMES, WIDTHS, ItemFile, Picture, picture_of
from cloze.corpus.readers.pictured.plain_pickle import read_plain
from cloze.errors import CorpusError, MissingExtra
from cloze.untrusted import require_ordinary

HDF5 = (".h5", ".hdf5", ".hdf")
_KEYS = ("keys", "ids", "image_ids", "image_id", "img_id")
_SPANS = "pos_boxes"  # (P, 2): first row of each picture and the one after its last, in files for VQA
_DATA = "data.mdb"
_OF_DATABASE = frozenset({b"keys", b"__keys__", b"__len__"})
_PACKED = 30  # features hardly compress; more is a file that blows up
_DEEPEST = 8


def is_lmdb(path: Path) -> bool:
    """Whether a path is a database of LMDB: a folder with data.mdb in it, or a file that ends in .lmdb or .mdb."""
    return (path / _DATA).is_file() or path.suffix in (".lmdb", ".mdb") and path.is_file()


def read_hdf5(path: Path) -> ItemFile:
    """The pictures of an HDF5 file, in one of three layouts.

    A group for each picture, under its key, with data sets such as `features` and `boxes` and the size, `img_w` and `img_h`. Or
    data sets called `KEY_features`, `KEY_boxes` at the top. Or arrays of all pictures: `keys` or `image_id` (P,), and arrays
    (P, R, …), or all items one after another with `offsets` (P + 1,) or `pos_boxes` (P, 2); `num_boxes` (P,) may say how many
    of the R items of each picture count. Raises `CorpusError` for other files, and `MissingExtra` without h5py.
    """
    try:
        import h5py
    except ImportError:
        raise MissingExtra("h5py", "hdf5", "Reading items from HDF5") from None
    try:
        require_ordinary(path)
        with h5py.File(path, "r") as file:
            top = {name: file.get(name, getlink=True) for name in file}
            if any(not isinstance(link, h5py.HardLink) for link in top.values()):
                raise CorpusError(f"{path}: has links to other places; expected the arrays themselves. Copy them into the file.")
            is_flat = all(isinstance(file[name], h5py.Dataset) for name in top)
            key_name = next((name for name in _KEYS if name in top), None) if is_flat else None
            single = is_flat and key_name is None and any(map(_begins_with_key, top))
            if is_flat and key_name is None and not single:
                raise CorpusError(
                    f"{path}: has no {', '.join(_KEYS[:-1])} or {_KEYS[-1]}, the names by which captions call its pictures; it "
                    f"has {', '.join(sorted(top)) or 'nothing'}.\n  Add them: h5py.File(FILE, 'a')['keys'] = KEYS (bytes)"
                )
    except OSError as error:
        raise CorpusError(f"{path}: not a whole HDF5 file ({error}). Copy the file again.") from None
    pictures = _rows(path, key_name) if key_name is not None else _named(path) if single else _groups(path)
    return ItemFile(_explained(path, pictures), {})


def _explained(path: Path, pictures: Iterator[Picture]) -> Iterator[Picture]:
    try:
        yield from pictures
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CorpusError(f"{path}: cannot be read as items ({error}).") from None


def _value(data: Any) -> NDArray[Any]:
    """A data set in memory; one outside of the file, or that would blow up, is a `ValueError`."""
    _require_plain(data)
    return np.asarray(data[()])


def _require_plain(data: Any) -> None:
    if data.external or data.is_virtual:
        raise ValueError(f"{data.name} lies in another file")
    if data.nbytes > _PACKED * max(data.id.get_storage_size(), 4096):
        raise ValueError(f"{data.name} would grow to {data.nbytes:,} bytes; the file is damaged")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _groups(path: Path) -> Iterator[Picture]:
    """A group for each picture; keys may have slashes."""
    import h5py

    def walk(group: Any, prefix: str) -> Iterator[Picture]:
        names = [name for name in group if isinstance(group.get(name, getlink=True), h5py.HardLink)]
        datasets = {name: group[name] for name in names if isinstance(group[name], h5py.Dataset)}
        if datasets:
            record = {name: _value(data) for name, data in datasets.items() if data.dtype.kind in "fiub"}
            yield picture_of(prefix[:-1], {name: value if value.ndim else value.item() for name, value in record.items()})
        for name in names:
            if name not in datasets:
                if prefix.count("/") > _DEEPEST:
                    raise ValueError(f"{prefix} is nested too deeply")
                yield from walk(group[name], f"{prefix}{name}/")

    with h5py.File(path, "r") as file:
        yield from walk(file, "")


def _begins_with_key(name: str) -> bool:
    """Whether a data set holds the features of one picture, by its name, such as `123_features`."""
    return name.endswith(f"_{FEATURES}") and name not in OTHER_NAMES


def _named(path: Path) -> Iterator[Picture]:
    """`KEY_features`, `KEY_boxes`, …: the arrays of a picture at the top."""
    import h5py

    with h5py.File(path, "r") as file:
        names = sorted(file)
        for feature in filter(_begins_with_key, names):
            key = feature.removesuffix(f"_{FEATURES}")
            candidates = {name: f"{key}_{name}" for name in (FEATURES, "boxes", *OTHER_NAMES)}
            yield picture_of(key, {name: _value(file[path_name]) for name, path_name in candidates.items() if path_name in file})


def _rows(path: Path, key_name: str) -> Iterator[Picture]:
    """The pictures of arrays of all pictures, one picture at a time."""
    import h5py

    with h5py.File(path, "r") as file:
        keys = [_text(key) for key in _value(file[key_name]).reshape(-1).tolist()]
        small = {name: _value(file[name]) for name in ("offsets", _SPANS, "size", "num_boxes", *WIDTHS, *HEIGHTS) if name in file}
        spans = small.get(_SPANS)
        if "offsets" in small:
            spans = np.stack([small["offsets"][:-1], small["offsets"][1:]], 1)
        arrays = {name: file[name] for name in file if name != key_name and name not in small and file[name].dtype.kind in "fiub"}
        for data in arrays.values():
            _require_plain(data)
        rows = len(keys) if spans is None else int(spans.max(initial=0))
        wrong = {name: data.shape for name, data in arrays.items() if not data.shape or data.shape[0] < rows}
        if wrong or spans is not None and spans.shape != (len(keys), 2) or not arrays:
            raise ValueError(f"{len(keys)} keys, {rows} rows, and arrays {wrong or {n: d.shape for n, d in arrays.items()}}")
        for number, key in enumerate(keys):
            if spans is not None:
                record = {name: data[int(spans[number, 0]) : int(spans[number, 1])] for name, data in arrays.items()}
            else:
                count = int(small["num_boxes"].reshape(-1)[number]) if "num_boxes" in small else None
                record = {name: data[number][:count] for name, data in arrays.items() if data.ndim > 1}
            record |= {name: float(small[name].reshape(-1)[number]) for name in (*WIDTHS, *HEIGHTS) if name in small}
            if "size" in small:
                record |= {"width": float(small["size"][number, 0]), "height": float(small["size"][number, 1])}
            yield picture_of(key, record)


def read_lmdb(path: Path) -> ItemFile:
    """The pictures of an LMDB database, one under each key: a pickled dictionary with `features`, `boxes` and others, as arrays
    or in base64 (ViLBERT, MMF), or the bytes of an `.npz` or `.npy`.

    Pickles are read by `read_plain`, which runs nothing. Raises `CorpusError` for anything else, and `MissingExtra` without lmdb.
    """
    try:
        import lmdb
    except ImportError:
        raise MissingExtra("lmdb", "lmdb", "Reading items from LMDB") from None
    try:
        lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir()).close()
    except lmdb.Error as error:
        raise CorpusError(f"{path}: not a whole database of LMDB ({error}). Copy it again.") from None
    return ItemFile(_entries(path), {})


def _entries(path: Path) -> Iterator[Picture]:
    import lmdb

    opened = lmdb.open(str(path), readonly=True, lock=False, readahead=False, subdir=path.is_dir())
    with opened as database, database.begin() as transaction:
        for key, value in transaction.cursor():
            if key in _OF_DATABASE:
                continue
            name = key.decode("utf-8", "replace")
            try:
                yield picture_of(name, _record(value))
            except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
                raise CorpusError(
                    f"{path}: picture {name!r} cannot be read ({error}).\n  Expected a pickled dictionary of arrays or of texts "
                    "in base64, or the bytes of an .npz."
                ) from None


def _record(value: bytes) -> Mapping[str, Any]:
    """The values of an entry by name."""
    if value[:2] == b"PK" or value[:6] == b"\x93NUMPY":
        read = np.load(io.BytesIO(value), allow_pickle=False)
        return {FEATURES: read} if isinstance(read, np.ndarray) else {name: read[name] for name in read.files}
    record = read_plain(value)
    if isinstance(record, np.ndarray):
        return {FEATURES: record}
    if not isinstance(record, Mapping):
        raise ValueError(f"it holds a {type(record).__name__}")
    return {_text(name): item for name, item in record.items()}
