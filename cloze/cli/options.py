"""Options that several verbs take, each with one meaning and one line of help."""

from __future__ import annotations

from typing import Annotated

import typer

from cloze.errors import TaskError


def _read_as(context: typer.Context, encoding: str | None) -> str | None:
    """Read the files of the command in this encoding, and print a note for each that is not UTF-8."""
    if not context.resilient_parsing:
        from cloze.text.encodings import reading_as

        context.with_resource(reading_as(encoding, lambda line: typer.echo(line, err=True)))
    return encoding


Encoding = Annotated[str | None, typer.Option(
    "--encoding", callback=_read_as, help="Encoding of texts; default: detected."
)]
Batch = Annotated[int, typer.Option(min=1, help="Texts per batch.")]
Length = Annotated[int | None, typer.Option(min=2, help="Read this many tokens of a text; default: as in training.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")]
Columns = Annotated[str | None, typer.Option(help="For files without a header: column names, a,b,c.")]
FileFormat = Annotated[str | None, typer.Option("--format", help="tsv, csv, jsonl, parquet; default: by file name.")]
Quoting = Annotated[str, typer.Option(help="Quotes in tables: auto, none, standard.")]
Seed = Annotated[int | None, typer.Option(help="Seed of random choices; default: 0.")]
Task = Annotated[str | None, typer.Option(help="Which of several; or retrieval, link_prediction, ….")]
Candidates = Annotated[str | None, typer.Option(help="Wrong answers to rank per question: a number, or all.")]
Unknown = Annotated[str, typer.Option(help="What lacks a vector: skip, or zero.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def count_of(candidates: str) -> int | None:
    """How many wrong answers `--candidates` asks for; None: all."""
    if candidates == "all":
        return None
    if not candidates.isascii() or not candidates.isdigit() or int(candidates) < 1:
        raise TaskError(f"--candidates {candidates}: expected all, or the number of wrong answers to draw per question: 100.")
    return int(candidates)
