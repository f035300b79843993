"""Options that several verbs take, each with one meaning and one line of help."""

from __future__ import annotations

from typing import Annotated

import typer

Batch = Annotated[int, typer.Option(min=1, help="Texts per batch.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")]
Columns = Annotated[str | None, typer.Option(help="Column names, a,b,c, for files without a header.")]
FileFormat = Annotated[str | None, typer.Option("--format", help="tsv, csv, jsonl, parquet; default: by file name.")]
Quoting = Annotated[str, typer.Option(help="Quotes: auto, none, standard.")]
Seed = Annotated[int | None, typer.Option(help="The seed of what is drawn at random; default: 0.")]
Task = Annotated[str | None, typer.Option(help="One of several tasks; link_ or relation_prediction.")]
Unknown = Annotated[str, typer.Option(help="Without a vector: skip, or zero.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
