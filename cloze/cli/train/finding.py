"""What `cloze compare` and `cloze sweep` do with a finding: print it, say what comes next, and stop without a loss."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import typer

Finding = TypeVar("Finding")


class Forms(NamedTuple, Generic[Finding]):
    """How a finding is printed: as plain values for `--json`, as CSV, and as a table."""

    data: Callable[[Finding], Any]
    csv: Callable[[Finding], str]
    table: Callable[[Finding], str]


def show(
    finish: Callable[[], tuple[Finding, Path]], forms: Forms[Finding], out: Path, *, page: str, as_json: bool, csv: bool
) -> Finding:
    """Run `finish`, which gives a finding and its page, and print the finding. After a signal, exits with its code."""
    from cloze.comparison.compare import Interrupted
    from cloze.errors import UserError

    if as_json and csv:
        raise UserError("--json and --csv choose the format of the output. Give only one of them.")
    try:
        finding, page_path = finish()
    except Interrupted as stopped:
        typer.echo(
            f"Stopped. Finished cells are kept in {out}; its {page} shows the results so far. To resume, repeat the command.",
            err=True,
        )
        raise typer.Exit(stopped.code) from None
    if as_json:
        typer.echo(json.dumps(forms.data(finding), ensure_ascii=False, indent=2))
    else:
        typer.echo(forms.csv(finding) if csv else forms.table(finding), nl=not csv)
    typer.echo(f"Next: open {shlex.quote(str(page_path))} in a browser", err=True)
    return finding
