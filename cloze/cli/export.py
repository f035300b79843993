"""`cloze export`: vectors of words into a file that other tools open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    model: Annotated[Path, typer.Argument(help="A checkpoint, or a file of vectors to convert.")],
    out: Annotated[Path, typer.Argument(help="The file to write; a name ending in .gz packs it.")],
    to: Annotated[str, typer.Option(help="word2vec, word2vec-binary, glove or fasttext.")] = "word2vec",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there already.")] = False,
) -> None:
    """Write vectors as word2vec's text or binary file, GloVe's text, or fastText's .bin with its n-grams.

    Example: cloze export RUN vectors.bin --to word2vec-binary
    """
    from cloze.interop.vectors import write_vectors

    count, width, remarks = write_vectors(model, to, out, overwrite=overwrite)
    print(f"{out}: {count:,} vectors of width {width}")
    for remark in remarks:
        print(f"  {remark}")
