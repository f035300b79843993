"""The linear model on n-grams of each task, fitted once, next to which the candidates of a comparison stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from cloze.budget.label_counts import stage_recipes
from cloze.comparison.cell import RESULT, write_json
from cloze.comparison.design import Labels
from cloze.comparison.grid import Grid
from cloze.errors import ClozeError, MissingExtra
from cloze.runs.finetuning.tuned import texts_of
from cloze.runs.measuring import task_of_recipe
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.task import together
from cloze.text.encodings import reading_as


def measure_ngrams(grid: Grid, *, say: Callable[[str], None]) -> None:
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


def _measured(grid: Grid, labels: Labels) -> dict[str, object] | None:
    """The metric of a task on its test set, and how the model was fitted; None for a task that has no linear model."""
    task = task_of_recipe(stage_recipes(grid.design.task_recipes[labels.name])[-1])
    if task.linear() is None:
        return None
    train, dev, test = (
        together([task.read(file) for file in texts_of([path])]) for path in (labels.train, labels.dev, labels.test)
    )
    linear = fit_linear(task, train, dev)
    metrics = linear.metrics(test)
    return {"test": metrics[grid.design.metrics[labels.name].name], "metrics": metrics, **asdict(linear.fit)}
