"""Sums by key that may exceed memory: sorted runs, in memory or on disk, merged in one pass with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.array_files import write_values

Keys = NDArray[np.uint64]
Sums = NDArray[np.float64]


class Runs:
    """Runs of ascending keys with a sum each, held in memory or spilled into `folder`. A key may be in several runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spilled: list[Path] = []
        self._runs: list[tuple[Keys, Sums]] = []

    def hold(self, keys: Keys, sums: Sums) -> None:
        """Keep a run in memory; the keys must ascend."""
        if len(keys):
            self._runs.append((keys, sums))

    def spill(self, keys: Keys, sums: Sums) -> None:
        """Keep a run on disk; the keys must ascend."""
        if not len(keys):
            return
        files = [self.folder / f"run-{len(self._runs):05d}.{kind}" for kind in ("keys", "sums")]
        write_values(files[0], keys)
        write_values(files[1], sums)
        self.spilled += files
        self._runs.append((_mapped(files[0], np.uint64), _mapped(files[1], np.float64)))

    def merged(self, block: int) -> Iterator[tuple[Keys, Sums]]:
        """Ascending keys, each once, with its whole sum, in blocks of about `block` entries."""
        runs = self._runs
        ahead = max(1, block // max(len(runs), 1))
        at = [0] * len(runs)
        while any(place < len(keys) for place, (keys, _) in zip(at, runs, strict=True)):
            # Up to the smallest of the keys that end the runs' next stretches, every run's part lies in its stretch.
            border = min(
                keys[min(place + ahead, len(keys)) - 1] for place, (keys, _) in zip(at, runs, strict=True) if place < len(keys)
            )
            ends = [
                place + int(np.searchsorted(keys[place : place + ahead], border, "right"))
                for place, (keys, _) in zip(at, runs, strict=True)
            ]
            parts = [(keys[low:high], sums[low:high]) for (keys, sums), low, high in zip(runs, at, ends, strict=True)]
            yield added(np.concatenate([keys for keys, _ in parts]), np.concatenate([sums for _, sums in parts]))
            at = ends

    def discard(self) -> None:
        """Forget every run and delete its files."""
        self._runs.clear()
        while self.spilled:
            self.spilled.pop().unlink()


def _mapped(path: Path, dtype: type) -> NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def added(keys: Keys, sums: Sums) -> tuple[Keys, Sums]:
    """Keys in any order, with repeats → ascending and unique, each with the total of its sums."""
    order = np.argsort(keys, kind="stable")
    keys, sums = keys[order], sums[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    return keys[first], np.add.reduceat(sums, first) if len(first) else sums
