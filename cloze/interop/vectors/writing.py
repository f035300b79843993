"""Vectors → one file in the format of another tool."""

from __future__ import annotations

from pathlib import Path

from cloze.atomic import require_output
from cloze.errors import UserError, propose
from cloze.interop.vectors.binary import write_binary
from cloze.interop.vectors.checkpoint import answers_of
from cloze.interop.vectors.fasttext import FastText, as_fasttext, write_fasttext
from cloze.interop.vectors.opening import kind_of, open_fasttext, open_vectors
from cloze.interop.vectors.text import writable, write_text
from cloze.interop.vectors.whole import whole_file

FORMATS = ("word2vec", "word2vec-binary", "glove", "fasttext")


def write_vectors(source: Path, to: str, out: Path, *, overwrite: bool = False) -> tuple[int, int, list[str]]:
    """Write the vectors of a file or a checkpoint to `out`; returns how many were written, their width, and remarks.

    `to`: `word2vec` and `glove` are text with and without a line of sizes, `word2vec-binary` and `fasttext` (.bin) binary. A name
    ending in .gz compresses. An unknown format, or an existing file without `overwrite`, is a `UserError`. The file is written
    completely or not at all.
    """
    if to not in FORMATS:
        raise UserError(f"unknown format {to!r}. {propose(to, FORMATS)}")
    require_output(out, overwrite=overwrite)
    if to == "fasttext":
        model, remarks = _fasttext(source)
        with whole_file(out) as file:
            write_fasttext(file, model)
        return len(model.words), model.settings.width, remarks
    vectors = open_vectors(source)
    with whole_file(out) as file:
        if to == "word2vec-binary":
            remarks = write_binary(file, vectors)
        else:
            remarks = write_text(file, vectors, header=to == "word2vec")
    if vectors.subwords is not None:
        remarks.append("n-grams were left out: in this file unseen words have no vectors. --to fasttext keeps them.")
    return len(writable(vectors)), vectors.width, remarks


def _fasttext(source: Path) -> tuple[FastText, list[str]]:
    if source.is_file() and kind_of(source) == "fasttext":
        return open_fasttext(source), []
    answers = answers_of(source) if source.is_dir() else None
    return as_fasttext(open_vectors(source), answers=answers)
