"""Rows of a token table for words that it lacks, from vectors of another space (E-BERT; Poerner et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError
from cloze.text import Tokenizer
from cloze.text.edges import word_edges

Matrix = NDArray[np.float32]


class AlignmentVectors(Protocol):
    """The interface of opened vectors (`cloze.interop.vectors.Vectors`)."""

    @property
    def width(self) -> int: ...

    @property
    def place(self) -> str: ...

    def find(self, word: str) -> Matrix | None:
        """The vector (D,) of a word, None if there is none."""


class Alignment(NamedTuple):
    """A linear map (W, D) from vectors to rows of a token table, the number of words that both have, and the share of the rows'
    variance around zero that the map explains for these."""

    map: Matrix
    words: int
    explained: float

    def rows(self, vectors: Matrix) -> Matrix:
        """Vectors (N, W) as rows (N, D)."""
        return np.asarray(vectors @ self.map, np.float32)


def least_squares(vectors: NDArray[np.floating], rows: NDArray[np.floating]) -> Alignment:
    """The map of vectors (N, W) to rows (N, D) with the least sum of squares."""
    matrix = np.linalg.lstsq(vectors.astype(np.float64), rows.astype(np.float64), rcond=None)[0]
    left = np.square(vectors @ matrix - rows).sum() / np.square(rows, dtype=np.float64).sum()
    return Alignment(matrix.astype(np.float32), len(vectors), float(1 - left))


def aligned(vectors: AlignmentVectors, tokenizer: Tokenizer, table: Matrix) -> Alignment:
    """The map from vectors to the rows of a checkpoint's token `table` (V, D), fitted to the words that are single pieces with a
    vector. Raises a `CheckpointError` if these are fewer than the numbers of a vector."""
    shared = shared_words(vectors, tokenizer)
    if len(shared) < vectors.width:
        words = ", ".join(repr(tokenizer.decode([number]).strip()) for number in tokenizer.ordinary_ids[-3:].tolist())
        raise CheckpointError(
            f"{vectors.place}: has vectors for {len(shared):,} of the words of the vocabulary (such as {words}), and a map from "
            f"{vectors.width} numbers needs at least as many.\n"
            "  Give vectors of the same language, lower-cased if the checkpoint's tokenizer lower-cases."
        )
    ids = np.array(list(shared))
    return least_squares(np.stack(list(shared.values())), table[ids])


def shared_words(vectors: AlignmentVectors, tokenizer: Tokenizer) -> Mapping[int, Matrix]:
    """The vector of each id that spells a whole word with a vector."""
    begins = ~word_edges(tokenizer).continues
    word_vectors = {}
    for number in tokenizer.ordinary_ids.tolist():
        vector = vectors.find(tokenizer.decode([number]).strip()) if begins[number] else None
        if vector is not None:
            word_vectors[int(number)] = vector
    return word_vectors
