"""A table of pretrained vectors (word2vec, GloVe, fastText) for the words of a store's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register

_END = "</s>"


class VectorSource(Protocol):
    """The interface of opened vectors (`cloze.interop.vectors.Vectors`)."""

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def width(self) -> int: ...

    @property
    def place(self) -> str: ...

    def find(self, word: str) -> NDArray[np.float32] | None:
        """The vector (D,) of a word, None if there is none."""


def rows_by_id(vectors: VectorSource | None, ids: Sequence[str]) -> NDArray[np.float32] | None:
    """The vectors of ids from row 1 on, (N + 1, D), zeros for an id that has none; None without vectors."""
    if vectors is None:
        return None
    matrix = np.zeros((len(ids) + 1, vectors.width), np.float32)
    for number, identifier in enumerate(ids, 1):
        row = vectors.find(identifier)
        if row is not None:
            matrix[number] = row
    return matrix


@register("table", "vectors")
class PretrainedVectors(LookUp):
    """Vectors of words from a `file` of word2vec, GloVe or fastText, compressed or not, or from a checkpoint of cloze.

    A network that names the table in `vectors:` starts from them. A word is looked up as the tokenizer spells it; fastText's
    .bin files also give vectors for unseen words. Roles such as [UNK] have none; the end of a text has that of `</s>` if it is
    spelled so. With `words: added`, a tokenizer that is trained for the recipe also gets the words of the file that its text
    lacks (fastText's -pretrainedVectors).
    """

    def __init__(self, *, file: str | None = None, words: Literal["looked_up", "added"] = "looked_up") -> None:
        self.file, self.words = file, words

    @property
    def adds_words(self) -> bool:
        """With `words: added`."""
        return self.words == "added"

    @property
    def opens(self) -> str:
        """The file of vectors that `bind` expects to be opened for it."""
        if self.file is None:
            raise RecipeError("tables: vectors: no file. Name one of word2vec, GloVe or fastText: --set tables.NAME.file=PATH")
        return self.file

    def bind(self, store: Store, vectors: VectorSource) -> BoundVectors:
        """The vectors of a store's vocabulary. Raises `CorpusError` if no word of it has one."""
        tokenizer = store.tokenizer()
        special = set(tokenizer.special_ids.tolist())
        matrix = np.zeros((tokenizer.size, vectors.width), np.float32)
        has_vector = np.zeros(tokenizer.size, np.bool_)
        for number, word in enumerate(tokenizer.spellings):
            vector = None if number in special and word != _END else vectors.find(word)
            if vector is not None:
                matrix[number], has_vector[number] = vector, True
        if not has_vector.any():
            raise CorpusError(
                f"{vectors.place}: has a vector for none of the {tokenizer.size - len(special):,} words of {store.path}, "
                f"such as {tokenizer.spellings[-1]!r}.\n"
                "  Give vectors of the same language, and set text.normalise.lower to match them."
            )
        return BoundVectors(matrix, has_vector)

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundVectors:
        """The bound table from `BoundVectors.arrays`. Raises `CorpusError` for any other arrays."""
        matrix, has_vector = arrays.get("matrix"), arrays.get("known")
        if matrix is None or has_vector is None or matrix.ndim != 2 or has_vector.shape != matrix.shape[:1]:
            raise CorpusError("vectors: expected a matrix (V, D) and which rows are known. The file is damaged: copy it again.")
        return BoundVectors(matrix.astype(np.float32), has_vector.astype(np.bool_))


class BoundVectors:
    """Vectors of a vocabulary: matrix (V, D), zero where `known` (V,) is false. size is V."""

    def __init__(self, matrix: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
        self.matrix, self.known, self.size = matrix, mask, len(matrix)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint."""
        return {"matrix": self.matrix, "known": self.known.astype(np.uint8)}
