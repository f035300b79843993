"""Nearest words and analogies over vectors of words, block by block, so that a mapped matrix is never held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cloze.errors import UserError, propose
from cloze.interop.vectors import Vectors

Method = Literal["add", "multiply"]
EPSILON = 0.001
_NUMBERS = 1 << 23  # of the matrix, and of scores, held together
_Scores = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class Neighbour(NamedTuple):
    """A word and its score: a cosine, or the score of an analogy."""

    word: str
    score: float


def neighbours(
    vectors: Vectors, words: Sequence[str], *, count: int = 10, restrict: int | None = None
) -> list[list[Neighbour]]:
    """The `count` words of the highest cosine with each of `words`, itself left out, best first.

    `restrict` looks among the first so many words alone (the most frequent ones, where the source is ordered so). A word
    without a vector is a `UserError` that names the nearest by spelling; of fastText an unseen word has its n-grams'. A vector of
    zeros has no cosine: as a query it is a `UserError`, and it is nobody's neighbour.
    """
    queries = unit(np.stack([_direction(vectors, word) for word in words]))
    without = [_themselves(vectors, [word]) for word in words]
    rows, scores = best(vectors, lambda block: queries @ block.T, without, count=count, restrict=restrict)
    return _named(vectors, rows, scores)


def analogy(
    vectors: Vectors,
    a: str,
    b: str,
    c: str,
    *,
    method: Method = "add",
    count: int = 10,
    restrict: int | None = None,
    epsilon: float = EPSILON,
) -> list[Neighbour]:
    """The words that are to c as b is to a, best first; see `solve`. Errors: as `neighbours`."""
    three = np.stack([_direction(vectors, word) for word in (a, b, c)])[None]
    without = [_themselves(vectors, (a, b, c))]
    rows, scores = solve(vectors, three, without, method=method, count=count, restrict=restrict, epsilon=epsilon)
    return _named(vectors, rows, scores)[0]


def solve(
    vectors: Vectors,
    questions: NDArray[np.float32],
    without: Sequence[Sequence[int]],
    *,
    method: Method = "add",
    count: int = 1,
    restrict: int | None = None,
    epsilon: float = EPSILON,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows and scores (Q, count) of the answers to questions (Q, 3, D), the vectors of a, b and c; never a row of `without`.

    `add` is 3CosAdd: the cosine with b - a + c, all of length 1 (Mikolov et al., 2013c, §4). `multiply` is 3CosMul:
    cos(x, b) cos(x, c) / (cos(x, a) + `epsilon`) with cosines moved to 0…1 (Levy & Goldberg, 2014, eq. 4; ε = 0.001 there,
    0.000001 in gensim). A row that is not there (fewer words than `count`) is -1.
    """
    if method not in get_args(Method):
        raise UserError(f"unknown method {method!r}. {propose(method, get_args(Method))}")
    a, b, c = np.moveaxis(unit(questions), 1, 0)
    if method == "add":
        target = unit(b - a + c)
        return best(vectors, lambda block: target @ block.T, without, count=count, restrict=restrict)

    def product(block: NDArray[np.float32]) -> NDArray[np.float32]:
        like_a, like_b, like_c = ((1 + vector @ block.T) / 2 for vector in (a, b, c))
        scores: NDArray[np.float32] = like_b * like_c / (like_a + np.float32(epsilon))
        return scores

    return best(vectors, product, without, count=count, restrict=restrict)


def best(
    vectors: Vectors, scores: _Scores, without: Sequence[Sequence[int]], *, count: int, restrict: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows of the highest scores (Q, count), best first, and the scores; of equal ones the earlier row.

    `scores` maps rows of length 1 (n, D) to (Q, n); each query leaves out the rows in its `without`, and rows of zeros.
    """
    matrix = vectors.matrix[:restrict] if restrict is not None else vectors.matrix
    query_count = len(without)
    rows = np.full((query_count, 0), -1, np.int64)
    best_scores = np.full((query_count, 0), -np.inf, np.float32)
    out = [(query, row) for query, left in enumerate(without) for row in left]
    columns = np.array(out, np.int64).reshape(-1, 2)
    step = max(1, _NUMBERS // max(vectors.width, 3 * query_count))
    for start in range(0, len(matrix), step):
        block = unit(np.asarray(matrix[start : start + step]))
        block_scores = scores(block)
        block_scores[:, ~block.any(1)] = -np.inf
        inside = columns[(columns[:, 1] >= start) & (columns[:, 1] < start + len(block))]
        block_scores[inside[:, 0], inside[:, 1] - start] = -np.inf
        indices = _highest(block_scores, count)
        rows = np.concatenate((rows, indices + start), axis=1)
        best_scores = np.concatenate((best_scores, np.take_along_axis(block_scores, indices, 1)), axis=1)
        order = _highest(best_scores, count)
        rows, best_scores = np.take_along_axis(rows, order, 1), np.take_along_axis(best_scores, order, 1)
    rows[np.isneginf(best_scores)] = -1
    missing = max(0, count - rows.shape[1])
    return (
        np.pad(rows, ((0, 0), (0, missing)), constant_values=-1),
        np.pad(best_scores, ((0, 0), (0, missing)), constant_values=-np.inf),
    )


def zero_words(vectors: Vectors, *, restrict: int | None = None) -> list[str]:
    """The words whose vector is zero, among the first `restrict` words."""
    rows = vectors.matrix[:restrict]
    return [vectors.words[row] for row in np.flatnonzero(~rows.any(1)).tolist()]


def mean_cosine(vectors: Vectors, *, first: int = 1000) -> float:
    """The mean cosine of two different words among the `first` ones; 0 if there are none. It is near 1 after too little training,
    because the first steps move all words in one direction."""
    rows = unit(np.asarray(vectors.matrix[:first], np.float32)).astype(np.float64)
    rows = rows[rows.any(1)]
    count = len(rows)
    return float((np.square(rows.sum(0)).sum() - count) / (count * (count - 1))) if count > 1 else 0.0


def _direction(vectors: Vectors, word: str) -> NDArray[np.float32]:
    """The vector (D,) of a word; a `UserError` for none and for zeros."""
    vector = vectors.vector(word)
    if not vector.any():
        raise UserError(
            f"the vector of {word!r} in {vectors.place} is zero, so it has no cosine with any other.\n  Ask for another word."
        )
    return vector


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows (…, D) divided by their lengths; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("...d,...d->...", rows, rows, dtype=np.float32))
    directions: NDArray[np.float32] = rows / np.maximum(lengths, np.float32(1e-30))[..., None]
    return directions


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """The cosines of paired rows (N, D), (N, D): (N,) float64, to twelve places, so that equal pairs have equal cosines."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", a, a) * np.einsum("nd,nd->n", b, b))
    return np.round(np.einsum("nd,nd->n", a, b) / np.maximum(lengths, 1e-300), 12)


def _highest(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The columns of the highest scores of each row, highest first, of equal ones the first."""
    if count == 1:
        return scores.argmax(1)[:, None]
    if scores.shape[1] > 4 * count:
        columns = np.sort(np.argpartition(scores, -count, axis=1)[:, -count:], axis=1)
    else:
        columns = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")[:, :count]
    return np.take_along_axis(columns, order, 1)


def _themselves(vectors: Vectors, words: Sequence[str]) -> list[int]:
    return [row for word in words if (row := vectors.row(word)) is not None]


def _named(
    vectors: Vectors, rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> list[list[Neighbour]]:
    return [
        [Neighbour(vectors.words[row], float(score)) for row, score in zip(query_rows, values, strict=True) if row >= 0]
        for query_rows, values in zip(rows.tolist(), scores.tolist(), strict=True)
    ]
