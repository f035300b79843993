"""`cloze corpus pages`: WikiExtractor's output with links → text, and a file of mentions for `cloze corpus build --annotate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pages(
    paths: Annotated[list[str], typer.Argument(help="Files and folders written by WikiExtractor with --links.")],
    out: Annotated[Path, typer.Option(help="The folder to write: pages.txt and links.jsonl.")],
) -> None:
    """Split the pages of a wiki into plain text and a file that records which page each link leads to.

    Example: cloze corpus pages extracted/ --out PAGES; cloze corpus build PAGES/pages.txt
    --annotate link=mentions:PAGES/links.jsonl --out STORE
    """
    from cloze.errors import counted
    from cloze.knowledge.pages import write_pages

    counts = write_pages(paths, out)
    typer.echo(
        f"{out}: {counted(counts.pages, 'page')} with {counted(counts.links, 'link')} to each other; {counts.elsewhere:,} others "
        "lead elsewhere"
    )
