"""`cloze neighbours`: the words nearest to a word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles


def command(
    model: Annotated[Path, typer.Argument(help="A checkpoint, or a file of word2vec, GloVe or fastText, also compressed.")],
    words: Annotated[list[str], typer.Argument(help="Words to look up.")],
    count: Annotated[int, typer.Option(min=1, help="Neighbours per word.")] = 10,
    restrict: Annotated[int | None, typer.Option(min=1, help="Search only the first N words (the most frequent).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Find the words whose vectors have the highest cosine similarity to a word's. Example: cloze neighbours RUN king queen

    Any checkpoint with a vector for every token works, including BERT. An unseen word has neighbours only if the model has
    character n-grams (fastText).
    """
    from cloze.cli.vectors import note_alike, note_zeros, opened, table
    from cloze.decoding.vectors.neighbours import neighbours

    vectors = opened(model)
    lists = neighbours(vectors, words, count=count, restrict=restrict)
    note_zeros(vectors, lists, count, restrict)
    note_alike(vectors)
    if as_json:
        import json

        print(json.dumps([
            {"word": word, "neighbours": [near._asdict() for near in nearest]}
            for word, nearest in zip(words, lists, strict=True)
        ], indent=2, ensure_ascii=False))  # fmt: skip
        return
    for word, nearest in zip(words, lists, strict=True):
        print(word)
        print(table(nearest, "  "))
