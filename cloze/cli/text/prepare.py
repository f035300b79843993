"""`cloze corpus sounds` and `pages`: recorded words → items, and a wiki → text and mentions, for `cloze corpus build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Device, Overwrite

_FRAMES = 30  # that the recipe speechbert reads


def sounds(
    sources: Annotated[list[Path], typer.Argument(
        help='JSON lines: {"audio": "a.wav", "text": "two words", "words": [[0.1, 0.4], [0.5, 1]]}; a folder as LibriSpeech has '
        "it; or questions (.json) next to recordings, as Spoken-SQuAD has them."
    )],
    out: Annotated[Path, typer.Option(help="The .npz of items to write; texts are written next to it, as OUT.SOURCE.jsonl.")],
    alignments: Annotated[
        Path | None,
        typer.Option(help="The times of words where the sources have none: CTM, TextGrids, or a folder of them."),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out recordings without a usable alignment.")] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Instead of mel bands, the states of a trained network: ORG/NAME of the Hugging Face Hub or a folder."),
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="Evenly spaced frames per word.")] = _FRAMES,
    bands: Annotated[int | None, typer.Option(min=1, help="Mel bands per frame; default: 40.")] = None,
    highest: Annotated[
        float | None, typer.Option(min=100, help="The highest frequency of the mel bands in Hz; default: 8000.")
    ] = None,
    audio: Annotated[str, typer.Option(help="The field with the path of the recording, relative to the file.")] = "audio",
    words: Annotated[str, typer.Option(help="The field with the start and end of each word, in seconds.")] = "words",
    device: Device = "auto",
    overwrite: Overwrite = False,
) -> None:
    """Write the mel spectra of recorded words as items for a store (SpeechBERT), or the states of a network that reads sound.

    Example: cloze corpus sounds said.jsonl --out sounds.npz; cloze corpus build sounds.said.jsonl --items sounds=sounds.npz
    --picture audio --out STORE

    Recordings are .wav, or FLAC and others (extra `sounds`).
    """
    from cloze.corpus.items.alignments import Alignments
    from cloze.corpus.items.recordings import RecordingReader
    from cloze.corpus.items.sounds import Bands, WordMeasure, write_sounds
    from cloze.decoding.progress import DecodingProgress
    from cloze.errors import CorpusError, counted

    measure: WordMeasure = Bands(frames, bands or 40, highest or 8000.0)
    if model is not None:
        from cloze.interop.backbones import speech_network
        from cloze.training.precision import choose_device

        if bands is not None or highest is not None:
            option = "--bands" if bands is not None else "--highest"
            raise CorpusError(
                f"{option} is for mel spectra; a network reads all frequencies and sets the width of its states. Omit {option} "
                "or --model."
            )
        measure = speech_network(model, frames=frames, device=choose_device(device))
    skipped: list[str] = []
    reader = RecordingReader(audio, words, None if alignments is None else Alignments(alignments), skip, skipped)
    with DecodingProgress(sum(map(reader.count, sources)), "recordings") as progress:
        counts = write_sounds(sources, out, measure, reader=reader, overwrite=overwrite, report=progress)
    summary = f"{counted(counts.words, 'word')} of {counted(counts.recordings, 'recording')}"
    typer.echo(f"{out}: {summary}, {frames} × {measure.width} numbers each")
    for path in counts.texts:
        typer.echo(f"{path}: their texts, for cloze corpus build --picture {audio} and cloze finetune --picture {audio}")
    if skipped:
        names = ", ".join(skipped[:3]) + ", …" * (len(skipped) > 3)
        typer.echo(f"  {counted(len(skipped), 'recording')} without a usable alignment left out: {names}")
    if frames != _FRAMES:
        sets = f"--set network.items.frames={frames} --set stages.sounds.objectives.reconstruct.frames={frames}"
        typer.echo(f"  Tell speechbert the number of frames: {sets}")


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
