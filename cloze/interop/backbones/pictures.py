"""Trained networks of pictures as extractors of features: cells of the last map, means of the map over boxes, or crops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.items.extractors import Extracted, FeatureExtractor, Floats, Pixels
from cloze.corpus.items.item_store import CLASS, FEATURES, SCORE
from cloze.errors import CheckpointError

#: The array of the probabilities of all classes, as recipes call it.
PROBABILITIES = "probabilities"


class Maps(NamedTuple):
    """What a network makes of pictures: the `cells` (B, H, W, C) of its last map, and the `logits` (B, K) of its classifier."""

    cells: Tensor
    logits: Tensor | None = None


class PictureNetwork(ABC):
    """A trained network of pictures.

    Attributes:
        label: What it is called, with all that its weights depend on.
        side: Height and width of the pictures that it reads.
        classes: The names of the classes of its classifier; none if it has none.
    """

    label: str
    side: tuple[int, int]
    classes: tuple[str, ...] = ()

    @abstractmethod
    def prepare(self, pictures: Sequence[Pixels]) -> Tensor:
        """Pictures (H, W, 3) of any size as one tensor (B, 3, height, width), the whole of each picture."""

    @abstractmethod
    def run(self, pixels: Tensor) -> Maps:
        """What the network makes of prepared pictures."""


class TrainedExtractor(FeatureExtractor):
    """The features of regions by a trained network, which sees the whole of a picture at its own size.

    Without boxes, every cell of the last map is a region, in rows from the top left. A box has the mean of the map over it, where
    a cell counts as much as the box covers of it: grid features (Jiang et al., In Defense of Grid Features for Visual Question
    Answering, 2020, §3) and pooled regions (Girshick, Fast R-CNN, 2015, §2.1).
    With `crops`, each region is cut out and read as a picture of its own, and has the mean of its map; a classifier adds the
    arrays `class`, `score` and `probabilities` (Girshick et al., Rich Feature Hierarchies, 2014, §2.2).
    Differs: Fast R-CNN takes maxima over 7 x 7 bins of a region, and a mean is taken here; crops have no margin.
    """

    def __init__(self, network: PictureNetwork, *, crops: bool = False, together: int = 8) -> None:
        if crops and not network.classes:
            self.classes = {}
        elif crops:
            self.classes = {CLASS: network.classes}
        self.network, self.crops, self.together, self.divides = network, crops, together, not crops

    @property
    def name(self) -> str:
        return f"{self.network.label}{' crops' if self.crops else ''}"

    def extract(self, pictures: Sequence[Pixels], boxes: Sequence[Floats | None]) -> list[Extracted]:
        if self.crops:
            return [self._cropped(*pair) for pair in zip(pictures, boxes, strict=True)]
        maps = self._run(pictures).cells
        return [_pooled(*triple) for triple in zip(maps, pictures, boxes, strict=True)]

    def _run(self, pictures: Sequence[Pixels]) -> Maps:
        with torch.inference_mode():
            cells, logits = self.network.run(self.network.prepare(pictures))
            return Maps(cells.float().cpu(), None if logits is None else logits.float().cpu())

    def _cropped(self, picture: Pixels, boxes: Floats | None) -> Extracted:
        if boxes is None:
            raise CheckpointError("crops need regions, and a picture has none. Give its boxes.")
        crops = [_crop(picture, box) for box in boxes]
        runs = [self._run(crops[start : start + self.together]) for start in range(0, max(len(crops), 1), self.together) if crops]
        if not runs:
            return Extracted(boxes, {FEATURES: np.zeros((0, 1), np.float32)})
        arrays: dict[str, NDArray[np.generic]] = {FEATURES: torch.cat([run.cells.mean((1, 2)) for run in runs]).numpy()}
        logits = [run.logits for run in runs if run.logits is not None]
        return Extracted(boxes, arrays | (_classified(torch.cat(logits)) if logits else {}))


def _classified(logits: Tensor) -> dict[str, NDArray[np.generic]]:
    """The arrays of classes for logits (R, K)."""
    probabilities = logits.softmax(1)
    score, number = probabilities.max(1)
    return {CLASS: number.int().numpy(), SCORE: score.numpy(), PROBABILITIES: probabilities.numpy()}


def _crop(picture: Pixels, box: Floats) -> Pixels:
    """The pixels that a box touches, at least one."""
    height, width = picture.shape[:2]
    left, top = (min(int(np.floor(edge + 1e-3)), size - 1) for edge, size in zip(box[:2], (width, height), strict=True))
    right, bottom = (int(np.ceil(edge - 1e-3)) for edge in box[2:])
    return picture[top : max(bottom, top + 1), left : max(right, left + 1)]


def _pooled(cells: Tensor, picture: Pixels, boxes: Floats | None) -> Extracted:
    """The regions of a picture with the map (H, W, C)."""
    height, width = picture.shape[:2]
    rows, columns, channels = cells.shape
    sides = np.array([width, height] * 2, np.float32)
    if boxes is None:
        x, y = np.meshgrid(np.arange(columns), np.arange(rows))
        corner = np.stack([x, y], -1).reshape(-1, 2)
        shares = np.concatenate([corner, corner + 1], 1) / np.array([columns, rows] * 2)
        return Extracted((shares * sides).astype(np.float32), {FEATURES: cells.reshape(-1, channels).numpy()})
    shares = boxes / sides
    across, down = _covered(shares[:, 0], shares[:, 2], columns), _covered(shares[:, 1], shares[:, 3], rows)
    return Extracted(boxes, {FEATURES: torch.einsum("rh,rw,hwc->rc", down, across, cells).numpy()})


def _covered(low: Floats, high: Floats, parts: int) -> Tensor:
    """The share of each interval (R,) of a line that lies in each of its equal parts, (R, parts); of one without length, the part
    that it lies in."""
    begin, end = low.astype(np.float64)[:, None] * parts, high.astype(np.float64)[:, None] * parts
    middle = np.clip((begin + end) / 2, 1e-6, parts - 1e-6)
    begin, end = np.minimum(begin, middle - 1e-6), np.maximum(end, middle + 1e-6)
    edges = np.arange(parts)
    overlap = np.clip(np.minimum(end, edges + 1) - np.maximum(begin, edges), 0, None)
    return torch.from_numpy((overlap / overlap.sum(1, keepdims=True)).astype(np.float32))


def resized(picture: Pixels, side: tuple[int, int], resample: int) -> NDArray[np.uint8]:
    """A picture at the height and width `side`, by Pillow's filter `resample`."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((side[1], side[0]), resample=Image.Resampling(resample)))


def class_names(labels: Mapping[int, str] | Sequence[str], count: int) -> tuple[str, ...]:
    """The names of classes in the order of their numbers; those without one are called by their number."""
    names = dict(labels) if isinstance(labels, Mapping) else dict(enumerate(labels))
    return tuple(" ".join(str(names.get(number, number)).split()) or str(number) for number in range(count))
