"""The structural probe: distances in a dependency tree from the vectors of words, by one linear map.

Source: "A Structural Probe for Finding Syntax in Word Representations" (Hewitt and Manning, 2019, §2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.readers.trees import each_tree
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.words import joined, word_rows, word_states
from cloze.tasks.measures.agreement import spearman

Distances = NDArray[np.int64]
SHORT, LONG = 5, 50  # words of the sentences whose rank correlation counts


@dataclass(frozen=True)
class ProbedTrees:
    """Sentences: their words, and the head of each (0: the root, n: the n-th word)."""

    words: Sequence[tuple[str, ...]]
    heads: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Structural:
    """What the structural probe finds by layer: the share of edges in the minimum spanning tree (`uuas`), and the mean rank
    correlation of distances.

    `chain`: the share of edges between neighbouring words, which is what a tree of neighbours finds.
    """

    uuas: Sequence[float]
    correlation: Sequence[float]
    chain: float
    train: int
    test: int


def read_trees(path: Path | str, *, most: int) -> ProbedTrees:
    """The first sentences of CoNLL-U with two words or more, up to `LONG` words."""
    trees = []
    for tree in each_tree(path):
        if 2 <= len(tree.words) <= LONG:
            trees.append((tree.words, tree.heads))
        if len(trees) == most:
            break
    if not trees:
        raise UserError(f"{path}: no sentence of 2 to {LONG} words: a distance needs two.")
    return ProbedTrees([words for words, _ in trees], [heads for _, heads in trees])


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
    loaded: Checkpoint, train: ProbedTrees, test: ProbedTrees, *, rank: int = 64, epochs: int = 20, seed: int = 0,
    length: int | None = None, size: int = 32,
) -> Structural:
    """Train a map to `rank` dimensions for every layer, in which squared distances are those of the tree, and measure it."""
    reader = Reader.of(loaded)
    (x, gold), (z, test_gold) = (_states(reader, part, length, size) for part in (train, test))
    uuas, correlation = [], []
    for layer in range(len(x[0])):
        mean = np.concatenate([states[layer] for states in x]).mean(0)
        scale = float(np.concatenate([states[layer] - mean for states in x]).std()) or 1.0
        training, held_out = ([torch.from_numpy((states[layer] - mean) / scale) for states in part] for part in (x, z))
        weight = _fit(training, gold, rank, epochs, seed)
        judged = [_judged(_predicted(vectors, weight).numpy(), truth) for vectors, truth in zip(held_out, test_gold, strict=True)]
        uuas.append(float(np.mean([share for share, _ in judged])))
        ranks = [rank for _, rank in judged if rank is not None]
        correlation.append(float(np.mean(ranks)) if ranks else float("nan"))
    chain = float(np.mean([np.mean(np.diagonal(truth, 1) == 1) for truth in test_gold]))
    return Structural(uuas, correlation, chain, len(x), len(z))


def _states(
    reader: Reader, trees: ProbedTrees, length: int | None, size: int
) -> tuple[list[NDArray[np.float32]], list[Distances]]:
    """The words' vectors (N + 1, K, D) of the sentences that were read whole, and their distances."""
    running, spans = zip(*(joined(words) for words in trees.words), strict=True)
    rows = word_rows(reader, running, spans, length=length)
    indices = [n for n, row in enumerate(rows) if (row.columns[:, 0] >= 0).all()]
    if not indices:
        raise UserError("this network cuts every sentence of the treebank. Give shorter sentences, or a larger --length.")
    states = dict(word_states(reader, [rows[n] for n in indices], size=size))
    return [states[n] for n in range(len(indices))], [tree_distances(trees.heads[n]) for n in indices]


def _fit(states: Sequence[Tensor], gold: Sequence[Distances], rank: int, epochs: int, seed: int) -> Tensor:
    """The map (D, rank): the absolute error of squared distances, per pair of a sentence, by Adam."""
    generator = torch.Generator().manual_seed(seed)
    width = states[0].shape[1]
    weight = (torch.randn(width, rank, generator=generator) * width**-0.5 * 0.5).requires_grad_()
    solver = torch.optim.Adam([weight], lr=2e-3)
    truth = [torch.from_numpy(distances).float() for distances in gold]
    for epoch in range(epochs):
        for group in solver.param_groups:
            group["lr"] = 2e-3 * (1 - epoch / epochs)
        for index in torch.randperm(len(states), generator=generator).split(20):
            losses = [(_predicted(states[n], weight) - truth[n]).abs().sum() / len(truth[n]) ** 2 for n in index.tolist()]
            solver.zero_grad()
            torch.stack(losses).mean().backward()
            solver.step()
    return weight.detach()


def _predicted(x: Tensor, weight: Tensor) -> Tensor:
    """Squared distances (K, K) of mapped vectors."""
    y = x @ weight
    squares = y.square().sum(1)
    return (squares[:, None] + squares[None] - 2 * y @ y.T).clamp(min=0.0)


def _judged(predicted: NDArray[Any], truth: Distances) -> tuple[float, float | None]:
    """The share of edges found, and the mean over words of the rank correlation of their distances (None for other lengths)."""
    edges = {(int(a), int(b)) for a, b in np.argwhere(np.triu(truth) == 1)}
    share = len(edges & spanning_tree(predicted)) / len(edges)
    if not SHORT <= len(truth) <= LONG:
        return share, None
    ranks = [spearman(np.delete(predicted[n], n), np.delete(truth[n], n)) for n in range(len(truth))]
    defined = [rank for rank in ranks if rank is not None]
    return share, float(np.mean(defined)) if defined else None
