"""The structural probe: distances and depths in a dependency tree from the vectors of words, by one linear map each.

Source: "A Structural Probe for Finding Syntax in Word Representations" (Hewitt and Manning, 2019, §2, §4); figures as in the
authors' code (john-hewitt/structural-probes: reporter.py, regimen.py, loss.py).

Differs: states are standardised; the last tenth of the training sentences is the development set; an epoch of a small treebank is
repeated up to 50 updates before it is measured; there are at most 40 epochs (their example/config/naacl19: 30); punctuation is
recognised by its characters, not by Penn tags.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cloze.corpus.readers.trees import each_tree
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.training import Convergence, converge, last_tenth, several_passes
from cloze.probes.words import join_words, word_rows, word_states
from cloze.tasks.measures.agreement import spearman

Distances = NDArray[np.int64]
SHORT, LONG = 5, 50  # words of the sentences whose rank correlation counts
_BRACKETS = frozenset({"-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-"})  # as the Penn Treebank writes them
_BATCH, _UPDATES = 20, 50
_CONVERGENCE = Convergence(factor=0.1, margin=1e-4)


@dataclass(frozen=True)
class ProbedTrees:
    """Sentences: their words, and the head of each (0: the root, n: the n-th word)."""

    words: Sequence[tuple[str, ...]]
    heads: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Structural:
    """What the structural probe finds by layer.

    `uuas`: the share of all edges that are in the minimum spanning tree, without punctuation. `correlation`: of distances of one
    word to all, and of the depths of a sentence (`depth`), the rank correlation with the truth, a mean over sentences of each
    length and then over the lengths from 5 to 50. `root`: the share of sentences whose least deep word is the root. `chain`: the
    share of edges that a tree of neighbouring words finds.
    """

    uuas: Sequence[float]
    correlation: Sequence[float]
    depth: Sequence[float]
    root: Sequence[float]
    chain: float
    train: int
    test: int


@dataclass(frozen=True)
class ProbedSentence:
    """The vectors of a sentence's words at one layer (K, D), their distances (K, K) and depths (K,) in the tree, and which of
    them are not punctuation."""

    vectors: Tensor
    distances: Distances
    depths: NDArray[np.int64]
    words: NDArray[np.int64]


class PaddedSentences(NamedTuple):
    """Sentences of a batch: vectors (B, K, D), distances (B, K, K), depths (B, K), and which words are `real` (B, K)."""

    vectors: Tensor
    distances: Tensor
    depths: Tensor
    real: Tensor

    @classmethod
    def of(cls, sentences: Sequence[ProbedSentence]) -> PaddedSentences:
        """Sentences of any lengths."""
        vectors = pad_sequence([sentence.vectors for sentence in sentences], batch_first=True)
        depths = pad_sequence([torch.from_numpy(sentence.depths) for sentence in sentences], batch_first=True, padding_value=-1)
        distances = torch.zeros(len(sentences), depths.shape[1], depths.shape[1])
        for number, sentence in enumerate(sentences):
            distances[number, : len(sentence.depths), : len(sentence.depths)] = torch.from_numpy(sentence.distances)
        return cls(vectors, distances, depths.float(), depths >= 0)

    def take(self, rows: Tensor) -> PaddedSentences:
        """Some of them, as wide as the longest."""
        real = self.real[rows]
        width = int(real.sum(1).max())
        return PaddedSentences(
            self.vectors[rows, :width], self.distances[rows, :width, :width], self.depths[rows, :width], real[:, :width]
        )


def read_trees(path: Path | str, *, most: int) -> ProbedTrees:
    """The first sentences of CoNLL-U with two words or more."""
    trees = []
    for tree in each_tree(path):
        if len(tree.words) >= 2:
            trees.append((tree.words, tree.heads))
        if len(trees) == most:
            break
    if not trees:
        raise UserError(f"{path}: no sentence of two words or more: a distance needs two.")
    return ProbedTrees([words for words, _ in trees], [heads for _, heads in trees])


def is_punctuation(word: str) -> bool:
    """Whether a word is made of punctuation marks.

    >>> [is_punctuation(word) for word in ("...", "``", "-LRB-", "x.")]
    [True, True, True, False]
    """
    return word in _BRACKETS or all(unicodedata.category(letter)[0] == "P" or letter == "`" for letter in word)


def tree_distances(heads: Sequence[int]) -> Distances:
    """The number of edges between any two words (K, K) of a tree."""
    size = len(heads)
    distances = np.full((size, size), size, np.int64)
    np.fill_diagonal(distances, 0)
    for n, head in enumerate(heads):
        if head:
            distances[n, head - 1] = distances[head - 1, n] = 1
    for middle in range(size):
        distances = np.minimum(distances, distances[:, middle : middle + 1] + distances[middle : middle + 1])
    return distances


def depths_of(heads: Sequence[int]) -> NDArray[np.int64]:
    """The number of edges from the root to each word (K,)."""
    root = next(n for n, head in enumerate(heads) if not head)
    return tree_distances(heads)[root]


def spanning_tree(distances: NDArray[Any]) -> set[tuple[int, int]]:
    """The edges (a < b) of the minimum spanning tree (Prim's algorithm)."""
    size, inside, edges = len(distances), [0], set()
    nearest, parent = distances[0].astype(float).copy(), np.zeros(size, np.int64)
    nearest[0] = np.inf
    while len(inside) < size:
        new = int(nearest.argmin())
        edges.add((min(new, int(parent[new])), max(new, int(parent[new]))))
        inside.append(new)
        closer = distances[new] < nearest
        closer[inside] = False
        nearest[closer], parent[closer] = distances[new][closer], new
        nearest[new] = np.inf
    return edges


def probe_distance(
    loaded: Checkpoint, train: ProbedTrees, test: ProbedTrees, *, rank: int = 64, seed: int = 0, length: int | None = None,
    size: int = 32,
) -> Structural:
    """Train two maps to `rank` dimensions for every layer, and measure them: one whose squared distances are those of the tree,
    one whose squared norms are the depths."""
    reader = Reader.of(loaded)
    training, held_out = (_sentences(reader, part, length, size) for part in (train, test))
    figures: dict[str, list[float]] = {"uuas": [], "correlation": [], "depth": [], "root": []}
    for fitted, judged in zip(*_standardised(training, held_out), strict=True):
        distances = _fit(fitted, distance_loss, rank, seed)
        depths = _fit(fitted, depth_loss, rank, seed)
        uuas, correlation = judge_distances(
            judged, [squared_distances(sentence.vectors @ distances).numpy() for sentence in judged]
        )
        root, depth = judge_depths(judged, [(sentence.vectors @ depths).square().sum(1).numpy() for sentence in judged])
        for name, value in (("uuas", uuas), ("correlation", correlation), ("depth", depth), ("root", root)):
            figures[name].append(value)
    places = [np.arange(len(sentence.depths)) for sentence in held_out[0]]
    neighbours = [np.abs(np.subtract.outer(positions, positions)) for positions in places]
    chain, _ = judge_distances(held_out[0], neighbours)
    return Structural(**figures, chain=chain, train=len(training[0]), test=len(held_out[0]))


def _sentences(reader: Reader, trees: ProbedTrees, length: int | None, size: int) -> list[list[ProbedSentence]]:
    """By layer, the sentences that were read whole."""
    running, spans = zip(*(join_words(words) for words in trees.words), strict=True)
    rows = word_rows(reader, running, spans, length=length)
    indices = [n for n, row in enumerate(rows) if (row.columns[:, 0] >= 0).all()]
    if not indices:
        raise UserError("this network cuts every sentence of the treebank. Give shorter sentences, or a larger --length.")
    states = dict(word_states(reader, [rows[n] for n in indices], size=size))
    layers: list[list[ProbedSentence]] = [[] for _ in states[0]]
    for number, n in enumerate(indices):
        marks = np.array([is_punctuation(word) for word in trees.words[n]])
        heads = trees.heads[n]
        truth = tree_distances(heads), depths_of(heads), np.flatnonzero(~marks)
        for layer, vectors in enumerate(states[number]):
            layers[layer].append(ProbedSentence(torch.from_numpy(vectors), *truth))
    return layers


def _standardised(
    training: Sequence[list[ProbedSentence]], held_out: Sequence[list[ProbedSentence]]
) -> tuple[list[list[ProbedSentence]], list[list[ProbedSentence]]]:
    """Both with vectors whose mean is 0 and whose standard deviation is 1 over the training sentences of a layer."""
    parts: tuple[list[list[ProbedSentence]], list[list[ProbedSentence]]] = ([], [])
    for layer, fitted in enumerate(training):
        every = torch.cat([sentence.vectors for sentence in fitted])
        mean = every.mean(0)
        scale = float((every - mean).std(correction=0)) or 1.0
        for part, sentences in zip(parts, (fitted, held_out[layer]), strict=True):
            part.append([replace(sentence, vectors=(sentence.vectors - mean) / scale) for sentence in sentences])
    return parts


def _fit(
    sentences: Sequence[ProbedSentence], loss_of: Callable[[Tensor, PaddedSentences], Tensor], rank: int, seed: int
) -> Tensor:
    """The map (D, rank) with the least loss on the last tenth of the sentences."""
    generator = torch.Generator().manual_seed(seed)
    every = PaddedSentences.of(sentences)
    count, held_out = last_tenth(len(sentences))
    development = every.take(torch.arange(len(sentences))[held_out])
    weight = ((torch.rand(every.vectors.shape[-1], rank, generator=generator) - 0.5) * 0.1).requires_grad_()
    converge(
        [weight], lambda: several_passes(count, _BATCH, _UPDATES, generator), lambda batch: loss_of(weight, every.take(batch)),
        lambda: float(loss_of(weight, development)), _CONVERGENCE,
    )
    return weight.detach()


def squared_distances(y: Tensor) -> Tensor:
    """Squared distances (…, K, K) of vectors (…, K, R)."""
    squares = y.square().sum(-1)
    return (squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * y @ y.mT).clamp(min=0.0)


def distance_loss(weight: Tensor, sentences: PaddedSentences) -> Tensor:
    """The absolute error of squared distances, a mean over the pairs of a sentence, then over sentences."""
    real = sentences.real.unsqueeze(1) & sentences.real.unsqueeze(2)
    errors = (squared_distances(sentences.vectors @ weight) - sentences.distances).abs() * real
    return (errors.sum((1, 2)) / real.sum((1, 2))).mean()


def depth_loss(weight: Tensor, sentences: PaddedSentences) -> Tensor:
    """The absolute error of squared norms, a mean over the words of a sentence, then over sentences."""
    errors = ((sentences.vectors @ weight).square().sum(-1) - sentences.depths).abs() * sentences.real
    return (errors.sum(1) / sentences.real.sum(1)).mean()


def judge_distances(sentences: Sequence[ProbedSentence], predicted: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """The share of all edges that the spanning trees of `predicted` distances share with those of the truth, both without
    punctuation, and the rank correlation by word and length."""
    right, edges, by_length = 0, 0, defaultdict[int, list[float]](list)
    for sentence, distances in zip(sentences, predicted, strict=True):
        if len(sentence.words) > 1:
            inside = np.ix_(sentence.words, sentence.words)
            truth = spanning_tree(sentence.distances[inside])
            right, edges = right + len(truth & spanning_tree(distances[inside])), edges + len(truth)
        ranks = [spearman(distances[n], sentence.distances[n]) for n in range(len(distances))]
        by_length[len(distances)] += [rank for rank in ranks if rank is not None]
    return right / edges if edges else float("nan"), _mean_over_lengths(by_length)


def judge_depths(sentences: Sequence[ProbedSentence], predicted: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """The share of sentences whose least deep word that is no punctuation is the root, and the rank correlation by length."""
    roots, by_length = 0, defaultdict[int, list[float]](list)
    for sentence, depths in zip(sentences, predicted, strict=True):
        words = sentence.words if len(sentence.words) else np.arange(len(depths))
        roots += int(sentence.depths[words[depths[words].argmin()]] == 0)
        rank = spearman(depths, sentence.depths)
        by_length[len(depths)] += [] if rank is None else [rank]
    return roots / len(sentences), _mean_over_lengths(by_length)


def _mean_over_lengths(by_length: Mapping[int, Sequence[float]]) -> float:
    means = [np.mean(ranks) for length, ranks in by_length.items() if SHORT <= length <= LONG and ranks]
    return float(np.mean(means)) if means else float("nan")
