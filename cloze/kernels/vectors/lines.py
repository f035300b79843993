"""What the kernels have in common: subsampling, windows, the output rows of a target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.kernels.compiling import INNER, OPTIONS, kernel
from cloze.kernels.vectors.arguments import GROUP, LINE
from cloze.kernels.vectors.draws import GOLDEN, below, draw, high, mix
from cloze.kernels.vectors.registers import fetch

#: The loss is computed at every 64th centre of a line: often enough for the log, too rarely to cost time.
LOSS_EVERY = 64
_TRIES = 8  # a negative that equals the target is drawn again at most this often, then skipped


def room_for(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """A buffer for the words of the longest line; compiled code cannot allocate."""
    return np.empty(int(lengths.max(initial=1)), np.int64)


@kernel(**OPTIONS)
def keep_words(tokens: Any, start: Any, length: Any, keep: Any, sample: Any, state: Any) -> Any:
    """Write the words of a line that subsampling keeps into `sample`. Returns their number and the new random state."""
    count = 0
    for position in range(start, start + length):
        word = np.int64(tokens[position])
        state += GOLDEN
        sample[count] = word
        count += high(mix(state)) < keep[word]
    return count, state


@kernel(**INNER)
def words_around(sample: Any, count: Any, centre: Any, bits: Any, radius: Any, shrinks: Any, words: Any) -> Any:
    """Write the words around a centre into `words`. Returns their number. A shrinking radius is uniform over 1 … `radius`."""
    reach = radius - below(bits, radius) if shrinks else radius
    number = 0
    for position in range(max(0, centre - reach), min(count, centre + reach + 1)):
        words[number] = sample[position]
        number += position != centre
    return number


@kernel(**OPTIONS)
def prepare(target: Any, targets: Any, fresh: Any, outputs: Any, work: Any, slot: Any, state: Any) -> Any:
    """Write the output rows and labels of a target into `slot`, and prefetch the rows. Returns their number and the state.

    This runs one target ahead, so that the rows are in the cache when they are read. If not `fresh`, the negatives are those of
    the other slot.
    """
    rows, labels = work.rows[slot], work.labels[slot]
    if targets.negatives == 0:
        row_count = np.int64(targets.depths[target])
        for r in range(row_count):
            rows[r] = targets.points[target, r]
            labels[r] = 1 - targets.bits[target, r]
    else:
        row_count = np.int64(targets.negatives + 1)
        rows[0], labels[0] = target, 1.0
        for r in range(1, row_count):
            if fresh:
                state += GOLDEN
                rows[r] = draw(mix(state), targets.alias)
            else:
                rows[r] = work.rows[1 - slot, r]
            if targets.redraws:
                for _ in range(_TRIES - 1):
                    if rows[r] == target:
                        state += GOLDEN
                        rows[r] = draw(mix(state), targets.alias)
    for r in range(row_count, -(-row_count // GROUP) * GROUP):
        rows[r] = rows[0]
    for r in range(row_count):
        fetch_row(outputs, rows[r])
    return row_count, state


@kernel(**INNER)
def fetch_row(table: Any, row: Any) -> None:
    """Prefetch a row."""
    for column in range(0, table.shape[1], LINE):
        fetch(table, row, column)


@kernel(**INNER)
def fetch_words(inputs: Any, sample: Any, count: Any, centre: Any, radius: Any) -> None:
    """Prefetch the input rows that the next centre needs: the whole window at first, later one word at a time."""
    first = centre + radius + 1
    for position in range(0 if centre == 0 else first, min(first + 1, count)):
        fetch_row(inputs, sample[position])


@kernel(**INNER)
def fetch_subwords(inputs: Any, subwords: Any, sample: Any, count: Any, position: Any) -> None:
    """Prefetch the input rows of the word at a position of the line, if there is one."""
    if position < count:
        for member in range(subwords.starts[sample[position]], subwords.starts[sample[position] + 1]):
            fetch_row(inputs, subwords.rows[member])
