"""`cloze corpus sounds` and `pages`: recorded words → items, and a wiki → text and mentions, for `cloze corpus build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Device, Overwrite


def sounds(
    file: Annotated[Path, typer.Argument(
        help='JSON lines: {"audio": "a.wav", "text": "two words", "words": [[0.1, 0.4], [0.5, 1]]}'
    )],
    out: Annotated[Path, typer.Option(help="The .npz of items to write.")],
    model: Annotated[
        str | None,
        typer.Option(help="Instead of mel bands, the states of a trained network: ORG/NAME of the Hugging Face Hub or a folder."),
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="Evenly spaced frames per word.")] = 30,
    bands: Annotated[int | None, typer.Option(min=1, help="Mel bands per frame; default: 40.")] = None,
    audio: Annotated[str, typer.Option(help="The field with the path of the .wav, relative to the file.")] = "audio",
    words: Annotated[str, typer.Option(help="The field with the start and end of each word, in seconds.")] = "words",
    device: Device = "auto",
    overwrite: Overwrite = False,
) -> None:
    """Write the mel spectra of recorded words as items for a store (SpeechBERT), or the states of a network that reads sound.

    Example: cloze corpus sounds said.jsonl --out sounds.npz; cloze corpus build said.jsonl --items sounds=sounds.npz
    --picture audio --out STORE
    """
    from cloze.corpus.items.sounds import Bands, WordMeasure, write_sounds
    from cloze.decoding.progress import DecodingProgress
    from cloze.errors import CorpusError, counted

    measure: WordMeasure = Bands(frames, bands or 40)
    if model is not None:
        from cloze.interop.backbones import speech_network
        from cloze.training.precision import choose_device

        if bands is not None:
            raise CorpusError("--bands is for mel spectra; a network sets the width of its states. Omit --bands or --model.")
        measure = speech_network(model, frames=frames, device=choose_device(device))
    lines = file.read_bytes().count(b"\n") if file.is_file() else 0
    with DecodingProgress(lines, "recordings") as progress:
        counts = write_sounds(file, out, measure, audio=audio, words=words, overwrite=overwrite, report=progress)
    summary = f"{counted(counts.words, 'word')} of {counted(counts.recordings, 'recording')}"
    typer.echo(f"{out}: {summary}, {frames} × {measure.width} numbers each")
    if model is not None:
        typer.echo(f"  Tell speechbert the width of a frame: --set network.items.bands={measure.width}")


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
