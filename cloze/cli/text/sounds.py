"""`cloze corpus sounds`: recorded words → a file of items for `cloze corpus build --items`."""

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
