"""Single sentences with the ones around them, whole or left out, and steps of equal length."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.corpus import Sentences
from cloze.corpus.sources.passages import BoundPassages
from cloze.corpus.sources.sentences import BoundSingle
from cloze.errors import CorpusError, RecipeError
from tests.corpus.conftest import MakeStore

DOCUMENTS = [[3, 4, 5, 2], [6], [2, 9], [1, 3, 3]]
STARTS = np.concatenate([[0], np.cumsum([n for sentences in DOCUMENTS for n in sentences])])


def bound(make_store: MakeStore, lanes: int = 1, **arguments: object) -> BoundSingle:
    source = Sentences(**arguments).bind(make_store(DOCUMENTS), seed=1, entry="main", lanes=lanes)  # type: ignore[arg-type]
    assert isinstance(source, BoundSingle)
    return source


def sentences_of(source: BoundSingle, max_tokens: int = 100) -> list[int]:
    plan = source.plan(0, max_tokens)
    return sorted(plan.passages.sentence[plan.order].tolist())


def test_without_companions_and_buckets_they_are_passages_as_before(make_store: MakeStore) -> None:
    assert isinstance(Sentences().bind(make_store(DOCUMENTS), seed=0, entry="main"), BoundPassages)
    assert not Sentences().lanes and Sentences(bucket="equal_length").lanes


@pytest.mark.parametrize(
    ("companions", "across", "expected"),
    [
        (["next", "previous"], False, [1, 2, 8]),
        (["next"], False, [0, 1, 2, 5, 7, 8]),
        (["previous"], False, [1, 2, 3, 6, 8, 9]),
        (["next", "previous"], True, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_only_sentences_with_all_their_companions_are_rows(
    make_store: MakeStore, companions: list[str], across: bool, expected: list[int]
) -> None:
    assert sentences_of(bound(make_store, companions=companions, across_documents=across)) == expected


def test_companions_are_the_sentences_around_it(make_store: MakeStore) -> None:
    source = bound(make_store, companions=["next", "previous"])
    plan = source.plan(0, 100)
    rows = source.read(plan, np.arange(len(plan)), source.gives)
    for row, item in enumerate(plan.order):
        number = int(plan.passages.sentence[item])
        for view, other in (("", number), ("next.", number + 1), ("previous.", number - 1)):
            length = int(rows[f"{view}length"][row])
            assert rows[f"{view}tokens"][row, :length].tolist() == list(range(10 + STARTS[other], 10 + STARTS[other + 1]))
    assert source.gives >= {"previous.tokens", "next.word_start"} and "distractor.tokens" not in source.gives


def test_a_sentence_is_left_out_if_it_or_a_companion_is_too_long(make_store: MakeStore) -> None:
    assert sentences_of(bound(make_store, companions=["next", "previous"], max_length=4)) == [8]
    assert sentences_of(bound(make_store, companions=["next"], across_documents=True), max_tokens=4) == [0, 7, 8]
    assert sentences_of(bound(make_store, bucket="equal_length", max_length=3)) == [0, 3, 5, 7, 8, 9]
    with pytest.raises(CorpusError, match="none of 3 sentences fits"):
        bound(make_store, companions=["next", "previous"]).plan(0, 2)


def test_steps_have_rows_of_one_length_and_nothing_is_left_out(make_store: MakeStore) -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 200)
    source = Sentences(bucket="equal_length").bind(make_store([lengths.tolist()]), seed=1, entry="main", lanes=8)
    assert isinstance(source, BoundSingle)
    orders = []
    for epoch in (0, 1):
        plan = source.plan(epoch, 100)
        assert sorted(plan.order.tolist()) == list(range(200))
        steps = plan.lengths(np.arange(200)).reshape(-1, 8)
        equal = (steps == steps[:, :1]).all(axis=1)
        assert equal[: sum(np.bincount(lengths) // 8)].all()
        assert (np.diff(steps[~equal].reshape(-1)) >= 0).all()
        assert (np.diff(steps[equal][:, 0]) < 0).any()  # the lengths come in no order
        orders.append(plan.order.tolist())
    assert orders[0] != orders[1]


def test_what_cannot_be_asked_for_is_refused(make_store: MakeStore) -> None:
    for wrong, what in (
        ({"companions": ["after"]}, "next or previous"), ({"bucket": "length"}, "equal_length"),
        ({"across_documents": True}, "companions"), ({"bucket": "equal_length", "languages": {"smooth": 0.5}}, "languages"),
    ):
        with pytest.raises(RecipeError, match=what):
            Sentences(**wrong)  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="companions asked for"):
        Sentences(companions=["next"]).bind(make_store([[3], [4]]), seed=0, entry="main")
