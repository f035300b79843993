"""Runs the cells of a comparison that are missing, several at a time, until no more can be run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from cloze.comparison.answer import Answer, answer_of
from cloze.comparison.cell import FAILED, LOG, Cell, failure_of, write_json
from cloze.comparison.design import Design, checked
from cloze.comparison.grid import Grid
from cloze.comparison.page import write_page
from cloze.comparison.sentence import as_data
from cloze.corpus.readers.not_text import require_apart
from cloze.errors import CheckpointError
from cloze.jobs import Ended, Job, Workers
from cloze.training.log import duration

_STOPPED = {128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGINT}
_REFRESH = 20.0  # seconds between lines where the output is no terminal


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; finished cells stay, and runs have checkpoints."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(design: Design, out: Path, workers: Workers, *, say: Callable[[str], None] = lambda line: None) -> Grid:
    """The grid of a design, with every cell finished or failed.

    A cell that is finished is never run again, and a run that was stopped resumes. Raises a `UserError` for what cannot be
    compared before anything is written, and `Interrupted` after Ctrl-C.
    """
    design = checked(design)
    require_apart([*design.corpus, *(file for task in design.tasks for file in task[2:])], out)
    require_own(out)
    grid = Grid(design, out)
    if workers.count > 1 and any(budget.kind == "seconds" for budget in design.budgets):
        say("note: runs that share the cores get less done in their time; a budget in tokens or FLOPs is equal for all")
    progress = Progress(grid, workers.count, say=say)
    alone = threading.current_thread() is threading.main_thread()  # another thread cannot set handlers
    before = signal.signal(signal.SIGTERM, _interrupt) if alone else None
    try:
        _fill(grid, workers, progress)
    except KeyboardInterrupt as interrupt:
        workers.stop()
        raise Interrupted(128 + (signal.SIGTERM if interrupt.args else signal.SIGINT)) from None
    except BaseException:
        workers.stop()
        raise
    finally:
        if alone:
            signal.signal(signal.SIGTERM, before)
        progress.close()
    return grid


def finish(
    design: Design, out: Path, workers: Workers, *, command: str = "", reach: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Answer, Path]:
    """`run`, and the finding in `out`: the page and compare.json. `reach` is the score whose cost is shown."""
    grid = run(design, out, workers, say=say)
    answer = answer_of(grid, reach=reach)
    write_json(out / "compare.json", as_data(answer))
    return answer, write_page(answer, out, command=command)


def require_own(out: Path) -> None:
    """Refuse a folder that holds anything but a comparison."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out}: is a file; expected a folder for the comparison. Choose another --out.")
    foreign = [] if not out.exists() or (out / "cells").is_dir() else sorted(path.name for path in out.iterdir())
    if foreign:
        raise CheckpointError(f"{out}: holds {foreign[0]}, which no comparison wrote. Choose another --out.")


def _fill(grid: Grid, workers: Workers, progress: Progress) -> None:
    at_work: dict[str, Cell] = {}
    while True:
        for cell in grid.ready():
            if workers.running >= workers.count:
                break
            if cell.key not in at_work:
                folder = cell.write(grid.out)
                (folder / FAILED).unlink(missing_ok=True)
                at_work[cell.key] = cell
                progress.started(cell)
                workers.start(Job(cell.key, "cloze.comparison.work", (os.path.abspath(folder),), folder / LOG))
        progress.show()
        if not workers.running:
            return
        ended = workers.wait()
        cell = at_work.pop(ended.job.name)
        if grid.result(cell) is None:
            grid.failed[cell.key] = _reason(cell.folder(grid.out), ended)
        progress.ended(cell, grid.failed.get(cell.key))


def _reason(folder: Path, ended: Ended) -> str:
    """Why a cell failed; a process that was killed leaves no word, so it is written here."""
    known = failure_of(folder)
    if known is not None:
        return known
    if ended.code in _STOPPED:
        reason = "was stopped by a signal; the same command resumes it"
    elif ended.code < 0:
        name = signal.Signals(-ended.code).name
        short = "; usually the machine was short of memory" if ended.code == -signal.SIGKILL else ""
        reason = f"its process was ended by {name}{short}"
    else:
        reason = f"its process ended with exit code {ended.code}; see {folder / LOG}"
    write_json(folder / FAILED, {"reason": reason})
    return reason


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


class Progress:
    """Cells done of all, and the time left: a line that rewrites itself on a terminal, else one from time to time."""

    def __init__(self, grid: Grid, count: int, *, say: Callable[[str], None], stream: TextIO | None = None) -> None:
        self.grid, self.count, self.say, self.stream = grid, count, say, stream or sys.stderr
        self.total = Counter(grid.counts())
        done = {cell.key: cell.kind for cell in grid.cells() if grid.result(cell) is not None}
        self.done: Counter[str] = Counter(done.values())
        self.since: dict[str, float] = {}  # when cells were started
        self.took: dict[str, list[float]] = {}  # by kind, the seconds of the cells that this process has seen
        self.shown, self.width = -float("inf"), 0

    def started(self, cell: Cell) -> None:
        """A cell was started."""
        self.since[cell.key] = time.monotonic()

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell ended; a failure is told at once."""
        seconds = time.monotonic() - self.since.pop(cell.key)
        if failure is None:
            self.done[cell.kind] += 1
            self.took.setdefault(cell.kind, []).append(seconds)
        else:
            self.close()
            self.say(f"failed: {cell.label} ({cell.kind}): {failure.splitlines()[0]}")

    @property
    def left(self) -> float | None:
        """The seconds that are left, from the mean of each kind of cell; a kind that is not known yet takes as long as the
        slowest that is."""
        means = {kind: sum(own) / len(own) for kind, own in self.took.items()}
        if not means:
            return None
        left = self.total - self.done
        return sum(number * means.get(kind, max(means.values())) for kind, number in left.items()) / self.count

    def show(self) -> None:
        """Show how far it is."""
        now, live = time.monotonic(), self.stream.isatty()
        if not live and now - self.shown < _REFRESH:
            return
        self.shown = now
        left = "" if self.left is None else f", about {duration(self.left)} left"
        failed = f", {len(self.grid.failed)} failed" if self.grid.failed else ""
        line = f"{self.done.total()} of {self.total.total()} cells done{failed}, {len(self.since)} running{left}"
        self.stream.write("\r" + line.ljust(self.width) if live else line + "\n")
        self.stream.flush()
        self.width = len(line)

    def close(self) -> None:
        """End the rewritten line."""
        if self.stream.isatty() and self.width:
            self.stream.write("\n")
            self.width = 0
