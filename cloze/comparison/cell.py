"""A cell of a comparison or a sweep: a folder with a run in it.

    CELL/cell.json     what the result depends on (`identity`) and where its inputs are (`request`)
    CELL/run           the run folder of `cloze pretrain` or `cloze finetune`
    CELL/result.json   what was measured; its presence says that the cell is finished
    CELL/result-0.3.json   the same after a share of the budget, at which the run paused: a cell of its own with the same folder
    CELL/failed.json   why the last try failed
    CELL/log.txt       what the run printed

The name of the folder ends in a hash of the identity, so a cell is found again by what it is, wherever the folder was copied.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol

from cloze.atomic import whole_file

Kind = Literal["corpus", "pretrain", "finetune", "ngrams", "texts", "fasttext", "network", "curve", "tune"]
RESULT, FAILED, CELL, LOG = "result.json", "failed.json", "cell.json", "log.txt"


@dataclass(frozen=True)
class Cell:
    """A cell by its identity; `label` makes the name of its folder readable, `request` says where its inputs are.

    A run that pauses at the shares `until` of its budget is a cell at each of them, all in one folder.
    """

    kind: Kind
    label: str
    identity: Mapping[str, Any]
    request: Mapping[str, Any]
    until: float = 1.0

    @cached_property
    def digest(self) -> str:
        """A hash of the identity."""
        return sha256(json.dumps([self.kind, self.identity], sort_keys=True).encode()).hexdigest()[:12]

    @property
    def key(self) -> str:
        """What tells it from all other cells."""
        return self.digest if self.until == 1 else f"{self.digest} until {self.until}"

    @property
    def stage(self) -> str:
        """Its kind and how far it goes, for people."""
        return self.kind if self.until == 1 else f"{self.kind} until {self.until:g}"

    @property
    def words(self) -> tuple[str, ...]:
        """What its process is told besides the folder."""
        return () if self.until == 1 else (str(self.until),)

    def folder(self, out: Path) -> Path:
        """Its folder in a comparison: the one that is there, even if a candidate had another name then."""
        cells = out / "cells"
        readable = cells / f"{self.kind}-{re.sub(r'[^A-Za-z0-9.=_]+', '-', self.label)[:60].strip('-')}-{self.digest}"
        if readable.is_dir() or not cells.is_dir():
            return readable
        return cells / _folders(cells, cells.stat().st_mtime_ns).get((self.kind, self.digest), readable.name)

    def write(self, out: Path) -> Path:
        """Its folder, with the description in it."""
        folder = self.folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CELL, {"kind": self.kind, "identity": self.identity, "request": self.request})
        return folder


@lru_cache(maxsize=4)
def _folders(cells: Path, changed: int) -> Mapping[tuple[str, str], str]:
    """The folders of cells by kind and digest; listed again when the folder around them was `changed`."""
    return {(name.partition("-")[0], name.rpartition("-")[2]): name for name in sorted(os.listdir(cells))}


class Cells(Protocol):
    """Cells in a folder that lead to an answer: a comparison's (`Grid`) or a sweep's (`Rungs`)."""

    out: Path

    @property
    def failed(self) -> dict[str, str]:
        """Why cells failed since it was made, by key; what runs them adds to it."""

    def cells(self) -> Iterable[Cell]:
        """Every cell that can be named so far; some may be named twice."""

    def ready(self) -> list[Cell]:
        """The cells to work on now, each once."""

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, None where it is not finished."""

    def counts(self) -> dict[str, int]:
        """How many cells of each stage there will be, if none fails."""


def planned(cells: Cells) -> list[str]:
    """Lines that say how many cells of each stage there will be, and how many of them are finished."""
    counts = cells.counts()
    done = Counter({cell.key: cell.stage for cell in cells.cells() if cells.result(cell) is not None}.values())
    width = max(map(len, counts), default=0)
    return [
        f"{stage:<{width}} {count:>5,} {'cell' if count == 1 else 'cells'}{f', {done[stage]:,} finished' if done[stage] else ''}"
        for stage, count in counts.items()
    ]


def result_file(until: float) -> str:
    """The name of the file with the result at a share of the budget."""
    return RESULT if until == 1 else f"result-{until}.json"


def result_of(folder: Path, until: float = 1.0) -> dict[str, Any] | None:
    """The result of a finished cell; None where there is none."""
    return read_json(folder / result_file(until))


def failure_of(folder: Path) -> str | None:
    """Why the last try failed; None where none did."""
    failure = read_json(folder / FAILED)
    return None if failure is None else str(failure["reason"])


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file; None where there is none, or only part of one, as a copy that was interrupted leaves it."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    with whole_file(path) as fresh:
        fresh.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
