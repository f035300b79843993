"""Runs the cells of a comparison or a sweep that are missing, several at a time, until no more can be run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from cloze.comparison.answer import ComparisonResult, answer_of
from cloze.comparison.cell import FAILED, LOG, RESULT, Cell, Cells, failure_of, write_json
from cloze.comparison.design import Design, TaskFiles, checked
from cloze.comparison.grid import Grid
from cloze.comparison.page import write_page
from cloze.comparison.progress import REFRESH, StatusLine
from cloze.comparison.sentence import as_data, unequal
from cloze.corpus.readers.not_text import require_apart
from cloze.errors import CheckpointError, ClozeError, MissingExtra, Say
from cloze.jobs import Ended, Job, LocalWorkers, Workers
from cloze.recipe.stages import stage_recipes
from cloze.runs.finetuning.measure_result import text_files_of
from cloze.runs.recipe_tasks import task_of_recipe
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.task import join_examples
from cloze.text.encodings import reading_as
from cloze.training.precision import choose_device

Own = TypeVar("Own", bound=Cells)
Finding = TypeVar("Finding")

#: The work of a cell, and what it may need of other packages: a linear model needs scikit-learn.
WORK = "cloze.comparison.work"
IMPORTS = (WORK, "numba", "sklearn.linear_model", "sklearn.feature_extraction.text")
_STOPPED = {128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGINT}


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; finished cells stay, and runs have checkpoints."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(design: Design, out: Path, workers: Workers, *, say: Say = lambda line: None) -> Grid:
    """The grid of a design, with every cell finished or failed.

    A cell that is finished is never run again, and a run that was stopped resumes. Raises a `UserError` for what cannot be
    compared before anything is written, and `Interrupted` after Ctrl-C.
    """
    grid = Grid(checked(design), out)
    begin(design, out, workers, say=say)
    fill(grid, workers, say=say)
    return grid


def begin(design: Design, out: Path, workers: Workers, *, say: Say) -> None:
    """Refuse a folder that cannot be used, and a device that this machine does not have if the cells run here."""
    require_apart([*design.corpus, *(file for task in design.tasks for file in task[2:])], out)
    require_own(out)
    if isinstance(workers, LocalWorkers):
        choose_device(design.device)
    if workers.count > 1 and any(budget.kind == "seconds" for budget in design.budgets):
        say("note: runs that share the cores get less done in their time; a budget in tokens or FLOPs is equal for all")


def fill(grid: Cells, workers: Workers, *, say: Say = lambda line: None) -> None:
    """Run cells until none is ready. Raises `Interrupted` after Ctrl-C or SIGTERM."""
    progress = StatusLine(grid, workers.count, say=say)
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


def finish(
    design: Design, out: Path, workers: Workers, *, command: str = "", reach: float | None = None,
    say: Say = lambda line: None,
) -> tuple[ComparisonResult, Path]:
    """`run`, and the finding in `out`: the page and compare.json. `reach` is the score whose cost is shown.

    After Ctrl-C the finding holds what the finished cells say, and `Interrupted` is raised.
    """

    def write(grid: Grid) -> tuple[ComparisonResult, Path]:
        answer = answer_of(grid, reach=reach)
        write_json(out / "compare.json", as_data(answer))
        return answer, write_page(answer, out, command=command)

    grid = Grid(checked(design), out)
    begin(design, out, workers, say=say)
    for line in unequal(grid.design):
        say(f"note: {line}")
    if design.baselines:
        fit_ngrams(grid, say=say)
    return finished(grid, workers, write, say=say)


def fit_ngrams(grid: Grid, *, say: Say) -> None:
    """Fit the linear model of every task that has one and no result yet. Where none can be fitted, a line says why."""
    for task in grid.design.tasks:
        cell = grid.ngrams(task)
        if grid.result(cell) is not None:
            continue
        try:
            with reading_as(grid.design.encoding, say):
                result = _measured(grid, task)
        except MissingExtra as error:
            say(f"note: {error}")
            return
        except Exception as error:  # a comparison of networks does not depend on it
            reason = str(error) if isinstance(error, ClozeError) else f"{type(error).__name__}: {error}"
            say(f"note: {task.name}: no linear model on n-grams: {reason}")
            continue
        if result is not None:
            write_json(cell.write(grid.out) / RESULT, result)
            say(f"{task.name}: a linear model on n-grams, fitted in {result['seconds']:.1f} s, for comparison")


def _measured(grid: Grid, labels: TaskFiles) -> dict[str, object] | None:
    """The metric of a task on its test set, and how the model was fitted; None for a task that has no linear model."""
    task = task_of_recipe(stage_recipes(grid.design.task_recipes[labels.name])[-1])
    if task.linear() is None:
        return None
    train, dev, test = (
        join_examples([task.read(file) for file in text_files_of([path])]) for path in (labels.train, labels.dev, labels.test)
    )
    linear = fit_linear(task, train, dev)
    metrics = linear.measure(test)
    return {"test": metrics[grid.design.metrics[labels.name].name], "metrics": metrics, **asdict(linear.fit)}


def finished(cells: Own, workers: Workers, write: Callable[[Own], Finding], *, say: Say) -> Finding:
    """`fill`, and what `write` writes about the cells; also after Ctrl-C, when `Interrupted` is raised."""
    try:
        fill(cells, workers, say=say)
    except Interrupted:
        write(cells)
        raise
    return write(cells)


def require_own(out: Path) -> None:
    """Refuse a folder that holds anything but cells and the texts of a call from Python."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out}: is a file; expected a new folder or one with cells. Choose another --out.")
    foreign = [] if not out.exists() or (out / "cells").is_dir() else sorted(path.name for path in out.iterdir())
    if [path.name for path in out.glob("cloze/*")] == ["corpus"]:  # texts that were given in memory
        foreign = [name for name in foreign if name != "cloze"]
    if foreign:
        raise CheckpointError(f"{out}: holds {foreign[0]}, which no comparison or sweep wrote. Choose another --out.")


def _fill(grid: Cells, workers: Workers, progress: StatusLine) -> None:
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
                words = os.path.abspath(folder), *cell.words
                workers.start(Job(cell.key, WORK, words, folder / LOG, IMPORTS))
        progress.show()
        if not workers.running:
            return
        ended = workers.wait(REFRESH)
        if ended is None:
            continue
        cell = at_work.pop(ended.job.name)
        if grid.result(cell) is None:
            grid.failed[cell.key] = _reason(cell.folder(grid.out), ended)
        progress.ended(cell, grid.failed.get(cell.key))


def _reason(folder: Path, ended: Ended) -> str:
    """Why a cell failed; a process that was killed leaves no word, so it is written here."""
    failure = failure_of(folder)
    if failure is not None:
        return failure
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
