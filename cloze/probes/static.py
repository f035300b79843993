"""One vector per word from contextual ones: the first component of a word's occurrences at each layer, compared on sets of
similar words (Ethayarajh, 2019, §4.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.interop.vectors import Vectors
from cloze.probes.measures import first_direction
from cloze.probes.words import word_rows, word_states, words_of
from cloze.tasks.intrinsic.similarity import WordPair, similarity

LEAST = 2  # occurrences that a component needs; of fewer it is the vector itself


@dataclass(frozen=True)
class Static:
    """The vectors of words at each layer (N + 1, W, D): the `first` component of their occurrences, and their `mean`."""

    words: Sequence[str]
    first: NDArray[np.float32]
    mean: NDArray[np.float32]

    def vectors(self, layer: int, of: str = "first") -> Vectors:
        """One layer as word vectors."""
        return Vectors(list(self.words), (self.first if of == "first" else self.mean)[layer], f"layer {layer}")


def static_vectors(
    loaded: Checkpoint, texts: Sequence[str], words: Sequence[str], *, occurrences: int | None = 50, length: int | None = None,
    size: int = 32,
) -> Static:
    """The vectors of the `words` that occur in the texts, in lower case, from the first so many occurrences of each (None: all).

    Raises:
        UserError: None of them occurs.
    """
    reader, vocabulary = Reader.of(loaded), {word.lower() for word in words}
    spans = [words_of(text) for text in texts]
    by_word: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (text, word_spans) in enumerate(zip(texts, spans, strict=True)):
        for index, (begin, end) in enumerate(word_spans.tolist()):
            word = text[begin:end].lower()
            if word in vocabulary and (occurrences is None or len(by_word[word]) < occurrences):
                by_word[word].append((number, index))
    needed = sorted({text for pairs in by_word.values() for text, _ in pairs})
    rows = word_rows(reader, [texts[n] for n in needed], [spans[n] for n in needed], length=length)
    places: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for word, pairs in by_word.items():
        for row, index in pairs:
            places[row].append((word, index))
    vectors: dict[str, list[NDArray[np.float32]]] = defaultdict(list)
    for number, states in word_states(reader, rows, size=size):
        for word, index in places[needed[number]]:
            if rows[number].columns[index, 0] >= 0:
                vectors[word].append(states[:, index])
    if not vectors:
        raise UserError("none of the words of these sets occurs in the texts.\n  Give more text with --text.")
    names = sorted(vectors)
    stacked = [np.stack(vectors[word], axis=1) for word in names]
    mean = np.stack([stack.mean(1) for stack in stacked], axis=1)
    first = np.stack([
        np.stack([first_direction(layer) if len(layer) >= LEAST else layer[0] for layer in stack]) for stack in stacked
    ], axis=1)  # fmt: skip
    return Static(names, first.astype(np.float32), mean.astype(np.float32))


@dataclass(frozen=True)
class Compared:
    """Spearman's correlation on each set of pairs by layer, of first components and of means; and of other word vectors, over the
    same pairs. `pairs` is how many of each set have both words everywhere."""

    first: Mapping[str, Sequence[float]]
    mean: Mapping[str, Sequence[float]]
    against: Mapping[str, Mapping[str, float]]
    pairs: Mapping[str, int]


def compare(static: Static, sets: Mapping[str, Sequence[WordPair]], against: Mapping[str, Vectors]) -> Compared:
    """The correlations over the pairs that all have."""
    vocabulary = set(static.words)
    first: dict[str, list[float]] = {}
    mean: dict[str, list[float]] = {}
    other: dict[str, dict[str, float]] = {name: {} for name in against}
    counts = {}
    for name, pairs in sets.items():
        common = [
            pair for pair in pairs
            if pair.one.lower() in vocabulary and pair.two.lower() in vocabulary
            and all(vectors.find(word.lower()) is not None for vectors in against.values() for word in (pair.one, pair.two))
        ]  # fmt: skip
        counts[name] = len(common)
        layers = range(len(static.first))
        first[name] = [_correlation(static.vectors(n), common) for n in layers]
        mean[name] = [_correlation(static.vectors(n, "mean"), common) for n in layers]
        for title, vectors in against.items():
            other[title][name] = _correlation(vectors, common)
    return Compared(first, mean, other, counts)


def _correlation(vectors: Vectors, pairs: Sequence[WordPair]) -> float:
    correlation = similarity(vectors, pairs, lower=True).spearman if len(pairs) > 1 else None
    return float("nan") if correlation is None else correlation
