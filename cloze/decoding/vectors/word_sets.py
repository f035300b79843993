"""What a set of words says by its vectors: the odd one out, classes of words, and vectors fitted to a lexicon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.vectors.neighbours import Neighbour, unit
from cloze.errors import UserError, counted
from cloze.interop.vectors import Vectors

_COLUMNS = 16    # of a matrix, fitted to a lexicon together
_ROWS = 1 << 14  # compared with all classes together
_SMALL = 1e-6    # added to squared lengths, as in retrofit.py


def fitting(vectors: Vectors, words: Sequence[str]) -> list[Neighbour]:
    """The words with their cosines with the mean of all their vectors of length 1, the odd one out first.

    That is gensim's `doesnt_match`. Fewer than three different words, and a word without a vector, are a `UserError`.
    """
    different = list(dict.fromkeys(words))
    if len(different) < 3:
        raise UserError(f"the odd one out of {counted(len(different), 'different word')}: expected three or more.")
    rows = unit(np.stack([vectors.vector(word) for word in different]))
    scores = rows @ unit(rows.mean(0))
    order = np.argsort(scores, kind="stable")
    return [Neighbour(different[index], float(scores[index])) for index in order.tolist()]


def classes(vectors: Vectors, count: int, *, passes: int = 10) -> NDArray[np.int64]:
    """The class 0 … `count` - 1 of every word (N,), by k-means as word2vec.c does it (its `-classes`).

    Word i begins in class i mod `count`. A pass makes each class the mean of its words, with length 1, and puts every word into
    the class with which it has the highest product. The same vectors always give the same classes.
    """
    matrix = vectors.matrix
    if not 1 <= count <= len(matrix):
        raise UserError(f"{count:,} classes for {counted(len(matrix), 'word')}: expected 1 to {len(matrix):,}.")
    labels = np.arange(len(matrix)) % count
    for _ in range(passes):
        sums = np.zeros((count, vectors.width))
        for start in range(0, len(matrix), _ROWS):
            np.add.at(sums, labels[start : start + _ROWS], matrix[start : start + _ROWS])
        means = unit((sums / np.maximum(np.bincount(labels, minlength=count), 1)[:, None]).astype(np.float32))
        labels = np.concatenate([
            (np.asarray(matrix[start : start + _ROWS]) @ means.T).argmax(1) for start in range(0, len(matrix), _ROWS)
        ])
    return labels


def retrofitted(
    vectors: Vectors, lexicon: Iterable[Sequence[str]], *, passes: int = 10, normed: bool = False
) -> tuple[Vectors, int]:
    """The vectors moved towards those of related words, and how many words have moved (Faruqui et al., 2015, eq. 1 and 2).

    Each entry of the `lexicon` is a word and the words related to it. In a pass, a word with neighbours becomes the mean of what
    it was at first and of the mean of its neighbours, as in the authors' code (α is the number of neighbours, each β is 1).
    Unknown words are left out. With `normed`, all vectors first get the length 1, as in that code (mfaruqui/retrofitting,
    `retrofit.py`).

    Differs: without `normed`, lengths stay as they are, and long vectors weigh more among neighbours. Relations hold in both
    directions, as in the paper's graph; the authors' code moves only words that begin a line. Words are found as they are
    spelled; the code puts vectors and lexicon in lower case, and takes all numbers of the lexicon for one word. All words of a
    pass move at once, not one after another; both have the same limit.
    """
    if vectors.subwords is not None:
        raise UserError(f"{vectors.place}: the vector of a word is made of its n-grams, so that it cannot be moved alone.")
    edges = set()
    for word, *related in lexicon:
        row = vectors.row(word)
        for other in map(vectors.row, related) if row is not None else ():
            if other is not None and other != row:
                edges |= {(row, other), (other, row)}
    if not edges:
        raise UserError(f"{vectors.place}: no two related words of the lexicon are among its {len(vectors):,} words.")
    source, target = np.array(sorted(edges), np.int64).T
    moved, first = np.unique(source, return_index=True)
    degree = np.diff(first, append=len(source))[:, None].astype(np.float32)
    matrix = np.array(vectors.own, np.float32)
    if normed:
        matrix /= np.sqrt(np.square(matrix).sum(1, keepdims=True) + _SMALL)
    for start in range(0, vectors.width, _COLUMNS):
        part = matrix[:, start : start + _COLUMNS].copy()
        initial = part[moved].copy()
        for _ in range(passes):
            part[moved] = (initial + np.add.reduceat(part[target], first, axis=0) / degree) / 2
        matrix[:, start : start + _COLUMNS] = part
    return replace(vectors, own=matrix), len(moved)
