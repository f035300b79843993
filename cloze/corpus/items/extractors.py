"""Frozen extractors: the pixels of regions → features. Those of this module are not trained, so equal pictures give equal
features everywhere; `cloze.interop.backbones` has those that are.

An extractor is called with a picture (H, W, 3) and boxes (R, 4) in pixels, and gives features (R, F).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_store import FEATURES
from cloze.errors import CorpusError

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
NAMES = ("pixels", "random_conv")
_SIDE = 32  # of the crops that `random_conv` reads
_FILTERS = 32


class Extracted(NamedTuple):
    """The regions of a picture: `boxes` (R, 4) in pixels, and arrays of (R,) or (R, width), of which `features` is one."""

    boxes: Floats
    arrays: Mapping[str, NDArray[Any]]


class FeatureExtractor(ABC):
    """Makes features of regions. `name` is written into the file of features, with all that they depend on.

    Attributes:
        together: How many pictures are read together.
        divides: Whether it divides a picture into regions of its own where no boxes are given.
        classes: The names of classes, for each array of classes that it makes.
    """

    together: int = 1
    divides: bool = False
    classes: Mapping[str, tuple[str, ...]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """What the features depend on."""

    @abstractmethod
    def extract(self, pictures: Sequence[Pixels], boxes: Sequence[Floats | None]) -> list[Extracted]:
        """The regions of some pictures (H, W, 3). These are given by boxes (R, 4), x1, y1, x2, y2 in pixels; None: those of the
        extractor."""


class RegionFunction(FeatureExtractor):
    """An extractor that is a function of one picture and its boxes."""

    @abstractmethod
    def __call__(self, picture: Pixels, boxes: Floats) -> Floats:
        """Features (R, F) of the regions of a picture (H, W, 3), given by boxes (R, 4): x1, y1, x2, y2 in pixels."""

    def extract(self, pictures: Sequence[Pixels], boxes: Sequence[Floats | None]) -> list[Extracted]:
        return [
            Extracted(regions, {FEATURES: self(picture, regions)})
            for picture, regions in zip(pictures, boxes, strict=True) if regions is not None
        ]


@dataclass(frozen=True)
class SmallPictures(RegionFunction):
    """Each region as a picture of `side` x `side` pixels: F = 3 side² numbers from -1 to 1."""

    side: int = 8

    @property
    def name(self) -> str:
        return f"pixels side={self.side}"

    def __call__(self, picture: Pixels, boxes: Floats) -> Floats:
        return crops(picture, boxes, self.side).reshape(len(boxes), -1)


@dataclass(frozen=True)
class RandomConvolution(RegionFunction):
    """Two convolutions with random weights and ReLU, then the maxima over four quarters of the region, mapped to `width` numbers
    at random. Filters of random weights see edges and colours without any training (Saxe et al., On Random Weights and
    Unsupervised Feature Learning, 2011)."""

    width: int = 128
    seed: int = 0

    @property
    def name(self) -> str:
        return f"random_conv width={self.width} seed={self.seed}"

    @cached_property
    def _weights(self) -> tuple[Floats, Floats, Floats]:
        draw = np.random.Generator(np.random.Philox(self.seed))
        shapes = (27, _FILTERS), (9 * _FILTERS, _FILTERS), (4 * _FILTERS, self.width)
        first, second, last = (
            (draw.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32) for shape in shapes
        )
        return first, second, last

    def __call__(self, picture: Pixels, boxes: Floats) -> Floats:
        first, second, last = self._weights
        x = _convolved(crops(picture, boxes, _SIDE), first, stride=2)
        x = _convolved(x, second, stride=2)
        half = x.shape[1] // 2
        quarters = [x[:, i : i + half, j : j + half].max((1, 2)) for i in (0, half) for j in (0, half)]
        features: Floats = np.concatenate(quarters, axis=1) @ last
        return features


@dataclass(frozen=True)
class OwnFunction(RegionFunction):
    """The function `features` of a user's file; `file` is its name, `digest` the sha256 of its contents."""

    function: Callable[[Pixels, Floats], Any]
    file: str
    digest: str

    @property
    def name(self) -> str:
        return f"{self.file} sha256={self.digest}"

    def __call__(self, picture: Pixels, boxes: Floats) -> Floats:
        features = np.asarray(self.function(picture, boxes))
        if features.ndim != 2 or len(features) != len(boxes) or features.dtype.kind not in "fiu":
            raise CorpusError(
                f"{self.file}: features(picture, boxes) gave {features.dtype} {features.shape} for {len(boxes)} boxes; expected "
                f"numbers of the shape ({len(boxes)}, width)."
            )
        return features.astype(np.float32)


def crops(picture: Pixels, boxes: Floats, side: int) -> Floats:
    """The regions as pictures (R, side, side, 3) from -1 to 1: each pixel is the mean of what it covers."""
    height, width = picture.shape[:2]
    sums = np.zeros((height + 1, width + 1, 3), np.float64)
    sums[1:, 1:] = picture.cumsum(0, dtype=np.float64).cumsum(1)
    regions = np.zeros((len(boxes), side, side, 3), np.float32)
    for number, (left, top, right, bottom) in enumerate(boxes.tolist()):
        x_from, x_to = _edges(left, right, side, width)
        y_from, y_to = (edges[:, None] for edges in _edges(top, bottom, side, height))
        total = sums[y_to, x_to] - sums[y_from, x_to] - sums[y_to, x_from] + sums[y_from, x_from]
        area = ((y_to - y_from) * (x_to - x_from))[..., None]
        regions[number] = total / area / 127.5 - 1
    return regions


def _edges(low: float, high: float, parts: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where equal parts of an interval begin and end, in whole pixels of which each part has at least one."""
    edges = np.clip(np.floor(np.linspace(low, high, parts + 1) + 1e-3), 0, size).astype(np.int64)
    begin = np.minimum(edges[:-1], size - 1)
    return begin, np.maximum(edges[1:], begin + 1)


def _convolved(x: Floats, weight: Floats, *, stride: int) -> Floats:
    """3 x 3 convolution without padding, and ReLU: (R, S, S, C) with (9 C, F) to (R, S', S', F)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    activations: Floats = np.maximum(windows.reshape(*windows.shape[:3], -1) @ weight, 0)
    return activations
