"""The finding of a sweep as one HTML page, and the verb as a whole: run, then write the page and sweep.json."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import numpy as np

from cloze.atomic import whole_file
from cloze.comparison import standings
from cloze.comparison.cell import write_json
from cloze.comparison.compare import finished
from cloze.comparison.space import Range
from cloze.comparison.standings import Standing, SweepFinding, finding_of
from cloze.comparison.sweep import Rungs, Sweep, begun
from cloze.errors import Say
from cloze.jobs import Workers
from cloze.reports.figures import PlotLine, chart
from cloze.reports.page import fill_page
from cloze.reports.sections import Figure


def finish(
    sweep: Sweep, out: Path, workers: Workers, *, command: str = "", say: Say = lambda line: None
) -> tuple[SweepFinding, Path]:
    """`sweep.run`, and the finding in `out`: sweep.html and sweep.json.

    After Ctrl-C the finding holds what the finished cells say, and `Interrupted` is raised.
    """

    def write(rungs: Rungs) -> tuple[SweepFinding, Path]:
        finding = finding_of(rungs)
        write_json(out / "sweep.json", finding.data())
        return finding, write_page(finding, out, command=command)

    return finished(begun(sweep, out, workers, say=say), workers, write, say=say)


def write_page(finding: SweepFinding, out: Path, *, command: str = "") -> Path:
    """Write the page into the folder of the sweep."""
    target = out / "sweep.html"
    with whole_file(target) as fresh:
        fresh.write_text(render(finding, command=command), encoding="utf-8")
    return target


def render(finding: SweepFinding, *, command: str = "", timestamp: datetime | None = None) -> str:
    """The page, as HTML text that refers to nothing outside itself."""
    columns, rows = standings.rows(finding)
    return fill_page(
        "sweep.html",
        timestamp,
        sentence=standings.sentence(finding),
        notes=standings.notes(finding),
        curves=curves(finding),
        columns=columns,
        rows=rows,
        tasks=bool(finding.sweep.design.tasks),
        several=finding.sweep.design.seeds > 1,
        best="" if finding.best is None else str(finding.best.folder),
        first=finding.sweep.rungs[0],
        values=value_figures(finding),
        choices=choice_rows(finding),
        failures=finding.failures,
        command=command,
    )


def curves(finding: SweepFinding) -> list[Figure]:
    """The held-out loss of every trial against tokens; those that did not reach the end are faint."""
    trials = [standing for standing in finding.standings if standing.curve]
    reached = [standing for standing in trials if standing.seeds] or trials[:1]
    if not trials:
        return []
    lines = [
        PlotLine(
            _name(standing), [(row[0], row[3]) for row in standing.curve], reached.index(standing) if standing in reached else 0,
            faint=standing not in reached, marks=standing in reached,
        )
        for standing in reversed(trials)
    ]  # fmt: skip
    title = "Held-out loss against tokens"
    return [Figure(title, chart(lines, title=title, x="tokens"), wide=True)]


def value_figures(finding: SweepFinding) -> list[Figure]:
    """Of each range, the losses of all trials at the first rung against their values; the best trial has another colour."""
    charts = []
    for number, axis in enumerate(finding.sweep.space):
        if not isinstance(axis, Range):
            continue
        points = {
            standing.trial.number: (_value(standing, number), standing.losses[0])
            for standing in finding.standings if standing.losses
        }  # fmt: skip
        if axis.log:
            points = {key: (math.log10(x), y) for key, (x, y) in points.items()}
        best = finding.best.trial.number if finding.best is not None else None
        other_points = [point for key, point in points.items() if key != best]
        lines = [
            PlotLine("trials", other_points, 1, dots=True),
            PlotLine("best", [points[best]] if best in points else [], 0, dots=True)
        ]
        if points:
            picture = chart(
                lines, title=f"Loss against {axis.path}", x=axis.path, x_format="power" if axis.log else "plain", x_zero=False
            )
            charts.append(Figure(axis.path, picture))
    return charts


def choice_rows(finding: SweepFinding) -> list[tuple[str, list[list[str]]]]:
    """Of each list of choices a table: each value with the number of its trials, their best loss and their mean loss."""
    tables = []
    for number, axis in enumerate(finding.sweep.space):
        if isinstance(axis, Range):
            continue
        lines = []
        for value in axis.values:
            losses = [
                standing.losses[0] for standing in finding.standings if standing.losses and _text(standing, number) == value
            ]
            figures = [f"{min(losses):.4f}", f"{np.mean(losses):.4f}"] if losses else ["–", "–"]
            lines.append([value, str(len(losses)), *figures])
        tables.append((axis.path, lines))
    return tables


def _name(standing: Standing) -> str:
    return f"trial {standing.trial.number}"


def _text(standing: Standing, axis: int) -> str:
    return standing.trial.values[axis].split("=", 1)[1]


def _value(standing: Standing, axis: int) -> float:
    return float(_text(standing, axis))
