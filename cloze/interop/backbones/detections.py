"""The output of torchvision's detectors, as torch.save writes it → the regions of pictures."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.items.features import BoxFile, Regions, read_boxes
from cloze.corpus.items.item_store import BOXES, CLASS, SCORE
from cloze.errors import CorpusError
from cloze.untrusted import require_ordinary

_ENDINGS = (".pt", ".pth")
_NAMES = {"labels": CLASS, "scores": SCORE}
_ENTRY = "{'boxes': (R, 4), 'labels': (R,), 'scores': (R,)}"


def read_any_boxes(path: Path, keys: Sequence[str]) -> BoxFile:
    """The regions of the pictures `keys` in a file of boxes: `.pt` by `read_detections`, others by `corpus.items.read_boxes`."""
    return read_detections(path, keys) if path.suffix in _ENDINGS else read_boxes(path)


def read_detections(path: Path, keys: Sequence[str]) -> BoxFile:
    """The regions of a file that torch saved: a list with `{boxes, labels, scores}` of each picture, in the order of their `keys`
    (sorted paths), or a dictionary of these by key. Boxes are x1, y1, x2, y2 in pixels; labels and scores become the arrays
    `class` and `score`, and other arrays of as many entries keep their names.

    It is read with `weights_only`, so nothing in it is run. Raises `CorpusError` for anything else.
    """
    content = _loaded(path)
    if isinstance(content, Mapping) and not isinstance(content.get(BOXES), Tensor):
        entries = {str(key): entry for key, entry in content.items()}
    elif isinstance(content, (list, tuple)) and len(content) == len(keys):
        entries = dict(zip(keys, content, strict=True))
    elif isinstance(content, (list, tuple)):
        raise CorpusError(
            f"{path}: has the detections of {len(content):,} pictures, and the folder has {len(keys):,}.\n"
            "  Save them by key, torch.save({'dog.jpg': detections, …}, FILE), or one for each picture in the order of names."
        )
    else:
        raise CorpusError(f"{path}: holds a {type(content).__name__}; expected a list of {_ENTRY}, one for each picture.")
    return BoxFile({key: _regions(f"{path}: {key!r}", entry) for key, entry in entries.items()}, {})


def _loaded(path: Path) -> Any:
    if not path.exists():
        raise CorpusError(f"{path}: no such file; expected detections that torch saved.")
    try:
        require_ordinary(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the protocol of a file that is not torch's
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch raises nearly every kind for a damaged or refused file, with advice to run its code
        raise CorpusError(
            f"{path}: torch does not read it as tensors alone: it is damaged, or holds objects. Expected a list of {_ENTRY}."
        ) from None


def _regions(where: str, entry: Any) -> Regions:
    if not isinstance(entry, Mapping) or BOXES not in entry:
        raise CorpusError(f"{where}: holds a {type(entry).__name__} without boxes; expected {_ENTRY}.")
    arrays = {str(name): _array(value) for name, value in entry.items() if isinstance(value, (Tensor, list))}
    boxes = arrays.pop(BOXES, np.zeros(0, np.float32)).astype(np.float32)
    boxes = boxes if boxes.size else np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise CorpusError(f"{where}: boxes have the shape {boxes.shape}; expected (regions, 4): x1, y1, x2, y2.")
    region_arrays = {_NAMES.get(name, name): value for name, value in arrays.items() if value.ndim in (1, 2)}  # no masks
    wrong = ", ".join(f"{name} {len(value)}" for name, value in region_arrays.items() if len(value) != len(boxes))
    if wrong:
        raise CorpusError(f"{where}: {len(boxes)} boxes, but {wrong}; expected one entry for each box.")
    return Regions(boxes, region_arrays)


def _array(value: Any) -> NDArray[Any]:
    array = torch.as_tensor(value).numpy()
    return array.astype(np.int32 if array.dtype.kind in "iub" else np.float32)
