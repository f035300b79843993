"""Puts a report together and writes it: one HTML file with its style, script and figures inside."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cloze.arguments import check_arguments
from cloze.atomic import require_output, whole_file
from cloze.errors import CheckpointError
from cloze.hub import name_of
from cloze.reports import sections
from cloze.reports.run import RecordedRun, find_runs, read_run

_TITLE = re.compile(" · cloze (report|look|probe|peek|compare|sweep)</title>".encode())


def fill_page(template: str, timestamp: datetime | None, **values: Any) -> str:
    """A template of this package as one HTML text that refers to nothing outside itself; `timestamp` is shown, by default now."""
    jinja = Environment(
        loader=PackageLoader("cloze.reports", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    timestamp = timestamp or datetime.now().astimezone()
    return jinja.get_template(template).render(made=timestamp.strftime("%Y-%m-%d %H:%M"), **values)


def render(runs: Sequence[RecordedRun], *, timestamp: datetime | None = None) -> str:
    """The page for one run or for several side by side, as HTML text that refers to nothing outside itself."""
    columns, rows = sections.comparison(runs)
    return fill_page(
        "page.html",
        timestamp,
        runs=runs,
        title=heading(runs),
        figures=sections.key_figures(runs[0]),
        columns=columns,
        rows=rows,
        losses=sections.loss_figures(runs),
        details=sections.detail_figures(runs),
        filled=[(run, sections.filled_masks(run)) for run in runs if run.samples],
        differences=sections.recipe_differences(runs) if len(runs) > 1 else [],
        environment=sections.environment_rows(runs),
    )


def heading(runs: Sequence[RecordedRun]) -> str:
    """What the page is about."""
    if len(runs) == 1:
        return str(runs[0].recipe.get("name") or runs[0].name)
    names = [run.name for run in runs]
    return " · ".join(names) if len(names) <= 3 else f"{len(names)} runs"


def unique_names(folders: Sequence[Path]) -> list[str]:
    """A short name per folder: the last part of its path as it was given, with parents added until all differ. A link keeps its
    own name, and a model of the hub has that by which it is known there."""
    parts = [Path(name.partition("@")[0] if (name := name_of(folder)) else os.path.abspath(folder)).parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


@check_arguments
def write_report(folders: Sequence[Path | str] | Path | str, out: Path | str | None = None) -> Path:
    """Write the report of one or several run folders.

    Args:
        folders: One run folder or several.
        out: The HTML file. None: `report.html` in the folder of a single run, in the current folder for several.

    Returns:
        The file.

    Raises:
        CheckpointError: A folder holds no run.
    """
    inputs = [folders] if isinstance(folders, (str, Path)) else folders
    run_folders = find_runs([Path(folder) for folder in inputs])
    if not run_folders:
        raise CheckpointError("no run folder was given.\n  cloze report takes the folders that cloze pretrain wrote.")
    target = Path(out) if out else (run_folders[0] / "report.html" if len(run_folders) == 1 else Path("report.html"))
    if target.exists():
        require_output(target, what="a page of cloze", holds=is_page)
    runs = [read_run(folder, name) for folder, name in zip(run_folders, unique_names(run_folders), strict=True)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as stage:
        stage.write_text(render(runs), encoding="utf-8")
    return target


def is_page(path: Path) -> bool:
    """Whether a file is a page that cloze wrote, by its title."""
    with path.open("rb") as file:
        return _TITLE.search(file.read(1 << 13)) is not None
