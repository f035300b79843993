"""Sums by key that may be larger than memory: sorted runs on disk, merged in one pass of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Sums = NDArray[np.float64]


class Runs:
    """Runs of ascending keys with a sum each, on disk as soon as they are added. A key may be in several runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: list[int] = []

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, keys: Keys, sums: Sums) -> None:
        """Write one run; the keys must ascend."""
        if not len(keys):
            return
        keys.tofile(self._path("keys", len(self.sizes)))
        sums.tofile(self._path("sums", len(self.sizes)))
        self.sizes.append(len(keys))

    def merged(self, block: int) -> Iterator[tuple[Keys, Sums]]:
        """Ascending keys, each once, with its whole sum, in blocks of about `block` entries."""
        keys = [np.memmap(self._path("keys", n), dtype=np.uint64, mode="r").view(np.ndarray) for n in range(len(self.sizes))]
        sums = [np.memmap(self._path("sums", n), dtype=np.float64, mode="r").view(np.ndarray) for n in range(len(self.sizes))]
        ahead = max(1, block // max(len(keys), 1))
        at = [0] * len(keys)
        while any(place < len(run) for place, run in zip(at, keys, strict=True)):
            # Up to the smallest of the keys that end the runs' next stretches, every run's part lies in its stretch.
            border = min(run[min(place + ahead, len(run)) - 1] for place, run in zip(at, keys, strict=True) if place < len(run))
            ends = [
                place + int(np.searchsorted(run[place : place + ahead], border, "right"))
                for place, run in zip(at, keys, strict=True)
            ]
            parts = list(zip(at, ends, strict=True))
            found = np.concatenate([run[low:high] for run, (low, high) in zip(keys, parts, strict=True)])
            weighed = np.concatenate([run[low:high] for run, (low, high) in zip(sums, parts, strict=True)])
            yield added(found, weighed)
            at = ends

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"run-{number:05d}.{kind}"


def added(keys: Keys, sums: Sums) -> tuple[Keys, Sums]:
    """Keys in any order, perhaps several times → ascending, each once with the total of its sums."""
    order = np.argsort(keys, kind="stable")
    keys, sums = keys[order], sums[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    return keys[first], np.add.reduceat(sums, first) if len(first) else sums
