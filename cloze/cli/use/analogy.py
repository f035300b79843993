"""`cloze analogy`: a is to b as c is to what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles


def command(
    model: Annotated[Path, typer.Argument(help="A checkpoint, or a file of word2vec, GloVe or fastText, also compressed.")],
    a: Annotated[str, typer.Argument(help="man")],
    b: Annotated[str, typer.Argument(help="king")],
    c: Annotated[str, typer.Argument(help="woman")],
    method: Annotated[str, typer.Option(help="add (3CosAdd) or multiply (3CosMul).")] = "add",
    count: Annotated[int, typer.Option(min=1, help="Answers to show.")] = 5,
    restrict: Annotated[int | None, typer.Option(min=1, help="Search only the first N words (the most frequent).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Complete an analogy: a is to b as c is to …? Example: cloze analogy RUN man king woman"""
    from cloze.cli.vectors import as_method, note_alike, note_zeros, opened, table
    from cloze.decoding.vectors.neighbours import analogy

    chosen = as_method(method)
    vectors = opened(model)
    neighbours = analogy(vectors, a, b, c, method=chosen, count=count, restrict=restrict)
    note_zeros(vectors, [neighbours], count, restrict)
    note_alike(vectors)
    if as_json:
        import json

        answers = [near._asdict() for near in neighbours]
        print(json.dumps({"a": a, "b": b, "c": c, "method": method, "answers": answers}, indent=2, ensure_ascii=False))
        return
    print(table(neighbours))
