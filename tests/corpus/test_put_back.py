"""Displaced sentences: passages and pairs against the loop of BERT's `create_pretraining_data.py`, with the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.checkpoint.feeds import source_options
from cloze.corpus import Passages, Records, Sentences, Streams
from cloze.errors import RecipeError
from cloze.exercises.companions.pair import Pair
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame

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
    bound = Passages(length=LENGTH).bind(store, seed=1, entry="main", put_back=SHARE)
    found = bound.plan(epoch, LENGTH).passages
    draws, expected, first = bound._parts(epoch), [], 0
    for sizes in documents:
        expected += by_the_loop(sizes, first, draws, LENGTH)
        first += sum(sizes)
    columns = (found.start, found.stop, found.border, found.apart)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    several = [one for one in expected if one[1] - one[0] >= LENGTH]
    assert 0.3 < np.mean([apart for *_, apart in several]) < 0.7
    plain = Passages(length=LENGTH).bind(store, seed=1, entry="main").plan(epoch, LENGTH).passages
    assert len(expected) > 1.2 * len(plain.start)


def pairs_of(make_store, **given):
    g = np.random.default_rng(6)
    store = make_store([g.integers(1, 6, g.integers(4, 14)).tolist() for _ in range(40)])
    edit = Pair(**given).for_length(LENGTH)
    bound = Passages(length=LENGTH).bind(store, seed=2, entry="main", put_back=edit.displaces)
    plan = bound.plan(0, LENGTH)
    items = np.arange(len(plan))
    rows = bound.read(plan, items, edit.takes | edit.optional)
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
        plan.start[plan.order], plan.passages.stop[plan.order], border, apart, strict=True
    ):
        sentences = np.searchsorted(store.sentence_starts, [start, stop])
        end = stop if not wrong or sentences[1] - sentences[0] < 2 else store.sentence_starts[sentences[0] + first]
        used[start:end] = True
    assert used.all()


def test_a_third_of_the_pairs_is_swapped_and_a_third_random_where_the_source_plans_the_parts(make_store):
    store = make_store([[2] * 400 for _ in range(20)])
    edit = Pair(wrong=["swapped", "random_document"], rate=2 / 3).for_length(LENGTH)
    bound = Passages(length=LENGTH).bind(store, seed=2, entry="main", put_back=edit.displaces)
    plan = bound.plan(0, LENGTH)
    items = np.arange(len(plan))
    rows = bound.read(plan, items, edit.takes | edit.optional)
    label = edit(rows, bound.draw(plan, items))["targets/next"]
    assert ((label == 2) == rows["apart"]).all()
    several = rows["length"] > 2
    share = np.bincount(label[several], minlength=3) / several.sum()
    assert np.abs(share - 1 / 3).max() < 4 * np.sqrt(2 / 9 / several.sum()) < 0.05


def test_only_pairs_that_the_source_can_cut_alike_have_parts_put_back():
    displacing = [Pair(), Pair(rate=0.2), Pair(wrong=["swapped", "random_document"], rate=0.5)]
    assert [edit.displaces for edit in displacing] == [0.5, 0.2, 0.25]
    others = [Pair(wrong="swapped", alone="random_document"), Pair(rate=0), Pair(unit="sentence"), Pair(cut="half"), Frame("{A}")]
    assert [edit.displaces for edit in others] == [0.0] * len(others)
    assert all(edit.optional == {"border", "apart"} for edit in displacing) and not any("apart" in e.optional for e in others)


def test_the_source_that_a_recipe_binds_puts_back_as_much_as_its_pairs_displace():
    edits = [PlacedEdit(Frame("{A}")), PlacedEdit(Pair(rate=0.3))]
    assert source_options(Passages(), edits, lanes=2) == {"put_back": 0.3}
    assert source_options(Passages(across_documents=True), edits, lanes=2) == {}
    assert source_options(Passages(break_at="anywhere"), edits, lanes=2) == source_options(Sentences(), edits, lanes=2) == {}
    assert source_options(Passages(), edits[:1], lanes=2) == {}
    assert source_options(Streams(), edits, lanes=2) == {"lanes": 2}
    assert source_options(Records(), edits, lanes=2, batch=8) == {"batch": 8}


def test_without_a_plan_the_pair_draws_itself(make_store):
    store = make_store([[2] * 40 for _ in range(20)])
    bound = Passages(length=LENGTH).bind(store, seed=2, entry="main")
    plan, edit = bound.plan(0, LENGTH), Pair().for_length(LENGTH)
    rows = bound.read(plan, np.arange(len(plan)), edit.takes | edit.optional)
    assert not {"border", "apart"} & (set(rows) | bound.gives)
    label = edit(rows, bound.draw(plan, np.arange(len(plan))))["targets/next"]
    assert 0 < label.sum() < len(label)


def test_the_share_of_pairs_that_displace_text_cannot_follow_a_schedule():
    with pytest.raises(RecipeError, match="texts are cut once, and rate decides how they are cut here"):
        PlacedEdit(Pair(), schedules={"rate": lambda share: 0.5 - 0.1 * share})
    assert PlacedEdit(Pair(wrong="swapped"), schedules={"rate": lambda share: 0.5 - 0.1 * share}).when(1.0).edit.rate == 0.4
