"""How far a comparison is: cells done of all, how far the running ones are, and the time left."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from cloze.comparison.cell import LOG, Cell, Cells
from cloze.display import choose_display, duration
from cloze.errors import Say

REFRESH = 20.0  # seconds between lines where the output is no terminal
NAMED = 3  # running cells that the line names
_TAIL = 600  # bytes of a log, enough for its last line
_LEAST = 0.02  # a run that has done less than this share says little about its time


class StatusLine:
    """How far the cells are, on the display of this process or on a `stream`.

    The time left is that of the cells of each stage: the mean of those that this process has seen, and of those that run, as far
    as their logs say. If cells of some stage have not been seen yet, the line says "more than".
    """

    def __init__(self, grid: Cells, count: int, *, say: Say, stream: TextIO | None = None) -> None:
        self.grid, self.count, self.say, self.display = grid, count, say, choose_display(stream)
        self.total = Counter(grid.counts())
        done = {cell.key: cell.stage for cell in grid.cells() if grid.result(cell) is not None}
        self.done: Counter[str] = Counter(done.values())
        self.running: dict[str, tuple[Cell, float]] = {}  # and when they were started
        self.begun: dict[str, float] = {}  # the part of a run that an earlier process has done
        self.took: dict[str, list[float]] = {}  # by stage, the seconds of the cells that this process has seen
        self.shown = -float("inf")

    def started(self, cell: Cell) -> None:
        """A cell was started."""
        self.running[cell.key] = cell, time.monotonic()
        self.begun[cell.key] = self._part(cell, 0.0) or 0.0

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell ended; a failure is reported at once."""
        seconds = time.monotonic() - self.running.pop(cell.key)[1]
        if failure is None:
            self.done[cell.stage] += 1
            self.took.setdefault(cell.stage, []).append(seconds)
        else:
            self.display.keep()
            self.say(f"failed: {cell.label} ({cell.stage}): {failure.splitlines()[0]}")

    def show(self) -> None:
        """Show how far it is."""
        now = time.monotonic()
        if not self.display.live and now - self.shown < REFRESH:
            return
        self.shown = now
        parts = {cell.key: self._part(cell, began) for cell, began in self._clocks()}
        cells = [
            f"{cell.label}" + ("" if (part := parts[cell.key]) is None else f" {part:.0%}") for cell, _ in self.running.values()
        ]
        running = f"{len(self.running)} running ({', '.join(cells[:NAMED])}{', …' if len(cells) > NAMED else ''})"
        failed = f", {len(self.grid.failed)} failed" if self.grid.failed else ""
        end = f", {running}{self._left(parts, now)}" if self.running else ""
        done, total = self.done.total(), self.total.total()
        self.display.show(f"{done} of {total} cells done{failed}{end}", done / max(total, 1))

    def _part(self, cell: Cell, since: float) -> float | None:
        """How much of a cell is done, by its log if that is newer than `since`."""
        share = part_done(cell.folder(self.grid.out) / LOG, since)
        return None if share is None else share / cell.until

    def _clocks(self) -> Iterable[tuple[Cell, float]]:
        """The running cells, and when they were started by the clock of files."""
        behind = time.time() - time.monotonic()
        return [(cell, since + behind) for cell, since in self.running.values()]

    def _left(self, parts: dict[str, float | None], now: float) -> str:
        """The time left in words; nothing where nothing is known."""
        took = {kind: list(seconds) for kind, seconds in self.took.items()}
        spent = 0.0
        for cell, since in self.running.values():
            part = (parts[cell.key] or 0.0) - self.begun[cell.key]
            if part > _LEAST:
                took.setdefault(cell.stage, []).append((now - since) / part)
                spent += now - since
        if not took:
            return ""
        left = {kind: number for kind, number in (self.total - self.done).items() if number}
        seconds = sum(number * sum(took[kind]) / len(took[kind]) for kind, number in left.items() if kind in took) - spent
        measured = all(kind in took for kind in left)
        if not measured and seconds <= 0:
            return ""
        about = "about" if measured else "more than"
        return f", {about} {duration(max(seconds, 0.0) / self.count)} left"

    def close(self) -> None:
        """Leave the last line as it is."""
        self.display.keep()


def part_done(log: Path, since: float) -> float | None:
    """How much of its run a cell has done, by the last progress line of its log; None without one that is newer than `since`."""
    try:
        with log.open("rb") as file:
            if os.fstat(file.fileno()).st_mtime < since:
                return None
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            percentages = re.findall(rb"^step [\d,]+ +(\d+)%", file.read(), re.MULTILINE)
    except FileNotFoundError:
        return None
    return int(percentages[-1]) / 100 if percentages else None
