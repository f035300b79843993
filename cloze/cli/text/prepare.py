"""`cloze corpus sounds` and `pages`: recorded words → items, and a wiki → text and mentions, for `cloze corpus build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Overwrite


def sounds(
    file: Annotated[Path, typer.Argument(
        help='JSON lines: {"audio": "a.wav", "text": "two words", "words": [[0.1, 0.4], [0.5, 1]]}'
    )],
    out: Annotated[Path, typer.Option(help="The .npz of items to write.")],
    frames: Annotated[int, typer.Option(min=1, help="Evenly spaced frames per word.")] = 30,
    bands: Annotated[int, typer.Option(min=1, help="Mel bands per frame.")] = 40,
    audio: Annotated[str, typer.Option(help="The field with the path of the .wav, relative to the file.")] = "audio",
    words: Annotated[str, typer.Option(help="The field with the start and end of each word, in seconds.")] = "words",
    overwrite: Overwrite = False,
) -> None:
    """Write the mel spectra of recorded words as items for a store (SpeechBERT).

    Example: cloze corpus sounds said.jsonl --out sounds.npz; cloze corpus build said.jsonl --items sounds=sounds.npz
    --picture audio --out STORE
    """
    from cloze.corpus.items.sounds import Bands, write_sounds
    from cloze.errors import counted

    counts = write_sounds(file, out, Bands(frames, bands), audio=audio, words=words, overwrite=overwrite)
    summary = f"{counted(counts.words, 'word')} of {counted(counts.recordings, 'recording')}"
    typer.echo(f"{out}: {summary}, {frames} × {bands} numbers each")


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
