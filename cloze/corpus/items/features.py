"""A folder of pictures with boxes → a file of features, which `cloze corpus build --items` reads.

What is finished lies in the folder `NAME.npz.partial` until the file is whole, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import require_output, whole_file
from cloze.corpus.items.extractors import FeatureExtractor, Floats, Pixels
from cloze.corpus.items.item_store import BOXES, CLASS, FEATURES, SCORE
from cloze.corpus.items.item_writer import boxes as boxes_as_shares
from cloze.errors import CorpusError, MissingExtra, propose
from cloze.untrusted import parse_json

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
Number = Literal["float16", "float32"]
_COPIED = 1 << 24  # bytes


class Regions(NamedTuple):
    """The boxes (R, 4) of a picture, in pixels or as shares of it, None for those of an extractor; and further arrays (R,) or
    (R, width)."""

    boxes: NDArray[Any] | None
    others: Mapping[str, NDArray[Any]]


class BoxFile(NamedTuple):
    """The regions of pictures by key, and the names of classes by array."""

    regions: Mapping[str, Regions]
    names: Mapping[str, tuple[str, ...]]


def pictures_in(folder: Path) -> dict[str, Path]:
    """The pictures below a folder by key, which is the path in it: `dogs/1.jpg`."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: expected a folder of pictures ({', '.join(ENDINGS)}).")
    pictures = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.suffix.lower() in ENDINGS
    }
    if not pictures:
        raise CorpusError(f"{folder}: has no picture in it; expected files that end in {', '.join(ENDINGS)}.")
    return pictures


def count_pictures(folder: Path) -> int:
    """How many pictures a folder has."""
    return len(pictures_in(folder))


def read_boxes(path: Path, keys: Sequence[str] = ()) -> BoxFile:
    """The regions of a JSON file, which has the keys of their pictures: `{"dog.jpg": [[x1, y1, x2, y2], …]}`, or
    `{"dog.jpg": {"boxes": […], "class": ["dog", …], "score": […]}}` with further arrays of as many entries. Names become numbers.

    Raises `CorpusError` for anything else.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such file; expected the boxes of each picture as JSON.") from None
    except ValueError as error:
        raise CorpusError(f"{path}: is not JSON ({error}).") from None
    if not isinstance(content, dict) or not content:
        raise CorpusError(f'{path}: expected an object with the boxes of each picture, such as {{"dog.jpg": [[0, 0, 64, 48]]}}.')
    entries: dict[str, dict[str, Any]] = {
        key: value if isinstance(value, dict) else {BOXES: value} for key, value in content.items()
    }
    names: dict[str, tuple[str, ...]] = {}
    for array in {name for entry in entries.values() for name in entry} - {BOXES}:
        values = [value for entry in entries.values() for value in _list(entry.get(array))]
        if any(isinstance(value, str) for value in values):
            names[array] = tuple(sorted({str(value) for value in values}))
    numbers = {array: {name: number for number, name in enumerate(classes)} for array, classes in names.items()}
    return BoxFile({key: _regions(f"{path}: {key!r}", entry, numbers) for key, entry in entries.items()}, names)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _regions(where: str, entry: Mapping[str, Any], numbers: Mapping[str, Mapping[str, int]]) -> Regions:
    arrays = {name: _array(where, name, values, numbers.get(name)) for name, values in entry.items()}
    boxes = arrays.pop(BOXES, np.zeros(0, np.float32))
    boxes = boxes if boxes.size else np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise CorpusError(f"{where}: boxes have the shape {boxes.shape}; expected (regions, 4): x1, y1, x2, y2.")
    wrong = ", ".join(f"{name} {len(values)}" for name, values in arrays.items() if len(values) != len(boxes))
    if wrong:
        raise CorpusError(f"{where}: {len(boxes)} boxes, but {wrong}; expected one entry for each box.")
    return Regions(boxes, arrays)


def _array(where: str, name: str, values: Any, numbers: Mapping[str, int] | None) -> NDArray[Any]:
    """An array of the regions of a picture: int32 of names or whole numbers, else float32."""
    if numbers is not None:
        return np.array([numbers[str(value)] for value in _list(values)], np.int32)
    try:
        array = np.array(values)
    except ValueError:
        raise CorpusError(f"{where}: {name} is ragged; expected as many numbers for each region.") from None
    if array.size and array.dtype.kind not in "iuf" or not array.ndim:
        raise CorpusError(f"{where}: {name} holds no list of numbers.")
    return array.astype(np.int32 if array.dtype.kind in "iu" and name != BOXES else np.float32)


def grid(cells: int) -> Regions:
    """`cells` x `cells` equal parts of any picture."""
    edges = np.arange(cells) / cells
    corner = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2)
    return Regions(np.concatenate([corner, corner + 1 / cells], axis=1).astype(np.float32), {})


def opened(path: Path) -> Pixels:
    """The pixels (H, W, 3) of a picture file, what is transparent on white; a `CorpusError` if it cannot be read."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        raise MissingExtra("pillow", "pictures", "Reading pictures") from None
    try:
        with Image.open(path) as picture:
            image = (_of_16_bits(picture) if picture.mode.startswith("I;16") else picture).convert("RGBA")
            white = Image.new("RGBA", image.size, "white")
            return np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read as a picture ({error}).") from None


def _of_16_bits(picture: Any) -> Any:
    """A grey picture of 16 bits with 8, which Pillow would cut off at 255."""
    from PIL import Image

    return Image.fromarray((np.asarray(picture).astype(np.uint16) >> 8).astype(np.uint8))


class FeatureCounts(NamedTuple):
    """What was written: pictures, regions, numbers of each, and pictures of the folder that have no boxes."""

    pictures: int
    regions: int
    width: int
    without: int


def write_features(
    images: Path, out: Path, extractor: FeatureExtractor, *, boxes: Path | None = None, cells: int | None = None,
    number: Number = "float16", overwrite: bool = False, report: Callable[[int], None] = lambda done: None,
    read: Callable[[Path, Sequence[str]], BoxFile] = read_boxes,
) -> FeatureCounts:
    """Write the features of the regions of every picture in a folder to `out`, an `.npz` with the name of the extractor.

    Regions are those of the file `boxes`, which `read` reads with the keys of the pictures, or `cells` x `cells` equal parts of
    each picture; without either, those into which the extractor divides it. Needs constant memory, and continues what an
    interrupted call with the same arguments began. Raises `CorpusError` for pictures and boxes that cannot be used.
    """
    if boxes is not None and cells is not None or boxes is None and cells is None and not extractor.divides:
        raise CorpusError("expected either a file with boxes (--boxes FILE.json) or a number of equal cells (--grid 3).")
    if out.suffix != ".npz":
        raise CorpusError(f"{out}: expected a name that ends in .npz.")
    require_output(out, overwrite=overwrite)
    files = pictures_in(images)
    regions, names = _regions_of(files, boxes, cells, images, read)
    work = _Partial(out, {
        "extractor": extractor.name, "number": number, "cells": cells, "keys": list(regions),
        "boxes": None if boxes is None else sha256(boxes.read_bytes()).hexdigest(),
    }, files)  # fmt: skip
    report(len(work.lines))
    keys = list(regions)
    box_arrays = {array for entry in regions.values() for array in entry.others}  # those of the extractor are left out
    box_arrays |= {CLASS, SCORE} if box_arrays & {CLASS, SCORE} else set()
    for start in range(0, len(keys), extractor.together):
        group = keys[start : start + extractor.together]  # always the same pictures together, so that rounding is the same
        if all(key in work.done for key in group):
            continue
        pictures = [opened(files[key]) for key in group]
        shares = [_shares(files[key], picture, regions[key]) for key, picture in zip(group, pictures, strict=True)]
        pixels = [None if share is None else share * _sides(picture) for share, picture in zip(shares, pictures, strict=True)]
        extracted = extractor.extract(pictures, pixels)
        for key, picture, share, extraction in zip(group, pictures, shares, extracted, strict=True):
            if key not in work.done:
                share = extraction.boxes / _sides(picture) if share is None else share
                arrays = {array: values for array, values in extraction.arrays.items() if array not in box_arrays}
                work.add(files[key], key, picture, share, {**arrays, **regions[key].others})
                report(1)
    classes = {array: values for array, values in extractor.classes.items() if array not in box_arrays}
    return work.finish({**classes, **names})._replace(without=len(files) - len(regions))


def _state(file: Path) -> list[Any]:
    """Where a picture is, how large, and when it was changed."""
    return [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns]


def _sides(picture: Pixels) -> Floats:
    """Width, height, width and height of a picture, by which boxes are multiplied."""
    height, width = picture.shape[:2]
    return np.array([width, height] * 2, np.float32)


def _shares(path: Path, picture: Pixels, regions: Regions) -> Floats | None:
    """The boxes of a picture as shares of it; None if the extractor divides it."""
    height, width = picture.shape[:2]
    return None if regions.boxes is None else boxes_as_shares(regions.boxes, (width, height), f"{path}: boxes")


def _regions_of(
    files: Mapping[str, Path], boxes: Path | None, cells: int | None, images: Path,
    read: Callable[[Path, Sequence[str]], BoxFile],
) -> tuple[dict[str, Regions], Mapping[str, tuple[str, ...]]]:
    """The regions of the pictures that have some, by key, and the names of classes."""
    if boxes is None:
        shared = Regions(None, {}) if cells is None else grid(cells)
        return dict.fromkeys(files, shared), {}
    box_file = read(boxes, list(files))
    unknown = next((key for key in box_file.regions if key not in files), None)
    if unknown is not None:
        raise CorpusError(f"{boxes}: {images} has no picture {unknown!r}. {propose(unknown, files)}")
    if not any(regions.boxes is not None and len(regions.boxes) for regions in box_file.regions.values()):
        raise CorpusError(f"{boxes}: has no box in it.")
    return {key: box_file.regions[key] for key in files if key in box_file.regions}, box_file.names


class _Partial:
    """The finished pictures of a file under construction: their arrays one after another, and a line about each picture."""

    def __init__(self, out: Path, about: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        self.out, self.about, self.folder = out, about, out.with_name(f"{out.name}.partial")
        self.number = np.dtype(about["number"])
        text = json.dumps(about, ensure_ascii=False)
        path = self.folder / "about.json"
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        self.lines = self._kept() if same else []
        changed = any(line.get("state") != _state(files[line["key"]]) for line in self.lines)  # pictures of the same names
        if not same or changed:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            path.write_text(text, encoding="utf-8")
            self.lines = []
        self.done = {line["key"] for line in self.lines}

    @property
    def arrays(self) -> dict[str, list[Any]]:
        """The type and the width of each array; pictures without regions do not say."""
        return next((line["arrays"] for line in self.lines if line["regions"]), {})

    def _kept(self) -> list[dict[str, Any]]:
        """The lines of pictures that are whole; what follows them in the arrays is cut off."""
        path = self.folder / "pictures.jsonl"
        lines: list[dict[str, Any]] = []
        for text in path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []:
            lines.append(json.loads(text))
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        rows = sum(line["regions"] for line in lines)
        for name, (kind, width) in next((line["arrays"] for line in lines if line["regions"]), {}).items():
            with (self.folder / f"{name}.bin").open("r+b") as stream:
                stream.truncate(rows * max(width, 1) * np.dtype(kind).itemsize)
        return lines

    def add(self, path: Path, key: str, picture: Pixels, shares: Floats, extracted: Mapping[str, NDArray[Any]]) -> None:
        """Keep the regions of a picture: their boxes (R, 4) as shares of it, and their arrays."""
        height, width = picture.shape[:2]
        with np.errstate(over="ignore"):
            features = extracted[FEATURES].astype(self.number)
        if not np.isfinite(features).all():
            raise CorpusError(
                f"{path}: {self.about['extractor']} gives a value that {self.number} cannot hold "
                f"({np.abs(extracted[FEATURES]).max():g}).\n  Add --number float32, or scale the features."
            )
        arrays = {**extracted, FEATURES: features, BOXES: shares.astype(np.float32)}
        about = {name: [value.dtype.name, value.shape[1] if value.ndim > 1 else 0] for name, value in arrays.items()}
        if len(shares) and self.arrays not in ({}, about):
            raise CorpusError(f"{path}: has {about}; the pictures before it have {self.arrays}.")
        for name, value in arrays.items():
            with (self.folder / f"{name}.bin").open("ab") as stream:
                stream.write(np.ascontiguousarray(value).tobytes())
        line = {"key": key, "regions": len(shares), "size": [width, height], "arrays": about, "state": _state(path)}
        with (self.folder / "pictures.jsonl").open("a", encoding="utf-8") as text:
            text.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.lines.append(line)
        self.done.add(key)

    def finish(self, names: Mapping[str, tuple[str, ...]]) -> FeatureCounts:
        """Join everything in the file, and remove the folder."""
        counts = [line["regions"] for line in self.lines]
        rows = sum(counts)
        small = {
            "keys": np.array([line["key"] for line in self.lines]), "offsets": np.cumsum([0, *counts]),
            "extractor": np.array(self.about["extractor"]),
            **{f"{name}_names": np.array(classes) for name, classes in names.items()},
        }  # fmt: skip
        with whole_file(self.out) as stage, zipfile.ZipFile(stage, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in small.items():
                with archive.open(f"{name}.npy", "w") as stream:
                    np.lib.format.write_array(stream, value, allow_pickle=False)
            for name, (kind, width) in self.arrays.items():
                header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (rows, width) if width else (rows,)}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array_header_1_0(stream, header)
                    with (self.folder / f"{name}.bin").open("rb") as raw:
                        shutil.copyfileobj(raw, stream, _COPIED)
        shutil.rmtree(self.folder)
        return FeatureCounts(len(counts), rows, self.arrays[FEATURES][1], 0)
