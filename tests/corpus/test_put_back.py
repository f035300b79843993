"""Displaced sentences: passages and pairs against the loop of BERT's `create_pretraining_data.py`, with the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.corpus import Passages
from cloze.errors import RecipeError
from cloze.exercises.pair import Pair

LENGTH, SHARE = 10, 0.5


def by_the_loop(sizes, first, put_back, target):
    """The passages of one document by a plain loop: (first token, one past the last, border, apart) of each."""
    starts = first + np.concatenate([[0], np.cumsum(sizes)])
    found, chunk, at = [], [], 0
    while at < len(sizes):
        chunk.append(at)
        if at == len(sizes) - 1 or sum(sizes[number] for number in chunk) >= target:
            (border,), (apart,) = put_back(starts[chunk[:1]], np.array([len(chunk)]))
            found.append((int(starts[chunk[0]]), int(starts[chunk[-1] + 1]), int(border), bool(apart)))
            if apart and len(chunk) > 1:
                at -= len(chunk) - int(border)
            chunk = []
        at += 1
    return found


@pytest.mark.parametrize("epoch", [0, 1])
def test_passages_are_those_of_the_authors_loop(make_store, epoch):
    g = np.random.default_rng(5)
    documents = [g.integers(1, 7, g.integers(1, 14)).tolist() for _ in range(40)]
    store = make_store(documents)
    bound = Passages(length=LENGTH, put_back=SHARE).bind(store, seed=1, entry="main")
    found = bound.plan(epoch, LENGTH).passages
    draws, expected, first = bound._put_back(epoch, SHARE), [], 0
    for sizes in documents:
        expected += by_the_loop(sizes, first, draws, LENGTH)
        first += sum(sizes)
    columns = (found.start, found.stop, found.border, found.apart)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    several = [one for one in expected if one[1] - one[0] >= LENGTH]
    assert 0.3 < np.mean([apart for *_, apart in several]) < 0.7
    plain = Passages(length=LENGTH).bind(store, seed=1, entry="main").plan(epoch, LENGTH).passages
    assert len(expected) > 1.2 * len(plain.start)


def pairs_of(make_store, **source):
    g = np.random.default_rng(6)
    store = make_store([g.integers(1, 6, g.integers(4, 14)).tolist() for _ in range(40)])
    bound = Passages(length=LENGTH, put_back=SHARE, **source).bind(store, seed=2, entry="main")
    plan, edit = bound.plan(0, LENGTH), Pair(planned=True).at(LENGTH)
    items = np.arange(len(plan))
    rows = bound.read(plan, items, edit.takes)
    return store, plan, items, rows, edit(rows, bound.draw(plan, items))


def test_pairs_are_cut_and_wrong_as_planned_and_no_sentence_is_left_out(make_store):
    store, plan, items, rows, made = pairs_of(make_store)
    apart, border = plan.passages.apart[plan.order], plan.passages.border[plan.order]
    assert made["targets/next"].tolist() == apart.astype(int).tolist() and 0 < apart.sum() < len(apart)
    sentence, length = rows["sentence"], rows["length"]
    before = np.array([(own[:size] < first).sum() for own, size, first in zip(sentence, length, border, strict=True)])
    begin = made["parts"][:, 1, 0]
    whole = ~apart & (length <= LENGTH)  # nothing was trimmed
    assert (begin == before)[whole].all() and whole.sum() > 20 and (begin >= rows["tokens"].shape[1])[apart].all()
    used = np.zeros(len(store.tokens), np.bool_)
    for start, stop, first, wrong in zip(
        plan.start[plan.order], plan.stop[plan.order], border, apart, strict=True
    ):
        sentences = np.searchsorted(store.sentence_starts, [start, stop])
        end = stop if not wrong or sentences[1] - sentences[0] < 2 else store.sentence_starts[sentences[0] + first]
        used[start:end] = True
    assert used.all()


def test_what_does_not_go_together_is_refused():
    for given in ({"break_at": "anywhere"}, {"across_documents": True}):
        with pytest.raises(RecipeError, match="put_back: needs whole sentences of single documents"):
            Passages(put_back=0.5, **given)
    with pytest.raises(RecipeError, match="planned is for pairs that the source cuts at a sentence"):
        Pair(wrong="swapped", planned=True)


def test_a_planned_pair_needs_a_source_that_plans():
    assert {"border", "apart"} <= Pair(planned=True).takes and not {"border", "apart"} & Pair().takes
    assert {"border", "apart"} <= Passages(put_back=0.5).gives and not {"border", "apart"} & Passages().gives
