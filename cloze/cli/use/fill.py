"""`cloze fill`: the most probable words at every [MASK] of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with [MASK] where a word is missing.")] = None,
    file: Annotated[str | None, typer.Option(help="A text per line, or TSV, CSV, JSON lines, Parquet; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The column or JSON field with the text.")] = "text",
    top: Annotated[int, typer.Option(min=1, help="Number of words to show for each mask.")] = 5,
    language: Annotated[str | None, typer.Option(help="The language, if the network knows several; default: the first.")] = None,
    items: Annotated[
        list[str] | None, typer.Option("--items", help="Items of pictures: FILE, or NAME=FILE for each set.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="With --items: the key of the picture; default: the only one.")] = None,
    links: Annotated[
        str | None, typer.Option(help="Links of words to items of the picture: [[2, 8, 0]], or one such list per text.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Fill masked words, with probabilities. Example: cloze fill RUN "Paris is the capital of [MASK]."

    With a picture, for networks that read some: cloze fill RUN "a [MASK] cat" --items features.npz --picture 7.png

    A link is [start, end, item]: characters from start up to, not including, end; all numbers count from 0. A JSON line may have
    its own links.
    """
    from cloze.decoding.texts import gather, named_file

    inputs = gather(texts or [], file, field=field)

    from dataclasses import asdict, replace

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.filling import fill
    from cloze.decoding.links import given_links
    from cloze.decoding.pictures import shown_picture
    from cloze.decoding.reader_and_head import to_fill

    loaded = load_checkpoint(checkpoint, device)
    ready = to_fill(loaded, language=language)
    reader = replace(ready.reader, pictures=shown_picture(loaded, items or [], picture))
    source = named_file(texts or []) or file
    linked = given_links(loaded, reader, inputs, links, None if source == "-" else source, field)
    for filled in fill(reader, ready.head, inputs, top=top, links=linked):
        if as_json:
            import json

            print(json.dumps(asdict(filled), ensure_ascii=False))
            continue
        print(filled.best)
        for number, candidates in enumerate(filled.masks, start=1):
            for candidate in candidates:
                lead = f"  {number}  " if len(filled.masks) > 1 else "  "
                print(f"{lead}{candidate.probability:7.2%}  {candidate.word}")
