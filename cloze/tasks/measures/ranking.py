"""Ranks, what they are worth, and nearest vectors by exact products, block by block: memory does not grow with the passages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Int64 = NDArray[np.int64]

DEPTHS = (1, 10, 100)
_CUT = 10  # of nDCG
#: By name whether more is better.
METRICS = dict.fromkeys(
    ("mrr", "map", f"ndcg@{_CUT}", *(f"recall@{depth}" for depth in DEPTHS), *(f"success@{depth}" for depth in DEPTHS)), True
)
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
            scores, passages = (np.take_along_axis(array, chosen, axis=1) for array in (scores, passages))
        order = np.lexsort((passages, -scores), axis=1)[:, :most]
        best = Nearest(*(np.take_along_axis(array, order, axis=1) for array in (passages, scores)))
    return best


def ranks(queries: Vectors, passages: Vectors, right: Sequence[Sequence[int]]) -> list[Int64]:
    """The ranks of all right passages of each query among all passages (N, D), ascending, from 1.

    Of equal products the wrong passage comes first, so that identical vectors, and those that are not numbers, find nothing.

    Differs: trec_eval puts passages with equal scores into the order of their names.
    """
    counts = [len(ids) for ids in right]
    query, passage = np.repeat(np.arange(len(right)), counts), np.array([p for ids in right for p in ids], np.int64)
    scores = np.einsum("nd,nd->n", queries[query], passages[passage])
    order = np.lexsort((-scores, query))
    passage, scores, begins = passage[order], scores[order], np.cumsum(counts) - counts
    sizes = np.linalg.norm(queries, axis=1)[query] * np.linalg.norm(passages, axis=1)[passage]
    equal = scores - 1e-6 * np.maximum(1.0, sizes)  # rounding grows with the products
    places = 1 + np.arange(len(query)) - np.repeat(begins, counts)
    for start in range(0, len(passages), _BLOCK):
        block = queries @ passages[start : start + _BLOCK].T
        inside = (passage >= start) & (passage < start + _BLOCK)
        block[query[inside], passage[inside] - start] = -np.inf  # a right passage is not before another as a wrong one is
        places += (~(block[query] < equal[:, None])).sum(1)
    return np.split(places, begins[1:])


def metrics_by_query(
    ranks_by_query: Sequence[Int64], grades_by_query: Sequence[Int64] | None = None, metrics: Collection[str] = METRICS
) -> NDArray[np.float64]:
    """What the ranks of the relevant passages of each query are worth by each of the `metrics`, (Q, M).

    The ranks of a query ascend. Its grades are those of the ranked passages, and then those of relevant passages that are not
    ranked; None: every relevant passage is ranked and has the grade 1. All metrics of a query without relevant passages are 0.

    The definitions are those of trec_eval (https://github.com/usnistgov/trec_eval): `mrr` is recip_rank, `map` is map, `ndcg@10`
    is ndcg_cut.10 with the grades as gains, `recall@K` is recall.K, the share of relevant passages that are among the first K,
    and `success@K` is success.K, whether any is. `mrr@10` is `mrr` without ranks above 10, the measure of MS MARCO.
    """
    if grades_by_query is None:
        grades_by_query = [np.ones(len(ranks), np.int64) for ranks in ranks_by_query]
    rows = []
    for ranks, grades in zip(ranks_by_query, grades_by_query, strict=True):
        if not len(ranks):
            rows.append([0.0] * len(metrics))
            continue
        first, within = float(1 / ranks[0]), ranks <= _CUT
        ideal = np.sort(grades)[::-1][:_CUT]
        values = {
            "mrr": first, f"mrr@{_CUT}": first * float(within[0]),
            "map": float((np.arange(1, len(ranks) + 1) / ranks).sum() / len(grades)),
            f"ndcg@{_CUT}": float(_gain(grades[: len(ranks)][within], ranks[within]) / _gain(ideal, 1 + np.arange(len(ideal)))),
            **{f"recall@{depth}": float((ranks <= depth).sum() / len(grades)) for depth in DEPTHS},
            **{f"success@{depth}": float(ranks[0] <= depth) for depth in DEPTHS},
        }
        rows.append([values[name] for name in metrics])
    return np.array(rows, np.float64).reshape(len(rows), len(metrics))


def _gain(grades: Int64, ranks: Int64) -> float:
    """The discounted cumulative gain."""
    return float((grades * (1 / np.log2(1 + ranks))).sum())


def mean_metrics(
    worth: NDArray[np.float64], weights: NDArray[np.float64] | None = None, metrics: Collection[str] = METRICS
) -> dict[str, float]:
    """The means of the metrics over queries, from their worth (Q, M); `weights` (Q,) count some queries more than others."""
    return dict(zip(metrics, np.average(worth, axis=0, weights=weights).tolist(), strict=True))
