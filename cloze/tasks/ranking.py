"""Ranks and nearest vectors by exact products, block by block, so that memory does not grow with the number of passages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Int64 = NDArray[np.int64]

DEPTHS = (1, 10, 100)
#: By name whether more is better.
METRICS = {"mrr": True, **{f"recall@{depth}": True for depth in DEPTHS}}
_BLOCK = 4096  # passages compared at once


class Nearest(NamedTuple):
    """The best passages of every query: their numbers (Q, K), best first, -1 behind the last, and their products (Q, K)."""

    passages: Int64
    scores: Vectors


def nearest(queries: Vectors, blocks: Iterable[tuple[Int64, Vectors]], most: int) -> Nearest:
    """The `most` passages with the largest products with each of the queries (Q, D); of equals the smaller number first.

    `blocks` are numbers of passages (N,) and their vectors (N, D); only one of them is in memory, and `most` for each query.
    """
    best = Nearest(np.full((len(queries), 0), -1, np.int64), np.zeros((len(queries), 0), np.float32))
    for numbers, vectors in blocks:
        scores = np.concatenate([best.scores, queries @ vectors.T], axis=1)
        passages = np.concatenate([best.passages, np.broadcast_to(numbers, (len(queries), len(numbers)))], axis=1)
        if scores.shape[1] > most:  # what equals the last of them is kept until all are in order
            least = -np.partition(-scores, most - 1, axis=1)[:, most - 1 : most]
            widest = int((scores >= least).sum(1).max(initial=0))
            chosen = np.argsort(-scores, axis=1, kind="stable")[:, : max(widest, most)]
            scores, passages = (np.take_along_axis(one, chosen, axis=1) for one in (scores, passages))
        order = np.lexsort((passages, -scores), axis=1)[:, :most]
        best = Nearest(*(np.take_along_axis(one, order, axis=1) for one in (passages, scores)))
    return best


def ranks(queries: Vectors, passages: Vectors, right: Sequence[Sequence[int]]) -> Int64:
    """The rank of the best right passage of each query (Q,), from 1, among all passages (N, D).

    A tie counts against the right passage, so that identical vectors find nothing. Right passages
    do not count against each other.
    """
    found = np.ones(len(queries), np.int64)
    best = np.array([max(float(queries[q] @ passages[p]) for p in own) for q, own in enumerate(right)], np.float32)
    rows = np.repeat(np.arange(len(right)), [len(own) for own in right])
    columns = np.array([p for own in right for p in own], np.int64)
    for start in range(0, len(passages), _BLOCK):
        before = queries @ passages[start : start + _BLOCK].T >= best[:, None] - 1e-6
        inside = (columns >= start) & (columns < start + _BLOCK)
        before[rows[inside], columns[inside] - start] = False
        found += before.sum(1)
    return found


def figures(found: Int64) -> dict[str, float]:
    """The mean of the reciprocal ranks, and the share of queries whose right passage is among the first 1, 10 and 100."""
    return {"mrr": float((1 / found).mean()), **{f"recall@{depth}": float((found <= depth).mean()) for depth in DEPTHS}}
