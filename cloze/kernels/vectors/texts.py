"""fastText's classifier, text by text: the mean of a text's rows, a loss over its classes, all updates at once.

As `model.cc` (`update`) and `loss.cc` of facebookresearch/fastText. The output of `SOFTMAX` and `ONE_VERSUS_ALL` is kept turned,
(D, C): loops over classes are then vectorised, and nothing must be summed up across. That of `HIERARCHICAL` has one
row per inner node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernels.compiling import INNER, OPTIONS, kernel
from cloze.kernels.floats import exponential, from_order, order
from cloze.kernels.vectors.arguments import HIERARCHICAL, LINE, ONE_VERSUS_ALL, ROW_REGISTER, SOFTMAX
from cloze.kernels.vectors.draws import GOLDEN, below, mix
from cloze.kernels.vectors.lines import fetch_row
from cloze.kernels.vectors.registers import add_product, load, spread, store
from cloze.kernels.vectors.rows import move_rows

_RUN = np.uint64(116049371)
_LOSS_EVERY = 8  # texts: often enough for the log


@kernel(**OPTIONS)
def collect_rows(tokens: Any, start: Any, length: Any, terms: Any, inputs: Any, members: Any) -> Any:
    """Write the rows of a text into `members` and prefetch them. Returns how many there are, and how many terms its mean has."""
    row_count, total = np.int64(0), np.int64(0)
    stop = start + length
    for index in range(start, stop + (terms.end >= 0)):
        word = np.int64(tokens[index]) if index < stop else np.int64(terms.end)
        total += terms.sizes[word]
        for position in range(terms.starts[word], terms.starts[word + 1]):
            members[row_count] = terms.rows[position]
            fetch_row(inputs, members[row_count])
            row_count += 1
        if terms.longest > 1:
            value = terms.hashes[word]
            for other in range(index + 1, min(index + terms.longest, stop + (terms.end >= 0))):
                following = np.int64(tokens[other]) if other < stop else np.int64(terms.end)
                value = value * _RUN + terms.hashes[following]
                row = np.int64(terms.places[np.int64(value % terms.buckets)])
                if row >= 0:
                    members[row_count] = row
                    fetch_row(inputs, row)
                    row_count += 1
                total += 1 if row >= 0 or not terms.skips else 0
    return row_count, total


@kernel(**INNER)
def take_share(inputs: Any, members: Any, count: Any, share: Any, mean: Any) -> None:
    """mean (1, width) = share · the sum of inputs[members[:found]]."""
    factor = spread(share)
    for block in range(inputs.shape[1] // ROW_REGISTER):
        d = block * ROW_REGISTER
        even_sum, odd_sum = spread(np.float32(0.0)), spread(np.float32(0.0))
        for j in range(0, count - 1, 2):
            even_sum = add_product(even_sum, factor, load(inputs, members[j], d))
            odd_sum = add_product(odd_sum, factor, load(inputs, members[j + 1], d))
        if count % 2:
            even_sum = add_product(even_sum, factor, load(inputs, members[count - 1], d))
        store(mean, 0, d, add_product(even_sum, spread(np.float32(1.0)), odd_sum))


@kernel(**INNER)
def take_scores(outputs: Any, classes: Any, mean: Any, scores: Any) -> None:
    """scores (1, C) = mean · outputs; those of the padding are very low."""
    for block in range(outputs.shape[1] // LINE):
        c = block * LINE
        low, high = spread(np.float32(0.0)), spread(np.float32(0.0))
        for d in range(outputs.shape[0]):
            factor = spread(mean[0, d])
            low = add_product(low, factor, load(outputs, d, c))
            high = add_product(high, factor, load(outputs, d, c + ROW_REGISTER))
        store(scores, 0, c, low)
        store(scores, 0, c + ROW_REGISTER, high)
    for c in range(classes.classes, outputs.shape[1]):
        scores[0, c] = np.float32(-1e30)


@kernel(**INNER)
def to_softmax(scores: Any) -> None:
    """Replace scores by probabilities."""
    row = scores[0]
    highest = order(row[0])
    for c in range(len(row)):
        highest = max(highest, order(row[c]))
    top, total = from_order(highest), np.float32(0.0)
    for c in range(len(row)):
        raised = exponential(row[c] - top)
        row[c] = raised
        total += raised
    share = np.float32(1.0) / total
    for c in range(len(row)):
        row[c] *= share


@kernel(**INNER)
def to_sigmoids(scores: Any) -> None:
    """Replace scores by the probability of each class alone."""
    row = scores[0]
    for c in range(len(row)):
        row[c] = np.float32(1.0) / (np.float32(1.0) + exponential(-max(row[c], np.float32(-80.0))))


@kernel(**INNER)
def move_outputs(outputs: Any, mean: Any, steps: Any, gained: Any) -> None:
    """gained[d] = Σ_c steps[c] · outputs[d, c], then outputs[d, c] += steps[c] · mean[d]."""
    step = steps[0]
    for d in range(outputs.shape[0]):
        seen, output, total = mean[0, d], outputs[d], np.float32(0.0)
        for c in range(len(step)):
            weight = output[c]
            total += step[c] * weight
            output[c] = weight + step[c] * seen
        gained[0, d] = total


@kernel(**OPTIONS)
def learn_classes(outputs: Any, classes: Any, record: Any, work: Any, rate: Any, key: Any, with_loss: Any) -> Any:
    """Train the output on `work.mean`, and write the gradient of the mean times the rate into `work.gained`. Returns the loss."""
    first, last = classes.begins[record], classes.begins[record + 1]
    loss = 0.0
    scores = work.scores
    take_scores(outputs, classes, work.mean, scores)
    if classes.formula == SOFTMAX:
        to_softmax(scores)
        target = classes.labels[first + below(mix(key), last - first)]
        if with_loss:
            loss = -np.log(max(np.float64(scores[0, target]), 1e-30))
        for c in range(scores.shape[1]):
            scores[0, c] *= -rate
        scores[0, target] += rate
    else:
        to_sigmoids(scores)
        if with_loss:
            for c in range(classes.classes):
                loss -= np.log(max(1.0 - np.float64(scores[0, c]), 1e-30))
            for index in range(first, last):
                p = np.float64(scores[0, classes.labels[index]])
                loss += np.log(max(1.0 - p, 1e-30)) - np.log(max(p, 1e-30))
        for c in range(scores.shape[1]):
            scores[0, c] *= -rate
        for index in range(first, last):
            scores[0, classes.labels[index]] += rate
    move_outputs(outputs, work.mean, scores, work.gained)
    return loss


@kernel(**OPTIONS)
def learn_path(outputs: Any, classes: Any, record: Any, work: Any, rate: Any, key: Any, with_loss: Any) -> Any:
    """The same along the path of a class to the root, node by node."""
    first, last = classes.begins[record], classes.begins[record + 1]
    target = classes.labels[first + below(mix(key), last - first)]
    loss = 0.0
    for d in range(outputs.shape[1]):
        work.gained[0, d] = np.float32(0.0)
    for step in range(classes.depths[target]):
        node, bit = np.int64(classes.points[target, step]), np.float32(classes.bits[target, step])
        product = np.float32(0.0)
        for d in range(outputs.shape[1]):
            product += outputs[node, d] * work.mean[0, d]
        share = np.float32(1.0) / (np.float32(1.0) + np.exp(-product))
        if with_loss:
            against = np.float64(-product if bit > 0 else product)
            loss += max(against, 0.0) + np.log1p(np.exp(-abs(against)))
        alpha = rate * (bit - share)
        for d in range(outputs.shape[1]):
            weight = outputs[node, d]
            work.gained[0, d] += alpha * weight
            outputs[node, d] = weight + alpha * work.mean[0, d]
    return loss


@kernel(**OPTIONS)
def train_texts(job: Any, terms: Any, classes: Any, inputs: Any, outputs: Any, work: Any, totals: Any) -> None:
    """Train on every text of a job in place. Adds to `totals`: words, texts, the loss and for how many texts it was computed."""
    number = len(job.starts)
    row_count, total = np.int64(0), np.int64(0)
    if number > 0:
        row_count, total = collect_rows(job.tokens, job.starts[0], job.lengths[0], terms, inputs, work.members[0])
    for text in range(number):
        members, size, now = work.members[text % 2], total, row_count
        if text + 1 < number:
            row_count, total = collect_rows(
                job.tokens, job.starts[text + 1], job.lengths[text + 1], terms, inputs, work.members[(text + 1) % 2]
            )
        totals[0] += job.lengths[text]
        record = job.records[text]
        labelled = classes.begins[record + 1] > classes.begins[record] or classes.formula == ONE_VERSUS_ALL
        if size == 0 or not labelled:
            continue
        share = np.float32(1.0) / np.float32(size)
        take_share(inputs, members, now, share, work.mean)
        with_loss = text % _LOSS_EVERY == 0
        if classes.formula == HIERARCHICAL:
            loss = learn_path(outputs, classes, record, work, job.rates[text], job.keys[text] + GOLDEN, with_loss)
        else:
            loss = learn_classes(outputs, classes, record, work, job.rates[text], job.keys[text] + GOLDEN, with_loss)
        if with_loss:
            totals[2] += loss
            totals[3] += 1
        move_rows(inputs, members, now, work.gained, share)
