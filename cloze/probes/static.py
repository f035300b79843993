"""One vector per word from contextual ones: the first component of a word's occurrences at each layer, compared on sets of
similar words (Ethayarajh, 2019, §4.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.interop.vectors import Vectors
from cloze.probes.finding import Finding, Subject, Table, by_layer_and_step, layer_name
from cloze.probes.measures import first_direction
from cloze.probes.words import word_rows, word_states, words_of
from cloze.tasks.similarity import Pair, similarity

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
    loaded: Checkpoint, texts: Sequence[str], words: Sequence[str], *, occurrences: int = 50, length: int | None = None,
    size: int = 32,
) -> Static:
    """The vectors of the `words` that occur in the texts, in lower case, from up to so many occurrences of each.

    Raises:
        UserError: None of them occurs.
    """
    reader, wanted = Reader.of(loaded), {word.lower() for word in words}
    spans = [words_of(text) for text in texts]
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (text, own) in enumerate(zip(texts, spans, strict=True)):
        for place, (begin, end) in enumerate(own.tolist()):
            word = text[begin:end].lower()
            if word in wanted and len(found[word]) < occurrences:
                found[word].append((number, place))
    needed = sorted({text for pairs in found.values() for text, _ in pairs})
    rows = word_rows(reader, [texts[n] for n in needed], [spans[n] for n in needed], length=length)
    places: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for word, pairs in found.items():
        for row, place in pairs:
            places[row].append((word, place))
    vectors: dict[str, list[NDArray[np.float32]]] = defaultdict(list)
    for number, states in word_states(reader, rows, size=size):
        for word, place in places[needed[number]]:
            if rows[number].columns[place, 0] >= 0:
                vectors[word].append(states[:, place])
    if not vectors:
        raise UserError("none of the words of these sets occurs in the texts.\n  Give more text with --text.")
    names = sorted(vectors)
    stacked = [np.stack(vectors[word], axis=1) for word in names]
    mean = np.stack([own.mean(1) for own in stacked], axis=1)
    first = np.stack([
        np.stack([first_direction(layer) if len(layer) >= LEAST else layer[0] for layer in own]) for own in stacked
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


def compare(static: Static, sets: Mapping[str, Sequence[Pair]], against: Mapping[str, Vectors]) -> Compared:
    """The correlations over the pairs that all have."""
    own = set(static.words)
    first: dict[str, list[float]] = {}
    mean: dict[str, list[float]] = {}
    other: dict[str, dict[str, float]] = {name: {} for name in against}
    counts = {}
    for name, pairs in sets.items():
        kept = [
            pair for pair in pairs
            if pair.one.lower() in own and pair.two.lower() in own
            and all(vectors.find(word.lower()) is not None for vectors in against.values() for word in (pair.one, pair.two))
        ]  # fmt: skip
        counts[name] = len(kept)
        layers = range(len(static.first))
        first[name] = [_correlation(static.vectors(n), kept) for n in layers]
        mean[name] = [_correlation(static.vectors(n, "mean"), kept) for n in layers]
        for title, vectors in against.items():
            other[title][name] = _correlation(vectors, kept)
    return Compared(first, mean, other, counts)


def _correlation(vectors: Vectors, pairs: Sequence[Pair]) -> float:
    found = similarity(vectors, pairs, lower=True).spearman if len(pairs) > 1 else None
    return float("nan") if found is None else found


def finding(subjects: Sequence[Subject], found: Mapping[str, Compared]) -> Finding:
    """Tables and figures of several networks."""
    tables, plots = [], []
    for name, one in found.items():
        sets = list(one.first)
        rows: list[list[Any]] = []
        for n in reversed(range(len(next(iter(one.first.values()))))):
            rows += [[f"{layer_name(n)}, first component", *(one.first[each][n] for each in sets)],
                     [f"{layer_name(n)}, mean", *(one.mean[each][n] for each in sets)]]
        rows += [[title, *(own[each] for each in sets)] for title, own in one.against.items()]
        rows.append(["pairs", *(one.pairs[each] for each in sets)])
        tables.append(Table(
            f"{name}: rank correlation with people's scores", ["vectors", *sets], rows,
            "Over the pairs whose words occur in the texts and, if others are given, in all of them.",
        ))  # fmt: skip
    for each in next(iter(found.values())).first:
        lines = {name: one.first[each] for name, one in found.items()}
        longest = max(len(own) for own in lines.values())
        dashed = {f"{name}, mean": one.mean[each] for name, one in found.items()}
        dashed |= {title: [own[each]] * longest for title, own in next(iter(found.values())).against.items()}
        plots += by_layer_and_step(f"{each}: first components", lines, subjects, dashed=dashed)
    data = {
        name: {"first": dict(one.first), "mean": dict(one.mean), "against": dict(one.against), "pairs": dict(one.pairs)}
        for name, one in found.items()
    }
    return Finding("static", "One vector per word from contextual ones", tables, plots, data)
