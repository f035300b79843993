"""`cloze report`: run folders into one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders that hold runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write. Default: report.html in the run, or here for several runs.")
    ] = None,
) -> None:
    """Write one HTML page about one run, or comparing several: curves, throughput, filled masks, recipe, environment.

    The page works offline and needs no other file. Example: cloze report runs/bert runs/electra --out compared.html
    """
    from cloze.reports.page import write_report

    print(f"report: {write_report(folders, out)}")
