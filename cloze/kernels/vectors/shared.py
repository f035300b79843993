"""Skip-gram whose context words share the negatives of their centre: the fast kernel.

Mikolov et al., Distributed Representations of Words and Phrases, 2013, eq. 4, in the direction of word2vec.c: every
context word's vector predicts the centre.

Differs: word2vec.c draws fresh negatives for every pair, and each pair sees the update of the pair before. Sharing divides
random row reads and draws by about six. The expected gradient is the same; the measured quality is equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernels.compiling import OPTIONS, kernel
from cloze.kernels.vectors.arguments import TrainingLines
from cloze.kernels.vectors.draws import GOLDEN, mix
from cloze.kernels.vectors.lines import LOSS_EVERY, fetch_words, keep_words, prepare, room_for, words_around
from cloze.kernels.vectors.rows import learn


def train_shared(
    job: TrainingLines, windows: Any, targets: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """Train on the lines of a job, in place.

    `inputs` and `outputs` (V, width) float32, the width a multiple of ROW_REGISTER. `totals` (4,) float64 gains the words
    read, the pairs trained, and the loss and number of the pairs whose loss was computed.
    """
    train_lines(room_for(job.lengths), job, windows, targets, inputs, outputs, work, curve, totals)


@kernel(**OPTIONS)
def train_lines(
    sample: Any, job: Any, windows: Any, targets: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """`train_shared` with a buffer for the words of a line."""
    for line in range(len(job.starts)):
        state, rate = job.keys[line], job.rates[line]
        count, state = keep_words(job.tokens, job.starts[line], job.lengths[line], windows.keep, sample, state)
        totals[0] += job.lengths[line]
        row_count, slot = np.int64(0), 0
        if count > 1:
            row_count, state = prepare(sample[0], targets, True, outputs, work, slot, state)
        for centre in range(count):
            fetch_words(inputs, sample, count, centre, windows.radius)
            state += GOLDEN
            pairs = words_around(sample, count, centre, mix(state), windows.radius, windows.shrinks, work.words)
            rows, labels = work.rows[slot], work.labels[slot]
            slot = 1 - slot
            if centre + 1 < count:
                _, state = prepare(sample[centre + 1], targets, True, outputs, work, slot, state)
            if pairs > 0:
                with_loss = centre % LOSS_EVERY == 0
                learn(outputs, rows, row_count, labels, inputs, work.words, pairs, work, curve, rate, totals, with_loss)
                totals[1] += pairs
