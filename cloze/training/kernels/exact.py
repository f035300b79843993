"""Skip-gram and CBOW, answer by answer: fresh negatives or a Huffman path for each, words of one row or of many.

word2vec.c and fastText, with the updates in their order. Where one vector is asked several times in a row (a centre of
several subword rows and its context words), its mean is kept at hand, moved after every answer, and its whole change is added
to its rows once: as all rows of a mean move alike, that is the same algorithm but for rows that a word has twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernel import kernel
from cloze.simd import OPTIONS
from cloze.training.kernels.draws import GOLDEN, mix
from cloze.training.kernels.lines import (
    LOSS_EVERY,
    fetch_subwords,
    fetch_words,
    keep_words,
    prepare,
    room_for,
    words_around,
)
from cloze.training.kernels.parts import ASK_CONTEXT, ASK_TOGETHER, GROUP, Job
from cloze.training.kernels.rows import add_row, add_steps, learn, loss_of, move_rows, products_to_steps, take_mean, take_products


@kernel(**OPTIONS)
def collect(words: Any, first: Any, end: Any, subwords: Any, spots: Any) -> Any:
    """Write the table rows of `words[first:end]` into `spots`; how many."""
    number = np.int64(0)
    for j in range(first, end):
        word = words[j]
        if len(subwords.starts) == 0:
            spots[number] = word
            number += 1
        else:
            for place in range(subwords.starts[word], subwords.starts[word + 1]):
                spots[number] = subwords.rows[place]
                number += 1
    return number


@kernel(**OPTIONS)
def learn_mean(
    outputs: Any, rows: Any, asked: Any, labels: Any, work: Any, curve: Any, rate: Any, totals: Any, heard: Any
) -> None:
    """One answer of `work.mean`: output rows move, the mean's gradient comes into `work.gained`."""
    at = work.count_up
    groups = -(-asked // GROUP)
    for group in range(groups):
        take_products(outputs, rows, group, work.mean, at, 1, work.products)
    if heard:
        totals[2] += loss_of(work.products, 1, rows, asked, labels)
        totals[3] += 1
    products_to_steps(work.products, 1, rows, asked, labels, curve, rate, work.ends)
    work.gained[0, :] = 0.0
    for group in range(groups):
        add_steps(outputs, rows, group, work.mean, at, 1, work.products, work.gained, at)


@kernel(**OPTIONS)
def ask_mean_of_centre(
    one: Any, words: Any, pairs: Any, windows: Any, answers: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any,
    rate: Any, state: Any, totals: Any, heard: Any,
) -> Any:
    """The mean of the rows of a centre (`one`) is asked for each of its context words in turn. Returns the state."""
    number = collect(one, 0, 1, subwords, work.spots)
    take_mean(inputs, work.spots, number, work.mean)
    work.change[0, :] = 0.0
    part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
    asked, state = prepare(words[0], answers, True, outputs, work, 0, state)
    for j in range(pairs):
        rows, labels, now = work.rows[j % 2], work.labels[j % 2], asked
        if j + 1 < pairs:
            asked, state = prepare(words[j + 1], answers, not windows.shares, outputs, work, (j + 1) % 2, state)
        learn_mean(outputs, rows, now, labels, work, curve, rate, totals, heard)
        add_row(work.mean, work.gained, part)
        add_row(work.change, work.gained, part)
    move_rows(inputs, work.spots, number, work.change, np.float32(1.0))
    return state


@kernel(**OPTIONS)
def ask_for_centre(
    one: Any, words: Any, pairs: Any, windows: Any, answers: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any,
    rate: Any, state: Any, totals: Any, heard: Any,
) -> Any:
    """Pair by pair: a context word is asked for the centre (`one`) or, with ASK_CONTEXT, the centre for it. Returns the state."""
    single, context = len(subwords.starts) == 0, windows.ask == ASK_CONTEXT
    asked, state = prepare(words[0] if context else one[0], answers, True, outputs, work, 0, state)
    for j in range(pairs):
        rows, labels, now = work.rows[j % 2], work.labels[j % 2], asked
        if j + 1 < pairs:
            coming = words[j + 1] if context else one[0]
            asked, state = prepare(coming, answers, not windows.shares, outputs, work, (j + 1) % 2, state)
        if single:
            asking = one if context else words[j : j + 1]
            learn(outputs, rows, now, labels, inputs, asking, 1, work, curve, rate, totals, heard)
        else:
            number = collect(words, j, j + 1, subwords, work.spots)
            take_mean(inputs, work.spots, number, work.mean)
            learn_mean(outputs, rows, now, labels, work, curve, rate, totals, heard)
            part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
            move_rows(inputs, work.spots, number, work.gained, part)
    return state


def train_exact(
    job: Job, windows: Any, answers: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """Train on the lines of a job, in place; arguments as those of `shared.train_shared`."""
    train_lines(room_for(job.lengths), job, windows, answers, subwords, inputs, outputs, work, curve, totals)


@kernel(**OPTIONS)
def train_lines(
    kept: Any, job: Any, windows: Any, answers: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """`train_exact` with room for the kept words of a line."""
    words = work.words
    together = windows.ask == ASK_TOGETHER
    of_centre = windows.ask == ASK_CONTEXT and len(subwords.starts) > 0
    for line in range(len(job.starts)):
        state, rate = job.keys[line], job.rates[line]
        count, state = keep_words(job.tokens, job.starts[line], job.lengths[line], windows.keep, kept, state)
        totals[0] += job.lengths[line]
        asked, turn = np.int64(0), 0
        if together and count > 1:
            asked, state = prepare(kept[0], answers, True, outputs, work, turn, state)
        for centre in range(count):
            if len(subwords.starts) == 0:
                fetch_words(inputs, kept, count, centre, windows.radius)
            else:
                fetch_subwords(inputs, subwords, kept, count, centre + 1 + (0 if of_centre else windows.radius))
            state += GOLDEN
            pairs = words_around(kept, count, centre, mix(state), windows.radius, windows.shrinks, words)
            if pairs == 0:
                continue
            heard, one = centre % LOSS_EVERY == 0, kept[centre : centre + 1]
            totals[1] += 1 if together else pairs
            if together:
                rows, labels, now = work.rows[turn], work.labels[turn], asked
                turn = 1 - turn
                if centre + 1 < count:
                    asked, state = prepare(kept[centre + 1], answers, True, outputs, work, turn, state)
                number = collect(words, 0, pairs, subwords, work.spots)
                take_mean(inputs, work.spots, number, work.mean)
                learn_mean(outputs, rows, now, labels, work, curve, rate, totals, heard)
                part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
                move_rows(inputs, work.spots, number, work.gained, part)
            elif of_centre:
                state = ask_mean_of_centre(
                    one, words, pairs, windows, answers, subwords, inputs, outputs, work, curve, rate, state, totals, heard
                )
            else:
                state = ask_for_centre(
                    one, words, pairs, windows, answers, subwords, inputs, outputs, work, curve, rate, state, totals, heard
                )
