"""`cloze export`: a folder to publish, or vectors of words in a file that other tools open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    model: Annotated[Path, typer.Argument(help="A run, a fine-tuned folder, or a file of vectors to convert.")],
    out: Annotated[Path, typer.Argument(help="The new folder or file; a name ending in .gz is compressed.")],
    to: Annotated[str, typer.Option(help="The format: huggingface, word2vec, word2vec-binary, glove or fasttext.")] = "word2vec",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    language: Annotated[str | None, typer.Option(help="For the model card: en, or several, with commas.")] = None,
    licence: Annotated[str | None, typer.Option(help="For the model card: mit, apache-2.0, cc-by-4.0, …")] = None,
    task: Annotated[str | None, typer.Option(help="The task to export, if the folder has several.")] = None,
    data: Annotated[str | None, typer.Option(help="For the model card: the training text, in a sentence.")] = None,
) -> None:
    """Write a folder to publish, or vectors as word2vec's text or binary file, GloVe's text, or fastText's .bin.

    Examples: cloze export RUN my-bert --to huggingface --language en --licence mit; cloze export RUN vectors.bin --to
    word2vec-binary. The folder opens in transformers and sentence-transformers. It holds the model, its tokenizer, its recipe
    and a model card; of the run's text, log and checkpoints it holds nothing.
    """
    from cloze.cli.hints import suggest
    from cloze.errors import UserError

    if to != "huggingface":
        if any(value is not None for value in (language, licence, data, task)):
            raise UserError(f"--task, --language, --licence and --data are for --to huggingface, not for --to {to}.")
        from cloze.errors import nearest
        from cloze.interop.vectors import FORMATS, write_vectors

        if to not in FORMATS:
            raise UserError(f"unknown format {to!r}. {nearest(to, ('huggingface', *FORMATS))}")
        count, width, remarks = write_vectors(model, to, out, overwrite=overwrite)
        print(f"{out}: {count:,} vectors of width {width}")
        following: tuple[object, ...] = ("cloze", "neighbours", out, "WORD")
    else:
        if overwrite:
            raise UserError("--overwrite replaces a file of vectors; for --to huggingface choose a new or empty folder.")
        from cloze.assembly.share import share

        codes = [code.strip() for code in (language or "").split(",") if code.strip()]
        remarks = share(model, out, languages=codes, licence=licence, data=data, task=task)
        print(f"{out}: ready to publish")
        following = ("cloze", "show", out)
        missing = [name for name, value in (("--language", codes), ("--licence", licence), ("--data", data)) if not value]
        if missing:
            print(f"  the model card lacks what {', '.join(missing)} would say")
    for remark in remarks:
        print(f"  {remark}")
    suggest(*following)
