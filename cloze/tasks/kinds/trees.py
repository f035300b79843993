"""The best tree over the words of a sentence: maximum spanning trees (Chu and Liu, 1965; Edmonds, 1967)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


def best_tree(scores: Scores) -> NDArray[np.int64]:
    """The head of each word (n,) in the tree with the highest sum of scores, in which one word hangs on the root.

    `scores` (n, n + 1): of each word and each head, the root (0) first, then the words; a word's own place is not looked at, and
    -inf is worse than all else. Making all arcs from the root worse by more than any tree can differ leaves one of them in the
    best tree (Stanojević and Cohen, 2021, §3).
    """
    count = len(scores)
    if not count:
        return np.zeros(0, np.int64)
    matrix = np.full((count + 1, count + 1), -np.inf)  # head, dependent
    matrix[:, 1:] = np.asarray(scores, np.float64).T
    np.fill_diagonal(matrix, -np.inf)
    finite = matrix[np.isfinite(matrix)]
    highest, lowest = finite.max(initial=0.0), finite.min(initial=0.0)
    worst = lowest - 1 - count * (highest - lowest)
    matrix[:, 1:][~np.isfinite(matrix[:, 1:])] = worst
    np.fill_diagonal(matrix, -np.inf)
    matrix[0] -= 1 + count * (highest - worst)
    return _arborescence(matrix)[1:]


def _arborescence(scores: Scores) -> NDArray[np.int64]:
    """The head of each node, -1 of node 0, in the best tree from node 0; `scores` are (head, dependent).

    Where the best heads form a circle, its C nodes become one, and the smaller problem of the R other nodes
    and this one is solved, (R + 1, R + 1). The arc into the circle then replaces one of the circle's arcs.
    """
    heads = scores.argmax(0)
    heads[0] = -1
    circle = _circle(heads)
    if not len(circle):
        return heads
    rest = np.setdiff1d(np.arange(len(heads)), circle)  # node 0 is among them
    # (N, C): what each head gains over the arc that the node has in the circle.
    gain = scores[:, circle] - scores[heads[circle], circle]
    # (R,) both, indices into `circle`: the node that an outside head enters best, and the best head in the
    # circle of an outside node.
    enters, leaves = gain[rest].argmax(1), scores[np.ix_(circle, rest)].argmax(0)
    smaller = np.full((len(rest) + 1, len(rest) + 1), -np.inf)  # the circle is the last node
    smaller[:-1, :-1] = scores[np.ix_(rest, rest)]
    smaller[:-1, -1] = gain[rest, enters]
    smaller[-1, :-1] = scores[circle[leaves], rest]
    inner = _arborescence(smaller)  # (R + 1,): heads, numbered as in `smaller`
    for node, head in enumerate(inner[:-1]):
        if node:
            heads[rest[node]] = circle[leaves[node]] if head == len(rest) else rest[head]
    heads[circle[enters[inner[-1]]]] = rest[inner[-1]]
    return heads


def _circle(heads: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes of one circle, ascending; none where all hang on node 0."""
    state = np.zeros(len(heads), np.int64)  # the walk in which a node was met
    state[0] = -1
    for start in range(1, len(heads)):
        at = start
        while not state[at]:
            state[at] = start
            at = int(heads[at])
        if state[at] == start:
            circle = [at]
            while heads[circle[-1]] != at:
                circle.append(int(heads[circle[-1]]))
            return np.sort(np.array(circle))
    return np.zeros(0, np.int64)
