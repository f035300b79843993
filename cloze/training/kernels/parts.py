"""What a kernel is given, in named parts. Compiled code takes them as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.training.kernels.draws import alias_table, coarse_table, thresholds

#: Output rows that stay in registers together; those of an answer are padded to a multiple.
GROUP = 6

#: Floats per register of these kernels. Sixteen are no faster, since rows come from memory, and would need more padding.
SIMD_WIDTH = 8

#: Floats of a cache line.
LINE = 16

#: What a window asks: for the centre of each word around it, for each word around the centre, or for the centre of all at once.
ASK_CENTRE, ASK_CONTEXT, ASK_TOGETHER = 0, 1, 2


class Windows(NamedTuple):
    """Which words are kept and how windows are cut. `shares`: one draw of negatives for all pairs of a centre."""

    keep: NDArray[np.uint64]   # (V,) thresholds
    radius: int
    shrinks: bool
    ask: int
    full: bool                 # every row of a mean gets the whole gradient, not its part
    shares: bool

    @classmethod
    def of(
        cls, keep: NDArray[Any], *, radius: int = 5, shrinks: bool = True, ask: int = ASK_CENTRE, full: bool = True,
        shares: bool = False,
    ) -> Windows:
        """From the probability of every id to be kept, (V,)."""
        return cls(thresholds(keep), radius, shrinks, ask, full, shares)


class Answers(NamedTuple):
    """What the output rows of an answer are: itself and negatives, or, with `negatives` 0, the nodes of its Huffman path."""

    negatives: int
    redraws: bool
    alias: NDArray[np.uint32]  # (V, 2)
    points: NDArray[np.int32]  # (V, depth)
    bits: NDArray[np.int8]     # (V, depth)
    depths: NDArray[np.int32]  # (V,)

    @classmethod
    def drawn(cls, noise: NDArray[Any], *, negatives: int = 5, redraws: bool = False) -> Answers:
        """Negatives by their weights, (V,)."""
        none = np.zeros((1, 1), np.int32)
        return cls(negatives, redraws, alias_table(noise), none, none.astype(np.int8), none[0])

    @classmethod
    def coded(cls, points: NDArray[np.int32], bits: NDArray[np.int8], depths: NDArray[np.int32]) -> Answers:
        """Huffman paths; what stands behind the end of a path is not read."""
        return cls(0, False, np.zeros((1, 2), np.uint32), points, bits, depths)

    @property
    def most_rows(self) -> int:
        """The largest number of output rows of one answer."""
        return self.negatives + 1 if self.negatives else max(int(self.depths.max(initial=1)), 1)


class Subwords(NamedTuple):
    """The table rows of every id: `rows[starts[i] : starts[i + 1]]`; no starts: each id has the row of its own number."""

    starts: NDArray[np.int64]  # (V + 1,), or (0,)
    rows: NDArray[np.int64]

    @classmethod
    def none(cls) -> Subwords:
        """Every word is one row."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Curve(NamedTuple):
    """How σ is had: by a table of `scale` cells per unit; 0: exactly; below 0: by registers (`rows.sigmoid`).

    `skip`: products beyond ±6 teach nothing (gensim).
    """

    table: NDArray[np.float32]
    scale: np.float32
    skip: bool

    @classmethod
    def fine(cls, *, skip: bool = False) -> Curve:
        """To within 1.3e-5, 0 and 1 beyond ±6: for speed."""
        return cls(np.zeros(1, np.float32), np.float32(-1.0), skip)

    @classmethod
    def coarse(cls) -> Curve:
        """The table of word2vec.c and gensim with its integer division: 83 cells per unit, so that σ(0) is 0.494."""
        return cls(coarse_table(), np.float32(83.0), True)

    @classmethod
    def exact(cls) -> Curve:
        """The function itself: for tests."""
        return cls(np.zeros(1, np.float32), np.float32(0.0), False)


class Work(NamedTuple):
    """The buffers of one thread; `rows` and `labels` twice, for an answer and the one after it."""

    products: NDArray[np.float32]  # (words of a window + 1, cells of an answer: SIMD_WIDTH to a group of rows)
    ends: NDArray[np.float32]      # (2, cells of an answer): labels and rates
    copies: NDArray[np.float32]    # (words of a window + 1, width)
    count_up: NDArray[np.int64]    # 0, 1, 2, …
    rows: NDArray[np.int64]        # (2, rows of an answer)
    labels: NDArray[np.float32]    # (2, rows of an answer)
    words: NDArray[np.int64]       # words of a window
    spots: NDArray[np.int64]       # table rows that a mean is taken of
    mean: NDArray[np.float32]      # (1, width)
    change: NDArray[np.float32]    # (1, width)
    gained: NDArray[np.float32]    # (1, width)

    @classmethod
    def of(cls, windows: Windows, answers: Answers, width: int, subwords: Subwords | None = None) -> Work:
        """Room for the largest window, the longest answer and the words of the most rows."""
        groups, pairs = -(-answers.most_rows // GROUP), 2 * windows.radius + 1
        each = int(np.diff(subwords.starts).max(initial=1)) if subwords is not None else 1
        return cls(
            aligned(pairs, groups * SIMD_WIDTH), aligned(2, groups * SIMD_WIDTH), aligned(pairs, width), np.arange(pairs),
            np.zeros((2, groups * GROUP), np.int64), np.zeros((2, groups * GROUP), np.float32), np.zeros(pairs, np.int64),
            np.zeros(pairs * each, np.int64), aligned(1, width), aligned(1, width), aligned(1, width),
        )


def aligned(rows: int, width: int) -> NDArray[np.float32]:
    """Zeros (rows, width) that begin at the border of a cache line, in huge pages where the system gives them (numpy asks)."""
    room = np.empty(rows * width + LINE, np.float32)
    first = -(room.ctypes.data // 4) % LINE
    found = room[first : first + rows * width].reshape(rows, width)
    found[:] = 0.0
    return found


class Job(NamedTuple):
    """Lines of flat ids (memory-mapped or not); each with its rate and the key that its draws begin with."""

    tokens: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rates: NDArray[np.float32]
    keys: NDArray[np.uint64]
