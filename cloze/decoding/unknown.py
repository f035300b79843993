"""Words that a vocabulary lacks: which texts have them, and what that means for what a network says of these texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Reader

_WHY = "A vocabulary of pieces does not know scripts that it was not trained on, nor words of many characters."


def unknown_token(reader: Reader) -> int | None:
    """The id of unknown words; None if the vocabulary has none, or if the network reads the characters of such words."""
    return None if "characters" in reader.network.takes else reader.tokenizer.roles.get("[UNK]")


def leaves_out_unknown(reader: Reader) -> bool:
    """Whether the mean of a text's states is that of its known words: each word has one vector, whatever stands around it, and
    that of [UNK] belongs to no word."""
    hidden = reader.network.gives.get("hidden")
    return hidden is not None and hidden.sees == "itself" and unknown_token(reader) is not None


def known_words(reader: Reader, framed: Sequence[Framed]) -> list[Framed]:
    """The rows without unknown words."""
    unknown = unknown_token(reader)
    return [row.take(np.flatnonzero(row.ids != unknown)) for row in framed]


def vector_remarks(reader: Reader, framed: Sequence[Framed], vectors: NDArray[np.float32], *, head: Any = None) -> list[str]:
    """Sentences on texts whose vectors say little of them, because some of their words are unknown or nothing was read.

    `head` is that of `embed`: what the vectors were trained to be.
    """
    zeros = (vectors == 0).all(axis=1)
    remarks = [f"{zeros.sum()} of {len(vectors)} texts have no known tokens: their vectors are zeros."] if zeros.any() else []
    unknown, tokens = _counts(reader, [row.ids[row.part >= 0] for row in framed])
    if head is None and leaves_out_unknown(reader):
        if partly := int(((unknown > 0) & (unknown < tokens)).sum()):
            remarks.append(
                f"{unknown.sum():,} of {tokens.sum():,} words are unknown and left out: the vectors of {partly} of "
                f"{len(vectors)} texts come from their known words alone."
            )
        return remarks
    if empty := int((~zeros & (tokens == 0)).sum()):
        remarks.append(f"{empty} of {len(vectors)} texts are empty: their vectors are those of the special tokens alone.")
    alike = int((~zeros & (tokens > 0) & (unknown == tokens)).sum())
    if alike:
        remarks.append(
            f"every word of {alike} of {len(vectors)} texts is unknown ([UNK]): their vectors say only how long they are. {_WHY}"
        )
    if mostly := int(((2 * unknown >= tokens) & (unknown < tokens)).sum()):
        remarks.append(f"half of the tokens or more of {mostly} of {len(vectors)} texts are unknown ([UNK]).")
    return remarks


def answer_remark(reader: Reader, texts: Sequence[str]) -> str | None:
    """A sentence on texts of which a network knows no word, so that its answers say nothing of them; None without such texts."""
    if not texts or unknown_token(reader) is None:
        return None
    unknown, tokens = _counts(reader, reader.ids(texts))
    if not (none := int((unknown == tokens).sum())):
        return None
    return f"{none} of {len(texts)} texts have no word that the vocabulary knows: their answers say nothing of them"


def _counts(reader: Reader, texts: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tokens of each text (N,) are unknown, and how many it has."""
    token = unknown_token(reader)
    unknown = np.array([0 if token is None else int((ids == token).sum()) for ids in texts], np.int64)
    return unknown, np.array([len(ids) for ids in texts], np.int64)
