"""Options that several verbs take, each with one meaning and one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.errors import TaskError
from cloze.runs.options import ENCODING, ITEMS, WITH_FILES

Encoding = Annotated[str | None, ENCODING]
WithFiles = Annotated[list[Path] | None, WITH_FILES]
Items = Annotated[list[str] | None, ITEMS]
Annotate = Annotated[list[str] | None, typer.Option(help="Annotators, such as entity=mentions:FILE.")]
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
