"""The page of `cloze probe`: tables and figures of one finding, as one HTML file."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from cloze.atomic import require_output, whole_file
from cloze.errors import UserError
from cloze.probes.finding import Finding, HeatMap, Plot, Table, cell_text, plain
from cloze.reports.figures import COLOURS, PlotLine, chart, heat_map
from cloze.reports.page import fill_page, is_page
from cloze.reports.sections import Figure


def render(finding: Finding, *, command: str = "", timestamp: datetime | None = None) -> str:
    """The page, as HTML text that refers to nothing outside itself."""
    return fill_page(
        "probe.html", timestamp, finding=finding, command=command,
        figures=[(figure(plot), legend(plot)) for plot in finding.plots],
        tables=[(table, _cells(table)) for table in finding.tables],
    )


def figure(plot: Plot | HeatMap) -> Figure:
    """A line chart of a plot, or a map of squares."""
    if isinstance(plot, HeatMap):
        map_of_squares = heat_map(plot.columns, plot.rows, plot.values, plot.points, title=plot.title, x=plot.x, y=plot.y)
        return Figure(plot.title, map_of_squares)
    lines = [
        PlotLine(name, list(points), number % COLOURS, marks=len(points) < 40, dashed=name in plot.dashed)
        for number, (name, points) in enumerate(plot.lines.items())
    ]
    return Figure(plot.title, chart(lines, title=plot.title, x=plot.x))


def _cells(table: Table) -> list[list[tuple[str, float]]]:
    """Every cell as text, and how dark it is, from 0 to 1: by the size of its number in a table that is shaded."""
    sizes = [[abs(cell) if table.shaded and isinstance(cell, float) else 0.0 for cell in row] for row in table.rows]
    most = max((size for row in sizes for size in row), default=0.0) or 1.0
    return [
        [(cell_text(cell), round(size / most, 3)) for cell, size in zip(row, row_sizes, strict=True)]
        for row, row_sizes in zip(table.rows, sizes, strict=True)
    ]


def legend(plot: Plot | HeatMap) -> list[tuple[str, int]]:
    """The names of the lines and their colours."""
    return [] if isinstance(plot, HeatMap) else [(name, number % COLOURS) for number, name in enumerate(plot.lines)]


def require_place(out: Path) -> None:
    """Raise a `UserError` if the result of a probe cannot be written into a folder without a loss."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file; expected a folder. Choose another name.")
    if out.is_dir():
        require_output(out / "probe.json", what="the result of a probe", holds=_holds_finding)
        require_output(out / "probe.html", what="a page of cloze", holds=is_page)


def _holds_finding(path: Path) -> bool:
    """Whether a file begins as `write_finding` writes it."""
    with path.open("rb") as file:
        return file.read(32).startswith(b'{\n "probe": ')


def write_finding(finding: Finding, out: Path, *, command: str = "") -> Path:
    """Write `probe.json` and `probe.html` into a folder, which is made; returns the page."""
    require_place(out)
    out.mkdir(parents=True, exist_ok=True)
    data = {"probe": finding.kind, "remarks": list(finding.remarks), "checkpoints": plain(finding.data)}
    with whole_file(out / "probe.json") as fresh:
        fresh.write_text(json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with whole_file(out / "probe.html") as fresh:
        fresh.write_text(render(finding, command=command), encoding="utf-8")
    return out / "probe.html"
