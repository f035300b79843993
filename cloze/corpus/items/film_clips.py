"""Epochs over films: of each film, a few neighbouring clips."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.rng import Draw

Int64 = NDArray[np.int64]


class DrawnClips(NamedTuple):
    """The rows of an epoch: which record each is (N,), and how often it came before among those of its film (N,)."""

    record: Int64
    repeat: Int64


class FilmClips:
    """The records of films, in the order of their clips. `groups` (N,) is the film of each record.

    The clips of a film, one after another, are cut into stretches of `clips`; the last one is filled up with the first clips, and
    a film with fewer clips repeats them (UniVL, dataloader_howto100m.py).
    """

    def __init__(self, groups: Int64, clips: int) -> None:
        self.clips = clips
        self.order = np.argsort(groups, kind="stable")
        self.first = np.flatnonzero(np.diff(groups[self.order], prepend=-1))
        self.count = np.diff(np.append(self.first, len(groups)))

    def __len__(self) -> int:
        return len(self.first)

    def drawn(self, films: Int64, draw: Draw) -> DrawnClips:
        """One stretch of each of these films, drawn at random."""
        first, count = self.first[films, None], self.count[films, None]
        stretch = draw.integers("records/clips", -(-self.count[films] // self.clips))
        nth = np.arange(self.clips)
        clip = (stretch[:, None] * self.clips + nth) % count
        return DrawnClips(self.order[first + clip].ravel(), (nth // count).ravel())
