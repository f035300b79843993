"""Skip-gram, CBOW and paragraph vectors, target by target, with fresh negatives or a Huffman path for each.

The updates of word2vec.c and fastText, in their order. If one vector predicts several targets in a row (a centre with several
subword rows), its mean is kept and updated after every target, and the total change is added to its rows once. As all rows of
a mean change alike, that is the same algorithm, except for rows that a word has twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernels.compiling import OPTIONS, kernel
from cloze.kernels.vectors.arguments import GROUP, PREDICT_CONTEXT, PREDICT_FROM_MEAN, PREDICT_FROM_OWNER, TrainingLines
from cloze.kernels.vectors.draws import GOLDEN, mix
from cloze.kernels.vectors.lines import (
    LOSS_EVERY,
    fetch_subwords,
    fetch_words,
    keep_words,
    prepare,
    room_for,
    words_around,
)
from cloze.kernels.vectors.rows import (
    add_gained,
    add_row,
    add_steps,
    learn,
    learn_frozen,
    loss_of,
    move_rows,
    products_to_steps,
    take_mean,
    take_products,
)


@kernel(**OPTIONS)
def collect(words: Any, first: Any, end: Any, subwords: Any, members: Any) -> Any:
    """Write the table rows of `words[first:end]` into `members`. Returns their number."""
    number = np.int64(0)
    for j in range(first, end):
        word = words[j]
        if len(subwords.starts) == 0:
            members[number] = word
            number += 1
        else:
            for position in range(subwords.starts[word], subwords.starts[word + 1]):
                members[number] = subwords.rows[position]
                number += 1
    return number


@kernel(**OPTIONS)
def learn_mean(
    outputs: Any, rows: Any, row_count: Any, labels: Any, work: Any, curve: Any, rate: Any, totals: Any, with_loss: Any,
    frozen: Any,
) -> None:
    """Train one target of `work.mean`: update the output rows, unless `frozen`, and write the gradient of the mean into
    `work.gained`."""
    at = work.count_up
    groups = -(-row_count // GROUP)
    for group in range(groups):
        take_products(outputs, rows, group, work.mean, at, 1, work.products)
    if with_loss:
        totals[2] += loss_of(work.products, 1, rows, row_count, labels)
        totals[3] += 1
    products_to_steps(work.products, 1, rows, row_count, labels, curve, rate, work.by_cell)
    work.gained[0, :] = 0.0
    for group in range(groups):
        if frozen:
            add_gained(outputs, rows, group, work.products, work.gained, 0)
        else:
            add_steps(outputs, rows, group, work.mean, at, 1, work.products, work.gained, at)


@kernel(**OPTIONS)
def train_words(
    number: Any, words: Any, pairs: Any, windows: Any, targets: Any, inputs: Any, outputs: Any, work: Any, curve: Any, rate: Any,
    state: Any, totals: Any, loss_every: Any,
) -> Any:
    """Predict each of some words from the mean of the rows `work.members[:number]`. Returns the random state.

    The loss is computed at every `loss_every`th word, a power of two, or never if that is 0.
    """
    alone = number == 1  # then the row itself is read and moved
    if not alone:
        take_mean(inputs, work.members, number, work.mean)
        work.change[0, :] = 0.0
    part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
    row_count, state = prepare(words[0], targets, True, outputs, work, 0, state)
    for j in range(pairs):
        rows, labels, now = work.rows[j % 2], work.labels[j % 2], row_count
        if j + 1 < pairs:
            row_count, state = prepare(words[j + 1], targets, not windows.shares, outputs, work, (j + 1) % 2, state)
        with_loss = loss_every > 0 and (j & (loss_every - 1)) == 0
        if alone and windows.frozen:
            learn_frozen(outputs, rows, now, labels, inputs, work.members, work, curve, rate, totals, with_loss)
        elif alone:
            learn(outputs, rows, now, labels, inputs, work.members, 1, work, curve, rate, totals, with_loss)
        else:
            learn_mean(outputs, rows, now, labels, work, curve, rate, totals, with_loss, False)
            add_row(work.mean, work.gained, part)
            add_row(work.change, work.gained, part)
    if not alone:
        move_rows(inputs, work.members, number, work.change, np.float32(1.0))
    return state


@kernel(**OPTIONS)
def train_pairs(
    centre: Any, words: Any, pairs: Any, windows: Any, targets: Any, subwords: Any, inputs: Any, outputs: Any, work: Any,
    curve: Any, rate: Any, state: Any, totals: Any, with_loss: Any,
) -> Any:
    """Pair by pair, predict `centre` from a context word, or the word from it (PREDICT_CONTEXT). Returns the state."""
    single, context = len(subwords.starts) == 0, windows.predicts == PREDICT_CONTEXT
    row_count, state = prepare(words[0] if context else centre[0], targets, True, outputs, work, 0, state)
    for j in range(pairs):
        rows, labels, now = work.rows[j % 2], work.labels[j % 2], row_count
        if j + 1 < pairs:
            coming = words[j + 1] if context else centre[0]
            row_count, state = prepare(coming, targets, not windows.shares, outputs, work, (j + 1) % 2, state)
        if single:
            asking = centre if context else words[j : j + 1]
            learn(outputs, rows, now, labels, inputs, asking, 1, work, curve, rate, totals, with_loss)
        else:
            number = collect(words, j, j + 1, subwords, work.members)
            take_mean(inputs, work.members, number, work.mean)
            learn_mean(outputs, rows, now, labels, work, curve, rate, totals, with_loss, False)
            part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
            move_rows(inputs, work.members, number, work.gained, part)
    return state


def train_exact(
    job: TrainingLines, windows: Any, targets: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """Train on the lines of a job, in place; the arguments are those of `shared.train_shared`."""
    train_lines(room_for(job.lengths), job, windows, targets, subwords, inputs, outputs, work, curve, totals)


@kernel(**OPTIONS)
def train_lines(
    sample: Any, job: Any, windows: Any, targets: Any, subwords: Any, inputs: Any, outputs: Any, work: Any, curve: Any,
    totals: Any,
) -> None:
    """`train_exact` with a buffer for the words of a line."""
    words = work.words
    together = windows.predicts == PREDICT_FROM_MEAN
    owned = len(job.owners) > 0
    of_centre = windows.predicts == PREDICT_CONTEXT and len(subwords.starts) > 0
    for line in range(len(job.starts)):
        state, rate = job.keys[line], job.rates[line]
        count, state = keep_words(job.tokens, job.starts[line], job.lengths[line], windows.keep, sample, state)
        totals[0] += job.lengths[line]
        if windows.predicts == PREDICT_FROM_OWNER:
            if count > 0:
                work.members[0] = job.owners[line]
                totals[1] += count
                state = train_words(
                    1, sample, count, windows, targets, inputs, outputs, work, curve, rate, state, totals, LOSS_EVERY
                )
            continue
        row_count, slot = np.int64(0), 0
        if together and count > 1:
            row_count, state = prepare(sample[0], targets, True, outputs, work, slot, state)
        for centre in range(count):
            if len(subwords.starts) == 0:
                fetch_words(inputs, sample, count, centre, windows.radius)
            else:
                fetch_subwords(inputs, subwords, sample, count, centre + 1 + (0 if of_centre else windows.radius))
            state += GOLDEN
            pairs = words_around(sample, count, centre, mix(state), windows.radius, windows.shrinks, words)
            if pairs == 0:
                continue
            with_loss, word = centre % LOSS_EVERY == 0, sample[centre : centre + 1]
            totals[1] += 1 if together else pairs
            if together:
                rows, labels, now = work.rows[slot], work.labels[slot], row_count
                slot = 1 - slot
                if centre + 1 < count:
                    row_count, state = prepare(sample[centre + 1], targets, True, outputs, work, slot, state)
                number = collect(words, 0, pairs, subwords, work.members)
                if owned:
                    work.members[number] = job.owners[line]
                    number += 1
                take_mean(inputs, work.members, number, work.mean)
                learn_mean(outputs, rows, now, labels, work, curve, rate, totals, with_loss, windows.frozen)
                part = np.float32(1.0) if windows.full else np.float32(1.0) / np.float32(number)
                first = number - 1 if windows.frozen else 0
                move_rows(inputs, work.members[first:], number - first, work.gained, part)
            elif of_centre:
                number = collect(word, 0, 1, subwords, work.members)
                state = train_words(
                    number, words, pairs, windows, targets, inputs, outputs, work, curve, rate, state, totals, int(with_loss)
                )
            else:
                state = train_pairs(
                    word, words, pairs, windows, targets, subwords, inputs, outputs, work, curve, rate, state, totals, with_loss
                )
