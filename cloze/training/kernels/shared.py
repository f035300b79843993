"""Skip-gram with negatives that all context words of one centre share: the fast kernel.

Mikolov et al., Distributed Representations of Words and Phrases, 2013, eq. 4, in the direction of word2vec.c: every
context word's vector predicts the centre.

Differs: word2vec.c draws negatives anew for every pair, and each pair sees the change of the pair before it. Sharing
divides random row reads and draws by about six; the expected gradient is the same, the quality measured equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernel import kernel
from cloze.simd import OPTIONS
from cloze.training.kernels.draws import GOLDEN, mix
from cloze.training.kernels.lines import LOSS_EVERY, fetch_words, keep_words, prepare, room_for, words_around
from cloze.training.kernels.parts import Job
from cloze.training.kernels.rows import learn


def train_shared(job: Job, windows: Any, answers: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any) -> None:
    """Train on the lines of a job, in place.

    `inputs` and `outputs` (V, width) float32, the width a multiple of SIMD_WIDTH. `totals` (4,) float64 gains words read, pairs
    trained, and loss and number of the pairs whose loss was taken.
    """
    train_lines(room_for(job.lengths), job, windows, answers, inputs, outputs, work, curve, totals)


@kernel(**OPTIONS)
def train_lines(
    kept: Any, job: Any, windows: Any, answers: Any, inputs: Any, outputs: Any, work: Any, curve: Any, totals: Any
) -> None:
    """`train_shared` with room for the kept words of a line."""
    for line in range(len(job.starts)):
        state, rate = job.keys[line], job.rates[line]
        count, state = keep_words(job.tokens, job.starts[line], job.lengths[line], windows.keep, kept, state)
        totals[0] += job.lengths[line]
        asked, turn = np.int64(0), 0
        if count > 1:
            asked, state = prepare(kept[0], answers, True, outputs, work, turn, state)
        for centre in range(count):
            fetch_words(inputs, kept, count, centre, windows.radius)
            state += GOLDEN
            pairs = words_around(kept, count, centre, mix(state), windows.radius, windows.shrinks, work.words)
            rows, labels = work.rows[turn], work.labels[turn]
            turn = 1 - turn
            if centre + 1 < count:
                _, state = prepare(kept[centre + 1], answers, True, outputs, work, turn, state)
            if pairs > 0:
                heard = centre % LOSS_EVERY == 0
                learn(outputs, rows, asked, labels, inputs, work.words, pairs, work, curve, rate, totals, heard)
                totals[1] += pairs
