"""What the kernels do alike: the words of a line that are kept, the words of a window, the output rows of an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.kernel import kernel
from cloze.simd import INNER, OPTIONS, fetch
from cloze.training.kernels.draws import GOLDEN, below, draw, high, mix
from cloze.training.kernels.parts import GROUP, LINE

#: The loss is taken at every so manieth centre of a line: often enough to be read, too seldom to cost.
LOSS_EVERY = 64
_TRIES = 8  # after so many draws of the answer itself a negative is left out


def room_for(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Room for the kept words of the longest of some lines: compiled code takes no memory of its own."""
    return np.empty(int(lengths.max(initial=1)), np.int64)


@kernel(**OPTIONS)
def keep_words(tokens: Any, start: Any, length: Any, keep: Any, kept: Any, state: Any) -> Any:
    """Write the words of one line that subsampling keeps into `kept`; their number and the state behind the draws."""
    count = 0
    for place in range(start, start + length):
        word = np.int64(tokens[place])
        state += GOLDEN
        kept[count] = word
        count += high(mix(state)) < keep[word]
    return count, state


@kernel(**INNER)
def words_around(kept: Any, count: Any, centre: Any, bits: Any, radius: Any, shrinks: Any, words: Any) -> Any:
    """Write the words around a centre into `words`; how many. A shrinking radius is 1 … `radius`, alike likely."""
    reach = radius - below(bits, radius) if shrinks else radius
    found = 0
    for place in range(max(0, centre - reach), min(count, centre + reach + 1)):
        words[found] = kept[place]
        found += place != centre
    return found


@kernel(**OPTIONS)
def prepare(answer: Any, answers: Any, fresh: Any, outputs: Any, work: Any, turn: Any, state: Any) -> Any:
    """Write the output rows of one answer and their labels as those of `turn`, and fetch them; how many, and the state.

    Done one answer ahead, so that the rows are there when they are read. Not `fresh`: the negatives of the other turn.
    """
    rows, labels = work.rows[turn], work.labels[turn]
    if answers.negatives == 0:
        asked = np.int64(answers.depths[answer])
        for r in range(asked):
            rows[r] = answers.points[answer, r]
            labels[r] = 1 - answers.bits[answer, r]
    else:
        asked = np.int64(answers.negatives + 1)
        rows[0], labels[0] = answer, 1.0
        for r in range(1, asked):
            if fresh:
                state += GOLDEN
                rows[r] = draw(mix(state), answers.alias)
            else:
                rows[r] = work.rows[1 - turn, r]
            if answers.redraws:
                for _ in range(_TRIES - 1):
                    if rows[r] == answer:
                        state += GOLDEN
                        rows[r] = draw(mix(state), answers.alias)
    for r in range(asked, -(-asked // GROUP) * GROUP):
        rows[r] = rows[0]
    for r in range(asked):
        fetch_row(outputs, rows[r])
    return asked, state


@kernel(**INNER)
def fetch_row(table: Any, row: Any) -> None:
    """Ask for a row ahead of its use."""
    for column in range(0, table.shape[1], LINE):
        fetch(table, row, column)


@kernel(**INNER)
def fetch_words(inputs: Any, kept: Any, count: Any, centre: Any, radius: Any) -> None:
    """Ask for the input rows that come into reach after this centre: the whole first window, later a word at a time."""
    first = centre + radius + 1
    for place in range(0 if centre == 0 else first, min(first + 1, count)):
        fetch_row(inputs, kept[place])


@kernel(**INNER)
def fetch_subwords(inputs: Any, subwords: Any, kept: Any, count: Any, place: Any) -> None:
    """Ask for the input rows of the word at a place of the line, where there is one."""
    if place < count:
        for spot in range(subwords.starts[kept[place]], subwords.starts[kept[place] + 1]):
            fetch_row(inputs, subwords.rows[spot])
