"""The arguments of the kernels of vectors, as named tuples, which compiled code takes directly. Plain numpy: needs no numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.kernels.vectors.tables import alias_table, coarse_table, thresholds

#: Output rows held in registers together; the rows of a target are padded to a multiple of this.
GROUP = 6

#: Floats per register of the kernels that read rows of tables.
ROW_REGISTER = 8

#: Floats per cache line.
LINE = 16

#: What a window predicts: the centre from each context word, each of these from the centre, or the centre from their mean; or
#: every word of a line from the line's own row.
PREDICT_CENTRE, PREDICT_CONTEXT, PREDICT_FROM_MEAN, PREDICT_FROM_OWNER = 0, 1, 2, 3


class WindowSampling(NamedTuple):
    """Which words subsampling keeps and how windows are cut.

    `shares`: all pairs of a centre share their negatives. `frozen`: only the lines' own rows are trained.
    """

    keep: NDArray[np.uint64]   # (V,) thresholds
    radius: int
    shrinks: bool
    predicts: int
    full: bool                 # every row of a mean gets the whole gradient, not its share
    shares: bool
    frozen: bool

    @classmethod
    def of(
        cls, keep: NDArray[Any], *, radius: int = 5, shrinks: bool = True, predicts: int = PREDICT_CENTRE, full: bool = True,
        shares: bool = False, frozen: bool = False,
    ) -> WindowSampling:
        """From the probability (V,) that an id is kept."""
        return cls(thresholds(keep), radius, shrinks, predicts, full, shares, frozen)


class Targets(NamedTuple):
    """The output rows of each target: the target and its negatives or, if `negatives` is 0, the nodes of its Huffman path."""

    negatives: int
    redraws: bool
    alias: NDArray[np.uint32]  # (V, 2)
    points: NDArray[np.int32]  # (V, depth)
    bits: NDArray[np.int8]     # (V, depth)
    depths: NDArray[np.int32]  # (V,)

    @classmethod
    def sampled(cls, noise: NDArray[Any], *, negatives: int = 5, redraws: bool = False) -> Targets:
        """Negatives sampled in proportion to weights (V,)."""
        none = np.zeros((1, 1), np.int32)
        return cls(negatives, redraws, alias_table(noise), none, none.astype(np.int8), none[0])

    @classmethod
    def coded(cls, points: NDArray[np.int32], bits: NDArray[np.int8], depths: NDArray[np.int32]) -> Targets:
        """Huffman paths; values past the end of a path are not read."""
        return cls(0, False, np.zeros((1, 2), np.uint32), points, bits, depths)

    @property
    def most_rows(self) -> int:
        """The largest number of output rows of one target."""
        return self.negatives + 1 if self.negatives else max(int(self.depths.max(initial=1)), 1)


class SubwordRows(NamedTuple):
    """The table rows of every id i: `rows[starts[i] : starts[i + 1]]`, or row i if `starts` is empty."""

    starts: NDArray[np.int64]  # (V + 1,), or (0,)
    rows: NDArray[np.int64]

    @classmethod
    def none(cls) -> SubwordRows:
        """Every word is one row."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Sigmoid(NamedTuple):
    """How σ is computed: from a table with `scale` cells per unit, exactly if `scale` is 0, by `rows.sigmoid` if it is negative.

    `skip`: pairs whose product is beyond ±6 are not trained (gensim).
    """

    table: NDArray[np.float32]
    scale: np.float32
    skip: bool

    @classmethod
    def fine(cls, *, skip: bool = False) -> Sigmoid:
        """To within 1.3e-5, exactly 0 or 1 beyond ±6: fast."""
        return cls(np.zeros(1, np.float32), np.float32(-1.0), skip)

    @classmethod
    def coarse(cls) -> Sigmoid:
        """The table of word2vec.c and gensim. Their integer division gives 83 cells per unit, so that σ(0) is 0.494."""
        return cls(coarse_table(), np.float32(83.0), True)

    @classmethod
    def exact(cls) -> Sigmoid:
        """The exact function, for tests."""
        return cls(np.zeros(1, np.float32), np.float32(0.0), False)


class ThreadBuffers(NamedTuple):
    """The buffers of one thread; `rows` and `labels` have two slots, for a target and the next one."""

    products: NDArray[np.float32]  # (words of a window + 1, cells of a target: ROW_REGISTER to a group of rows)
    by_cell: NDArray[np.float32]   # (2, cells of a target): labels and rates
    copies: NDArray[np.float32]    # (words of a window + 1, width)
    count_up: NDArray[np.int64]    # 0, 1, 2, …
    rows: NDArray[np.int64]        # (2, rows of a target)
    labels: NDArray[np.float32]    # (2, rows of a target)
    words: NDArray[np.int64]       # words of a window
    members: NDArray[np.int64]     # table rows of a mean
    mean: NDArray[np.float32]      # (1, width)
    change: NDArray[np.float32]    # (1, width)
    gained: NDArray[np.float32]    # (1, width)

    @classmethod
    def of(cls, windows: WindowSampling, targets: Targets, width: int, subwords: SubwordRows | None = None) -> ThreadBuffers:
        """Buffers for the largest window, the target with the most rows and the word with the most subwords."""
        groups, pairs = -(-targets.most_rows // GROUP), 2 * windows.radius + 1
        subword_count = int(np.diff(subwords.starts).max(initial=1)) if subwords is not None else 1
        return cls(
            aligned(pairs, groups * ROW_REGISTER), aligned(2, groups * ROW_REGISTER), aligned(pairs, width), np.arange(pairs),
            np.zeros((2, groups * GROUP), np.int64), np.zeros((2, groups * GROUP), np.float32), np.zeros(pairs, np.int64),
            np.zeros(pairs * subword_count + 1, np.int64), aligned(1, width), aligned(1, width), aligned(1, width),
        )


def padded(width: int) -> int:
    """The width of rows that consist of whole registers.

    >>> padded(100)
    104
    """
    return -(-width // ROW_REGISTER) * ROW_REGISTER


def aligned(rows: int, width: int) -> NDArray[np.float32]:
    """Zeros (rows, width), aligned to a cache line, in huge pages if the system grants them (numpy asks for them)."""
    room = np.empty(rows * width + LINE, np.float32)
    first = -(room.ctypes.data // 4) % LINE
    matrix = room[first : first + rows * width].reshape(rows, width)
    matrix[:] = 0.0
    return matrix


class TrainingLines(NamedTuple):
    """Lines in an array of ids, which may be memory-mapped; each has a learning rate and a key for its random numbers.

    `owners` are the input rows that belong to the lines, such as the vectors of their paragraphs: one for each line, or none.
    """

    tokens: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rates: NDArray[np.float32]
    keys: NDArray[np.uint64]
    owners: NDArray[np.int64] = np.zeros(0, np.int64)


# --- texts ----------------------------------------------------------------------------------------------------------------

#: The losses of the classifier.
SOFTMAX, ONE_VERSUS_ALL, HIERARCHICAL = 0, 1, 2


class Terms(NamedTuple):
    """Which rows a text has: the arrays of `cloze.hashed.Bag`; `end` is an id behind every text, or -1."""

    starts: NDArray[np.int64]   # (V + 1,)
    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]    # (V,)
    hashes: NDArray[np.uint64]  # (V,)
    places: NDArray[np.int32]   # (buckets,)
    longest: int
    buckets: np.uint64
    skips: bool
    end: int

    @classmethod
    def of(cls, bag: Any, end: int) -> Terms:
        """Of a vocabulary with its n-grams."""
        hashing = bag.hashing
        return cls(
            bag.starts, bag.rows, bag.sizes, bag.hashes.astype(np.uint64), bag.places, hashing.words,
            np.uint64(max(hashing.buckets, 1)), hashing.skips, end,
        )

    def most(self, longest: int) -> int:
        """The largest number of rows of a text with up to `longest` words."""
        return (longest + 1) * (int(np.diff(self.starts).max(initial=1)) + self.longest - 1)


class RecordClasses(NamedTuple):
    """The classes of every record, `labels[begins[i] : begins[i + 1]]`, the loss, and for `HIERARCHICAL` the paths of classes."""

    begins: NDArray[np.int64]   # (R + 1,)
    labels: NDArray[np.int64]
    formula: int
    classes: int
    points: NDArray[np.int32]   # (C, depth)
    bits: NDArray[np.int8]      # (C, depth)
    depths: NDArray[np.int32]   # (C,)


class TextJob(NamedTuple):
    """Texts in an array of ids, which may be memory-mapped; each has its record, a learning rate and a random key."""

    tokens: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    records: NDArray[np.int64]
    rates: NDArray[np.float32]
    keys: NDArray[np.uint64]


class TextWork(NamedTuple):
    """The buffers of one thread; `members` has two slots, for a text and the next one."""

    members: NDArray[np.int64]   # (2, rows of a text)
    mean: NDArray[np.float32]    # (1, width)
    gained: NDArray[np.float32]  # (1, width)
    scores: NDArray[np.float32]  # (1, classes)

    @classmethod
    def of(cls, most: int, width: int, classes: int) -> TextWork:
        """Buffers for texts with up to `most` rows."""
        return cls(np.zeros((2, most), np.int64), aligned(1, width), aligned(1, width), aligned(1, classes))


# --- graphs ---------------------------------------------------------------------------------------------------------------


class GraphFacts(NamedTuple):
    """The facts of a graph and what is needed to draw wrong triples; N facts."""

    tokens: NDArray[np.int32]        # (N, 3) the ids of head, relation and tail
    rate: NDArray[np.float64]        # (N,) the probability that a negative replaces the head
    head_of: NDArray[np.int64]       # (N,) the group of heads that a fact belongs to
    head_start: NDArray[np.int64]    # (G + 1,)
    head_less: NDArray[np.int32]     # (N,)
    tail_of: NDArray[np.int64]       # the same of tails
    tail_start: NDArray[np.int64]
    tail_less: NDArray[np.int32]
    salts: NDArray[np.uint64]        # (3, 2) the salts of side, coin and entity
    counts: NDArray[np.int64]        # (6,) either, head, tail, one_side; the number of entities; whether known ones are excluded


class TranslationBuffers(NamedTuple):
    """The buffers of one thread; K negatives."""

    entity: NDArray[np.int64]        # (K,)
    on_head: NDArray[np.bool_]       # (K,)
    distance: NDArray[np.float32]    # (K,)
    rows: NDArray[np.float32]        # (6, width): h + r, t - r, h + r - t, and the changes of h, r and t

    @classmethod
    def of(cls, count: int, width: int) -> TranslationBuffers:
        """Buffers for facts with so many negatives."""
        return cls(
            np.zeros(count, np.int64), np.zeros(count, np.bool_), np.zeros(count, np.float32), np.zeros((6, width), np.float32)
        )
