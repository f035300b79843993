"""What every probe gives: tables for the terminal, figures for the page, and data for programs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.errors import CheckpointError, UserError


@dataclass(frozen=True)
class Subject:
    """A checkpoint that is probed: its name in tables, its folder, and the step of its run if it is one of several."""

    name: str
    folder: Path
    step: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows of names and numbers under `columns`; `note` explains them. The page may shade the cells by their numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    shaded: bool = False


@dataclass(frozen=True)
class Plot:
    """Lines by name over `x`; `dashed` are those of controls and baselines."""

    title: str
    x: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    dashed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HeatMap:
    """`values` at the places `columns` by `rows` of a plane, whose axes are called `x` and `y`, and points on it by name."""

    title: str
    x: str
    y: str
    columns: Sequence[float]
    rows: Sequence[float]
    values: Sequence[Sequence[float]]
    points: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    Attributes:
        data: Plain JSON by checkpoint, or by pair of checkpoints (`A, B`).
        remarks: What to know about the figures.
    """

    kind: str
    title: str
    tables: Sequence[Table]
    plots: Sequence[Plot | HeatMap]
    data: Mapping[str, Any]
    remarks: Sequence[str] = ()


def subjects(folders: Sequence[Path], steps: str | None = None) -> list[Subject]:
    """The checkpoints to probe. With `steps`, `all` or numbers with commas, the saved steps of one run.

    Raises:
        UserError: `steps` is given with several folders, or names a step that was not kept.
    """
    if steps is None:
        names = unlike([Path(os.path.abspath(folder)).name for folder in folders], folders)  # a link has its own
        return [Subject(name, folder) for name, folder in zip(names, folders, strict=True)]
    if len(folders) != 1:
        raise UserError(f"--steps {steps}: expected the folder of one run, got {len(folders)}.")
    checkpoints = folders[0] / "cloze" / "checkpoints"
    by_step = {int(path.name[5:]): path for path in checkpoints.glob("step-*") if path.name[5:].isdigit()}
    if not by_step:
        raise CheckpointError(f"{folders[0]}: no saved steps; expected a run folder, as cloze pretrain writes it.")
    numbers = sorted(by_step) if steps == "all" else [int(text) if text.strip().isdigit() else -1 for text in steps.split(",")]
    missing = [number for number in numbers if number not in by_step]
    if missing:
        raise UserError(
            f"--steps {steps}: expected all, or steps of this run: {', '.join(map(str, sorted(by_step)))}.\n"
            "  To keep more in the next run: --set training.keep_steps=[100,1000]"
        )
    return [Subject(f"step {step:,}", by_step[step], step) for step in numbers]


def unlike(names: Sequence[str], paths: Sequence[Path | str]) -> list[str]:
    """Short names of files or folders, of which those that are alike give way to the paths."""
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def layer_name(number: int) -> str:
    """A row of states (N + 1, …) in tables and figures: the first is the input of layer 1."""
    return str(number) if number else "input"


def layer_table(title: str, columns: Mapping[str, Iterable[float]], note: str = "") -> Table:
    """Measures by name as a table with the top layer first: N + 1 values each, those of the input and of every layer, NaN where
    there is none."""
    rows = [[layer_name(n), *map(float, values)] for n, values in enumerate(zip(*columns.values(), strict=True))]
    return Table(title, ["layer", *columns], rows[::-1], note)


def cell_text(value: Any) -> str:
    """A cell of a table: three decimals, or two digits of a smaller number; NaN and None are a dash.

    >>> [cell_text(cell) for cell in (0.25, 0.00123, 0.0, float("nan"), 1234, "the")]
    ['0.250', '0.0012', '0.000', '–', '1,234', 'the']
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return f"{value:.2g}" if 0 < abs(value) < 0.0095 else f"{value:.3f}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def as_text(finding: Finding) -> str:
    """The tables and the remarks, as the terminal shows them."""
    parts = []
    for table in finding.tables:
        cells = [list(table.columns), *([cell_text(cell) for cell in row] for row in table.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
            for row in cells
        ]
        parts.append("\n".join([table.title, *(f"  {line}" for line in lines), *([f"  {table.note}"] if table.note else [])]))
    return "\n\n".join(parts + [f"note: {remark}" for remark in finding.remarks])


def plain(value: Any) -> Any:
    """Data as plain JSON: arrays as lists, NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(content) for key, content in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def by_layer_and_step(
    title: str, series: Mapping[str, Sequence[float]], subjects: Sequence[Subject], *,
    dashed: Mapping[str, Sequence[float]] | None = None,
) -> list[Plot]:
    """N + 1 values, those of the input and of every layer (NaN where there is none), as a figure: a line per checkpoint over its
    layers; and over the steps of a run, a line per layer."""

    def line(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(float(layer), float(y)) for layer, y in enumerate(values) if math.isfinite(y)]

    extra = {name: line(values) for name, values in (dashed or {}).items()}
    plots = [Plot(title, "layer", {**{name: line(values) for name, values in series.items()}, **extra}, frozenset(extra))]
    steps = [(float(subject.step), series[subject.name]) for subject in subjects if subject.step is not None]
    if len(steps) > 1:
        over = {
            f"layer {n}" if n else "input": [(step, float(values[n])) for step, values in steps if math.isfinite(values[n])]
            for n in range(min(len(values) for _, values in steps))
        }
        plots.append(Plot(f"{title}, over training", "step", over))
    return plots
