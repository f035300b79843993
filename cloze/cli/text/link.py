"""`cloze link`: find the names of entities in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.hints import suggest


def command(
    paths: Annotated[list[str], typer.Argument(help="Text files, folders, globs, or python-docs.", show_default=False)],
    entities: Annotated[list[str], typer.Option(
        help="A tab-separated table of entities: id, label, aliases, type, description, count; without a header: id, label."
    )],
    out: Annotated[Path, typer.Option(help="The file of mentions to write, as JSON lines.")],
    text_format: Annotated[str, typer.Option("--format", help="As for cloze corpus build; default: detected per file.")] = "auto",
    column: Annotated[
        str | None, typer.Option("--text", help="In tables and JSON lines: the column or key with the text.")
    ] = None,
    least: Annotated[float, typer.Option(
        min=0.0, max=1.0, help="Skip ambiguous names: those whose most frequent entity has less than this share of their counts."
    )] = 0.0,
    shortest: Annotated[int, typer.Option(min=1, help="Skip names of fewer characters.")] = 2,
) -> None:
    """Link names of entities in a text to their ids: the longest match, and the most frequent entity of that name.

    Example: cloze link TEXT --entities entities.tsv --out mentions.jsonl
    """
    from cloze.corpus.readers.formats import with_column
    from cloze.knowledge.linking import link_text, linker_of

    linker = linker_of(entities, least=least, shortest=shortest)
    stats = link_text(paths, linker, out, format=with_column(text_format, column, None))
    typer.echo(
        f"{out}: {stats.mentions:,} mentions of {stats.entities:,} entities in {stats.sentences:,} of {stats.read:,} sentences; "
        f"{linker.ambiguous:,} of the names mean several entities"
    )
    suggest("cloze", "corpus", "build", *paths, "--annotate", f"entity=mentions:{out}", "--out", "STORE")
