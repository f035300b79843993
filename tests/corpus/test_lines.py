"""The source of lines: every token once, cut only where a row would be too long, in an order of its own in every epoch."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.corpus import Lines
from cloze.corpus.sources.lines import BoundLines
from cloze.errors import CorpusError, RecipeError
from tests.corpus.conftest import MakeStore

DOCUMENTS = [[3, 4], [5], [1], [2, 9, 1], [6]]


def bound(make_store: MakeStore, **arguments: object) -> BoundLines:
    return Lines(**arguments).bind(make_store(DOCUMENTS), seed=1, entry="main")  # type: ignore[arg-type]


def rows_of(source: BoundLines, epoch: int = 0, max_tokens: int = 1000) -> list[list[int]]:
    plan = source.plan(epoch, max_tokens)
    rows = source.read(plan, np.arange(len(plan)), frozenset())
    return [row[:n].tolist() for row, n in zip(rows["tokens"], rows["length"], strict=True)]


def test_a_row_is_a_document_cut_every_length_tokens(make_store: MakeStore) -> None:
    source = bound(make_store, length=5, shuffle=False)
    assert [len(row) for row in rows_of(source)] == [5, 2, 5, 1, 5, 5, 2, 5, 1]
    assert sum(rows_of(source), []) == list(range(10, 10 + 31))
    assert [len(row) for row in rows_of(bound(make_store, shuffle=False))] == [7, 5, 1, 12, 6]
    assert [len(row) for row in rows_of(bound(make_store, shuffle=False), max_tokens=6)] == [6, 1, 5, 1, 6, 6, 6]
    assert source.tokens == 31


def test_a_row_is_a_sentence_if_asked(make_store: MakeStore) -> None:
    source = bound(make_store, unit="sentence", length=5, shuffle=False)
    assert [len(row) for row in rows_of(source)] == [3, 4, 5, 1, 2, 5, 4, 1, 5, 1]


def test_every_epoch_has_all_rows_in_an_order_of_its_own(make_store: MakeStore) -> None:
    source = bound(make_store, length=5)
    first, second = rows_of(source, 0), rows_of(source, 1)
    assert first != second and sorted(first) == sorted(second)
    assert rows_of(bound(make_store, length=5), 0) == first
    other = Lines(length=5).bind(make_store(DOCUMENTS), seed=2, entry="main")
    assert rows_of(other, 0) != first


def test_fields_say_where_a_row_stands(make_store: MakeStore) -> None:
    source = bound(make_store, length=5, shuffle=False)
    assert source.gives == {"tokens", "length", "document", "sentence", "word_start"}
    plan = source.plan(0, 1000)
    rows = source.read(plan, np.array([0, 1, 5]), source.gives)
    assert rows["document"].tolist() == [0, 0, 3]
    assert rows["sentence"][:, :5].tolist()[0] == [0, 0, 0, 1, 1]
    assert rows["sentence"][2, :5].tolist() == [0] * 5
    number = rows["tokens"] - 10
    real = np.arange(5) < rows["length"][:, None]
    assert np.array_equal(rows["word_start"][real], (number % 3 != 1)[real])
    draw = source.draw(plan, np.array([0, 1]))
    again = source.draw(source.plan(0, 1000), np.array([1]))
    assert draw.bits("x", 3)[1].tolist() == again.bits("x", 3)[0].tolist()


def test_a_plan_tells_an_engine_where_rows_are(make_store: MakeStore) -> None:
    source = bound(make_store, length=5)
    plan = source.plan(0, 5)
    for item, row in zip(plan.order, rows_of(source, 0, 5), strict=True):
        start, length = plan.start[item], plan.passages.length[item]
        assert source.store.tokens[start : start + length].tolist() == row
    assert plan.lengths(np.arange(3)).tolist() == plan.passages.length[plan.order[:3]].tolist()


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_held_out_documents_are_those_of_passages(make_store: MakeStore, unit: str) -> None:
    from cloze.corpus.sources.bound import split_documents

    store = make_store([[2, 3]] * 40)
    parts = {part: Lines(unit=unit).bind(store, seed=0, entry="main", held_out=0.1, subset=part)  # type: ignore[arg-type]
             for part in ("train", "held_out")}
    split = split_documents(40, 0.1)
    for part, source in parts.items():
        plan = source.plan(0, 100)
        rows = source.read(plan, np.arange(len(plan)), frozenset({"document"}))
        assert sorted(set(rows["document"].tolist())) == split[part].tolist()
        assert len(plan) == len(split[part]) * (2 if unit == "sentence" else 1)
    assert parts["train"].tokens + parts["held_out"].tokens == 200


def test_settings_and_corpora_that_cannot_be_are_refused(make_store: MakeStore) -> None:
    with pytest.raises(RecipeError, match="length"):
        Lines(length=1)
    with pytest.raises(RecipeError, match="unit"):
        Lines(unit="word")  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="no document has two tokens"):
        Lines().bind(make_store([[1], [1]]), seed=0, entry="main")
    with pytest.raises(RecipeError, match="can hold"):
        Lines().bind(make_store([[2]]), seed=0, entry="main").plan(0, 1)
