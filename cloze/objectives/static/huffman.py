"""Huffman codes of a vocabulary by word2vec's two queues. numpy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Codes(NamedTuple):
    """The path of every id from the root: `points` and `bits` (V, depth), `lengths` (V,); -1 after the end of a path.

    `points` are inner nodes, which are rows of the output table; with W words the root is W - 2.
    """

    points: NDArray[np.int32]
    bits: NDArray[np.int8]
    lengths: NDArray[np.int32]


def huffman(counts: NDArray[np.int64]) -> Codes:
    """The codes of ids by their counts (V,); ids with count 0 get none.

    As in word2vec.c, `CreateBinaryTree`: words by decreasing count (ties by id), two queues, the smaller of leaf and inner node
    first; at a tie the inner node. Of two nodes that are joined the second gets bit 1.

    >>> codes = huffman(np.array([5, 4, 3, 2, 1]))
    >>> ["".join(map(str, bits[:length])) for bits, length in zip(codes.bits, codes.lengths)]
    ['11', '10', '01', '001', '000']
    """
    # W words have a count: `words`, `node`, `depths` (W,). Nodes 0 … W - 1 are leaves, in the order of
    # `words`; W … 2 W - 2 are inner nodes, in the order in which they are made, so that the last is the root.
    words = np.flatnonzero(counts > 0)
    words = words[np.argsort(-counts[words], kind="stable")]
    parent, bit = _join(np.asarray(counts, np.int64)[words])
    number = len(words)
    node = np.arange(number)  # where each word's climb has come to
    steps: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    at_root = 2 * number - 2
    while number > 1 and (node != at_root).any():  # from the leaves up, all words at once
        climbs = node != at_root
        below = np.minimum(node, at_root - 1)
        above = np.where(climbs, parent[below], at_root)
        steps.append((np.where(climbs, above - number, -1), np.where(climbs, bit[below], np.int8(-1))))
        node = above
    depth = len(steps)
    lengths = np.zeros(len(counts), np.int32)
    points, bits = np.full((len(counts), depth), -1, np.int32), np.full((len(counts), depth), -1, np.int8)
    if depth:
        # (W, depth): the inner node above and the bit of each step of a climb.
        up, branches = np.stack([s[0] for s in steps], 1), np.stack([s[1] for s in steps], 1)
        depths = (up >= 0).sum(1)
        back = depths[:, None] - 1 - np.arange(depth)  # the path from the root is the climb read backwards
        inside = back >= 0
        lengths[words] = depths
        points[words] = np.where(inside, np.take_along_axis(up, np.maximum(back, 0), 1), -1)
        bits[words] = np.where(inside, np.take_along_axis(branches, np.maximum(back, 0), 1), -1)
    return Codes(points, bits, lengths)


def _join(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The parent and the bit of every node but the root, for counts in decreasing order; leaves come first."""
    number = len(counts)
    weight = [*counts.tolist(), *([0] * max(number - 1, 0))]
    parent, bit = np.zeros(max(2 * number - 2, 0), np.int64), np.zeros(max(2 * number - 2, 0), np.int8)
    leaf, inner = number - 1, number  # the smallest leaf and the smallest inner node that have no parent yet
    for node in range(number, 2 * number - 1):
        chosen = []
        for _ in range(2):
            if leaf >= 0 and (inner >= node or weight[leaf] < weight[inner]):
                chosen.append(leaf)
                leaf -= 1
            else:
                chosen.append(inner)
                inner += 1
        weight[node] = weight[chosen[0]] + weight[chosen[1]]
        parent[chosen] = node
        bit[chosen[1]] = 1
    return parent, bit
