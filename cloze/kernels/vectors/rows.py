"""The arithmetic of all kernels: products of some input rows with some output rows, then all updates.

GROUP output rows stay in registers while a loop runs over the input rows, so a window reads and writes each row once. All
updates use the rows as they were before.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import INNER, OPTIONS, kernel
from cloze.kernels.vectors.arguments import GROUP, ROW_REGISTER
from cloze.kernels.vectors.draws import BORDER, squash
from cloze.kernels.vectors.registers import add_product, divide, load, multiply, spread, store, totals, where_below


@kernel(**INNER)
def take_products(outputs: Any, rows: Any, group: Any, reads: Any, at: Any, count: Any, products: Any) -> None:
    """The cells of a group in products[j] = reads[at[j]] · outputs[the group's rows], for j < count.

    A group has ROW_REGISTER cells in a row of products; the first GROUP are used.
    """
    first, cell = group * GROUP, group * ROW_REGISTER
    r0, r1, r2, r3, r4, r5 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3], rows[first + 4], rows[first + 5]
    zero = spread(np.float32(0.0))
    for j in range(0, count - 1, 2):
        u, v = at[j], at[j + 1]
        a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
        b0, b1, b2, b3, b4, b5 = zero, zero, zero, zero, zero, zero
        for block in range(reads.shape[1] // ROW_REGISTER):
            d = block * ROW_REGISTER
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
        store(products, j, cell, totals(a0, a1, a2, a3, a4, a5))
        store(products, j + 1, cell, totals(b0, b1, b2, b3, b4, b5))
    if count % 2:
        u = at[count - 1]
        a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
        for block in range(reads.shape[1] // ROW_REGISTER):
            d = block * ROW_REGISTER
            x = load(reads, u, d)
            a0, a1 = add_product(a0, load(outputs, r0, d), x), add_product(a1, load(outputs, r1, d), x)
            a2, a3 = add_product(a2, load(outputs, r2, d), x), add_product(a3, load(outputs, r3, d), x)
            a4, a5 = add_product(a4, load(outputs, r4, d), x), add_product(a5, load(outputs, r5, d), x)
        store(products, count - 1, cell, totals(a0, a1, a2, a3, a4, a5))


@kernel(**INNER)
def add_steps(
    outputs: Any, rows: Any, group: Any, reads: Any, at: Any, count: Any, steps: Any, changes: Any, into: Any
) -> None:
    """changes[into[j]] += Σ_r steps[j, r] · outputs[rows[r]], outputs[rows[r]] += Σ_j steps[j, r] · reads[at[j]]."""
    first, cell = group * GROUP, group * ROW_REGISTER
    r0, r1, r2, r3, r4, r5 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3], rows[first + 4], rows[first + 5]
    zero, unit = spread(np.float32(0.0)), spread(np.float32(1.0))
    for block in range(reads.shape[1] // ROW_REGISTER):
        d = block * ROW_REGISTER
        h0, h1, h2 = load(outputs, r0, d), load(outputs, r1, d), load(outputs, r2, d)
        h3, h4, h5 = load(outputs, r3, d), load(outputs, r4, d), load(outputs, r5, d)
        c0, c1, c2, c3, c4, c5 = zero, zero, zero, zero, zero, zero
        for j in range(count):
            seen, moved = load(reads, at[j], d), load(changes, into[j], d)
            step = spread(steps[j, cell])
            c0, moved = add_product(c0, step, seen), add_product(moved, step, h0)
            step = spread(steps[j, cell + 1])
            c1, moved = add_product(c1, step, seen), add_product(moved, step, h1)
            step = spread(steps[j, cell + 2])
            c2, moved = add_product(c2, step, seen), add_product(moved, step, h2)
            step = spread(steps[j, cell + 3])
            c3, moved = add_product(c3, step, seen), add_product(moved, step, h3)
            step = spread(steps[j, cell + 4])
            c4, moved = add_product(c4, step, seen), add_product(moved, step, h4)
            step = spread(steps[j, cell + 5])
            c5, moved = add_product(c5, step, seen), add_product(moved, step, h5)
            store(changes, into[j], d, moved)
        # Load before each store: the same negative may have been sampled twice.
        store(outputs, r0, d, add_product(load(outputs, r0, d), unit, c0))
        store(outputs, r1, d, add_product(load(outputs, r1, d), unit, c1))
        store(outputs, r2, d, add_product(load(outputs, r2, d), unit, c2))
        store(outputs, r3, d, add_product(load(outputs, r3, d), unit, c3))
        store(outputs, r4, d, add_product(load(outputs, r4, d), unit, c4))
        store(outputs, r5, d, add_product(load(outputs, r5, d), unit, c5))


@kernel(**INNER)
def add_gained(outputs: Any, rows: Any, group: Any, steps: Any, gained: Any, into: Any) -> None:
    """gained[into] += Σ_r steps[0, r] · outputs[rows[r]]: what `add_steps` gives to a row that reads, while output rows stay."""
    first, cell = group * GROUP, group * ROW_REGISTER
    r0, r1, r2, r3, r4, r5 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3], rows[first + 4], rows[first + 5]
    s0, s1, s2 = spread(steps[0, cell]), spread(steps[0, cell + 1]), spread(steps[0, cell + 2])
    s3, s4, s5 = spread(steps[0, cell + 3]), spread(steps[0, cell + 4]), spread(steps[0, cell + 5])
    for block in range(outputs.shape[1] // ROW_REGISTER):
        d = block * ROW_REGISTER
        moved = add_product(load(gained, into, d), s0, load(outputs, r0, d))
        moved = add_product(moved, s1, load(outputs, r1, d))
        moved = add_product(moved, s2, load(outputs, r2, d))
        moved = add_product(moved, s3, load(outputs, r3, d))
        moved = add_product(moved, s4, load(outputs, r4, d))
        store(gained, into, d, add_product(moved, s5, load(outputs, r5, d)))


@numba.njit(inline="always")
def sigmoid(x: Any) -> Any:
    """σ of every element to within 1.3e-5, and exactly 0 or 1 beyond ±6.

    σ(x) = 1/2 + tanh(x/2)/2, with six terms of Lambert's continued fraction.
    """
    y = multiply(x, spread(np.float32(0.5)))
    square = multiply(y, y)
    upper = add_product(spread(np.float32(1260.0)), square, spread(np.float32(21.0)))
    upper = multiply(y, add_product(spread(np.float32(10395.0)), square, upper))
    lower = add_product(spread(np.float32(210.0)), square, spread(np.float32(1.0)))
    lower = add_product(spread(np.float32(4725.0)), square, lower)
    lower = add_product(spread(np.float32(10395.0)), square, lower)
    half = spread(np.float32(0.5))
    sigma = add_product(half, half, divide(upper, lower))
    sigma = where_below(x, spread(np.float32(BORDER)), sigma, spread(np.float32(1.0)))
    return where_below(spread(np.float32(-BORDER)), x, sigma, spread(np.float32(0.0)))


@kernel(**INNER)
def products_to_steps(
    products: Any, count: Any, rows: Any, row_count: Any, labels: Any, curve: Any, rate: Any, by_cell: Any
) -> None:
    """Replace each product x by (label - σ(x)) · rate, or by 0 for padding and for negatives that equal the target.

    `by_cell` (2, cells) is overwritten with the label and the rate of each cell.
    """
    border, zero, minus = spread(np.float32(BORDER)), spread(np.float32(0.0)), spread(np.float32(-1.0))
    for group in range(-(-row_count // GROUP)):
        cell = group * ROW_REGISTER
        for position in range(GROUP):
            r = group * GROUP + position
            live = r < row_count and (r == 0 or rows[r] != rows[0])
            by_cell[0, cell + position] = labels[r]
            by_cell[1, cell + position] = rate if live else np.float32(0.0)
        label, rates = load(by_cell, 0, cell), load(by_cell, 1, cell)
        for j in range(count):
            if curve.scale < 0.0:
                x = load(products, j, cell)
                step = multiply(rates, add_product(label, minus, sigmoid(x)))
                if curve.skip:
                    step = where_below(x, border, where_below(multiply(minus, border), x, step, zero), zero)
                store(products, j, cell, step)
            else:
                for position in range(GROUP):
                    at, product = cell + position, products[j, cell + position]
                    open_ = not (curve.skip and abs(product) >= np.float32(BORDER))
                    step_ = (by_cell[0, at] - squash(product, curve.table, curve.scale)) * by_cell[1, at]
                    products[j, at] = step_ if open_ else np.float32(0.0)


@kernel(**OPTIONS)
def loss_of(products: Any, count: Any, rows: Any, row_count: Any, labels: Any) -> Any:
    """The sum of -log σ(x) over rows with label 1 and -log σ(-x) over rows with label 0, for `count` input rows."""
    loss = 0.0
    for j in range(count):
        for r in range(row_count):
            x = np.float64(products[j, r // GROUP * ROW_REGISTER + r % GROUP])
            if r == 0 or rows[r] != rows[0]:
                against = -x if labels[r] > 0.5 else x
                loss += max(against, 0.0) + np.log1p(np.exp(-abs(against)))
    return loss


@kernel(**OPTIONS)
def learn(
    outputs: Any, rows: Any, row_count: Any, labels: Any, inputs: Any, words: Any, count: Any, work: Any, curve: Any, rate: Any,
    totals: Any, with_loss: Any,
) -> None:
    """Update input rows `words[:count]` and output rows `rows[:row_count]` with `labels`, in place.

    `rows` has a multiple of GROUP ids, of which those past `row_count` are padding but must be valid. `rows[0]` is the target;
    a negative equal to it is skipped, as in word2vec.c. `with_loss`: add the loss before the step to `totals`.
    """
    groups = -(-row_count // GROUP)
    for group in range(groups):
        take_products(outputs, rows, group, inputs, words, count, work.products)
    if with_loss:
        totals[2] += loss_of(work.products, count, rows, row_count, labels)
        totals[3] += count
    products_to_steps(work.products, count, rows, row_count, labels, curve, rate, work.by_cell)
    if groups == 1:
        add_steps(outputs, rows, 0, inputs, words, count, work.products, inputs, words)
    else:  # the second group must not see the updates of the first
        for j in range(count):
            for block in range(inputs.shape[1] // ROW_REGISTER):
                store(work.copies, j, block * ROW_REGISTER, load(inputs, words[j], block * ROW_REGISTER))
        for group in range(groups):
            add_steps(outputs, rows, group, work.copies, work.count_up, count, work.products, inputs, words)


@kernel(**OPTIONS)
def learn_frozen(
    outputs: Any, rows: Any, row_count: Any, labels: Any, inputs: Any, words: Any, work: Any, curve: Any, rate: Any, totals: Any,
    with_loss: Any,
) -> None:
    """`learn` for the input row `words[0]` alone: output rows stay."""
    groups = -(-row_count // GROUP)
    for group in range(groups):
        take_products(outputs, rows, group, inputs, words, 1, work.products)
    if with_loss:
        totals[2] += loss_of(work.products, 1, rows, row_count, labels)
        totals[3] += 1
    products_to_steps(work.products, 1, rows, row_count, labels, curve, rate, work.by_cell)
    for group in range(groups):
        add_gained(outputs, rows, group, work.products, inputs, words[0])


@kernel(**INNER)
def take_mean(inputs: Any, members: Any, number: Any, mean: Any) -> None:
    """mean (1, width) = the mean of inputs[members[:number]], two rows at a time, which makes branches easier to predict."""
    share = spread(np.float32(1.0) / np.float32(max(number, 1)))
    zero = spread(np.float32(0.0))
    for block in range(inputs.shape[1] // ROW_REGISTER):
        d = block * ROW_REGISTER
        store(mean, 0, d, multiply(share, load(inputs, members[0], d)) if number % 2 else zero)
    for j in range(number % 2, number, 2):
        row, next_row = members[j], members[j + 1]
        for block in range(inputs.shape[1] // ROW_REGISTER):
            d = block * ROW_REGISTER
            total = add_product(load(mean, 0, d), share, load(inputs, row, d))
            store(mean, 0, d, add_product(total, share, load(inputs, next_row, d)))


@kernel(**INNER)
def move_rows(inputs: Any, members: Any, number: Any, change: Any, part: Any) -> None:
    """inputs[members[:number]] += part · change (1, width), row by row."""
    factor = spread(part)
    for j in range(number):
        for block in range(inputs.shape[1] // ROW_REGISTER):
            d = block * ROW_REGISTER
            store(inputs, members[j], d, add_product(load(inputs, members[j], d), factor, load(change, 0, d)))


@kernel(**INNER)
def add_row(rows: Any, change: Any, part: Any) -> None:
    """rows[0] += part · change[0]."""
    factor = spread(part)
    for block in range(rows.shape[1] // ROW_REGISTER):
        d = block * ROW_REGISTER
        store(rows, 0, d, add_product(load(rows, 0, d), factor, load(change, 0, d)))
