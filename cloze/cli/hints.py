"""The last line of a command: what to do next, on standard error so that standard output holds the result alone; and the command
that was typed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer


def print_next_step(run: Path) -> None:
    """Print how to resume a run, or else a command that uses it. Of several processes, only the first one prints."""
    from cloze.corpus.readers.hub_tables import with_dataset_names
    from cloze.processes import rank
    from cloze.reports.about_run import next_step

    if rank() == 0:
        typer.echo(with_dataset_names(next_step(run)), err=True)


def note_unfinished(folder: Path) -> None:
    """Print a note if the run of a folder has not ended, because its figures and predictions are then not those of its recipe."""
    from cloze.reports.about_run import unfinished

    if (sentence := unfinished(folder)) is not None:
        typer.echo(f"note: {sentence}", err=True)


def suggest(*words: object) -> None:
    """Print a command that makes sense next, its words quoted for the shell."""
    typer.echo(f"Next: {shlex.join(map(str, words))}", err=True)


def typed() -> str:
    """The command as the user typed it, for a page; empty if cloze was called from Python."""
    return shlex.join(["cloze", *sys.argv[1:]]) if Path(sys.argv[0]).name == "cloze" else ""
