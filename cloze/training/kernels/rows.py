"""The arithmetic of every kernel: some input rows against some output rows, all products first, then all updates.

GROUP output rows stay in registers while the input rows pass by, so a window reads and writes each row once. An input row
moves by the output rows as they were, an output row by the input rows as they were.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from cloze.training.kernels.draws import OPTIONS, squash
from cloze.training.kernels.lanes import LANES, add_product, load, spread, store, total
from cloze.training.kernels.parts import GROUP


@numba.njit(**OPTIONS)
def take_products(outputs: Any, rows: Any, first: Any, reads: Any, at: Any, count: Any, products: Any) -> None:
    """products[j, first : first + GROUP] = reads[at[j]] · outputs[rows[first : first + GROUP]] for j < count."""
    r0, r1, r2, r3, r4, r5 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3], rows[first + 4], rows[first + 5]
    zero = spread(np.float32(0.0))
    for j in range(0, count - 1, 2):
        u, v = at[j], at[j + 1]
        a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
        b0, b1, b2, b3, b4, b5 = zero, zero, zero, zero, zero, zero
        for block in range(reads.shape[1] // LANES):
            d = block * LANES
            x, y = load(reads, u, d), load(reads, v, d)
            row = load(outputs, r0, d)
            a0, b0 = add_product(a0, row, x), add_product(b0, row, y)
            row = load(outputs, r1, d)
            a1, b1 = add_product(a1, row, x), add_product(b1, row, y)
            row = load(outputs, r2, d)
            a2, b2 = add_product(a2, row, x), add_product(b2, row, y)
            row = load(outputs, r3, d)
            a3, b3 = add_product(a3, row, x), add_product(b3, row, y)
            row = load(outputs, r4, d)
            a4, b4 = add_product(a4, row, x), add_product(b4, row, y)
            row = load(outputs, r5, d)
            a5, b5 = add_product(a5, row, x), add_product(b5, row, y)
        products[j, first], products[j, first + 1], products[j, first + 2] = total(a0), total(a1), total(a2)
        products[j, first + 3], products[j, first + 4], products[j, first + 5] = total(a3), total(a4), total(a5)
        products[j + 1, first], products[j + 1, first + 1], products[j + 1, first + 2] = total(b0), total(b1), total(b2)
        products[j + 1, first + 3], products[j + 1, first + 4], products[j + 1, first + 5] = total(b3), total(b4), total(b5)
    if count % 2:
        u = at[count - 1]
        a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
        for block in range(reads.shape[1] // LANES):
            d = block * LANES
            x = load(reads, u, d)
            a0, a1 = add_product(a0, load(outputs, r0, d), x), add_product(a1, load(outputs, r1, d), x)
            a2, a3 = add_product(a2, load(outputs, r2, d), x), add_product(a3, load(outputs, r3, d), x)
            a4, a5 = add_product(a4, load(outputs, r4, d), x), add_product(a5, load(outputs, r5, d), x)
        j = count - 1
        products[j, first], products[j, first + 1], products[j, first + 2] = total(a0), total(a1), total(a2)
        products[j, first + 3], products[j, first + 4], products[j, first + 5] = total(a3), total(a4), total(a5)


@numba.njit(**OPTIONS)
def add_steps(
    outputs: Any, rows: Any, first: Any, reads: Any, at: Any, count: Any, steps: Any, changes: Any, into: Any
) -> None:
    """changes[into[j]] += Σ_r steps[j, r] · outputs[rows[r]], outputs[rows[r]] += Σ_j steps[j, r] · reads[at[j]]."""
    r0, r1, r2, r3, r4, r5 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3], rows[first + 4], rows[first + 5]
    zero, one = spread(np.float32(0.0)), spread(np.float32(1.0))
    for block in range(reads.shape[1] // LANES):
        d = block * LANES
        h0, h1, h2 = load(outputs, r0, d), load(outputs, r1, d), load(outputs, r2, d)
        h3, h4, h5 = load(outputs, r3, d), load(outputs, r4, d), load(outputs, r5, d)
        c0, c1, c2, c3, c4, c5 = zero, zero, zero, zero, zero, zero
        for j in range(count):
            seen, moved = load(reads, at[j], d), load(changes, into[j], d)
            step = spread(steps[j, first])
            c0, moved = add_product(c0, step, seen), add_product(moved, step, h0)
            step = spread(steps[j, first + 1])
            c1, moved = add_product(c1, step, seen), add_product(moved, step, h1)
            step = spread(steps[j, first + 2])
            c2, moved = add_product(c2, step, seen), add_product(moved, step, h2)
            step = spread(steps[j, first + 3])
            c3, moved = add_product(c3, step, seen), add_product(moved, step, h3)
            step = spread(steps[j, first + 4])
            c4, moved = add_product(c4, step, seen), add_product(moved, step, h4)
            step = spread(steps[j, first + 5])
            c5, moved = add_product(c5, step, seen), add_product(moved, step, h5)
            store(changes, into[j], d, moved)
        # Read again before each write: the same negative may have been drawn twice.
        store(outputs, r0, d, add_product(load(outputs, r0, d), one, c0))
        store(outputs, r1, d, add_product(load(outputs, r1, d), one, c1))
        store(outputs, r2, d, add_product(load(outputs, r2, d), one, c2))
        store(outputs, r3, d, add_product(load(outputs, r3, d), one, c3))
        store(outputs, r4, d, add_product(load(outputs, r4, d), one, c4))
        store(outputs, r5, d, add_product(load(outputs, r5, d), one, c5))


@numba.njit(**OPTIONS)
def products_to_steps(products: Any, count: Any, rows: Any, asked: Any, labels: Any, curve: Any, rate: Any) -> None:
    """Replace each product x by (label - σ(x)) · rate; by 0 for idle rows and for a negative that is the answer."""
    for r in range(-(-asked // GROUP) * GROUP):
        live = r < asked and (r == 0 or rows[r] != rows[0])
        for j in range(count):
            x = products[j, r]
            open_ = live and not (curve.skip and abs(x) >= np.float32(6.0))
            products[j, r] = (labels[r] - squash(x, curve.table, curve.scale)) * rate if open_ else np.float32(0.0)


@numba.njit(**OPTIONS)
def loss_of(products: Any, count: Any, rows: Any, asked: Any, labels: Any) -> Any:
    """-log σ(x) over rows of label 1 and -log σ(-x) over those of label 0, of all `count` answers."""
    loss = 0.0
    for j in range(count):
        for r in range(asked):
            x = np.float64(products[j, r])
            if r == 0 or rows[r] != rows[0]:
                against = -x if labels[r] > 0.5 else x
                loss += max(against, 0.0) + np.log1p(np.exp(-abs(against)))
    return loss


@numba.njit(**OPTIONS)
def learn(
    outputs: Any, rows: Any, asked: Any, labels: Any, inputs: Any, words: Any, count: Any, work: Any, curve: Any, rate: Any,
    totals: Any, heard: Any,
) -> None:
    """Input rows `words[:count]` against output rows `rows[:asked]` with `labels`, both moved in place.

    `rows` has a multiple of GROUP ids, of which those beyond `asked` are idle but must be valid; `rows[0]` is the answer, and
    a negative equal to it is skipped, as in word2vec.c. `heard`: add the loss before the step to `totals`.
    """
    for first in range(0, asked, GROUP):
        take_products(outputs, rows, first, inputs, words, count, work.products)
    if heard:
        totals[2] += loss_of(work.products, count, rows, asked, labels)
        totals[3] += count
    products_to_steps(work.products, count, rows, asked, labels, curve, rate)
    reads, at = inputs, words
    if asked > GROUP:  # the second group must not see what the first one changed
        reads, at = work.copies, work.count_up
        for j in range(count):
            work.copies[j, :] = inputs[words[j]]
    for first in range(0, asked, GROUP):
        add_steps(outputs, rows, first, reads, at, count, work.products, inputs, words)


@numba.njit(**OPTIONS)
def take_mean(inputs: Any, spots: Any, number: Any, mean: Any) -> None:
    """mean (1, width) = the mean of inputs[spots[:number]]."""
    share = spread(np.float32(1.0) / np.float32(max(number, 1)))
    zero = spread(np.float32(0.0))
    for block in range(inputs.shape[1] // LANES):
        d = block * LANES
        found = zero
        for j in range(number):
            found = add_product(found, share, load(inputs, spots[j], d))
        store(mean, 0, d, found)


@numba.njit(**OPTIONS)
def move_rows(inputs: Any, spots: Any, number: Any, change: Any, part: Any) -> None:
    """inputs[spots[:number]] += part · change (1, width), row by row."""
    factor = spread(part)
    for j in range(number):
        for block in range(inputs.shape[1] // LANES):
            d = block * LANES
            store(inputs, spots[j], d, add_product(load(inputs, spots[j], d), factor, load(change, 0, d)))
