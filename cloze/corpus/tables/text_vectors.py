"""A table of vectors for whole texts, such as the words of a lexicon, whatever pieces the tokenizer cuts them into."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.corpus.tables.vector_table import VectorSource
from cloze.errors import RecipeError
from cloze.registry import register


@register("table", "text_vectors")
class TextVectors(LookUp):
    """Vectors of texts from a `file` of word2vec, GloVe or fastText, compressed or not, or from a checkpoint of cloze.

    A source that names the table compares texts by them (`word_pairs`). A text that the file lacks as a whole gets the mean of
    its words' vectors. The table serves training alone: a checkpoint does not keep it.
    """

    def __init__(self, *, file: str | None = None) -> None:
        self.file = file

    @property
    def opens(self) -> str:
        """The file of vectors that `bind` expects to be opened for it."""
        if self.file is None:
            raise RecipeError(
                "tables: text_vectors: no file. Name one of word2vec, GloVe or fastText, or a run of word2vec-skipgram:\n"
                "  --bind NAME=PATH"
            )
        return self.file

    def bind(self, store: Store, vectors: VectorSource) -> BoundTextVectors:
        """The opened vectors; they are the same for every store."""
        return BoundTextVectors(vectors)


class BoundTextVectors:
    """The vectors of any texts. size is their number of columns."""

    def __init__(self, vectors: VectorSource) -> None:
        self.vectors, self.size = vectors, vectors.width

    @property
    def place(self) -> str:
        """Where the vectors come from, for messages."""
        return self.vectors.place

    def directions(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A vector of length 1 for each text, (N, D); zeros where neither the text nor any of its words has one."""
        vectors = np.zeros((len(texts), self.size), np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(text)
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(length > 0, length, 1.0), np.float32)

    def _vector(self, text: str) -> NDArray[np.float32] | float:
        text_vector = self.vectors.find(text)
        if text_vector is not None:
            return text_vector
        words = [vector for vector in map(self.vectors.find, text.split()) if vector is not None]
        return np.asarray(np.mean(words, axis=0), np.float32) if words else 0.0
