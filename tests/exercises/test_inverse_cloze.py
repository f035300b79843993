"""A sentence that is asked for is in no passage but, in the inverse cloze task with some odds, its own."""

from __future__ import annotations

import numpy as np

from cloze.exercises.companions.body_first import BodyFirst
from cloze.exercises.companions.inverse_cloze import InverseCloze
from cloze.rng import Draw, row_keys
from cloze.rows import Rows


def rows(count: int) -> Rows:
    """Rows of 12 tokens, no token twice, in sentences of 3, 4 and 5; every fourth row has one sentence of 5."""
    tokens = np.arange(count * 12, dtype=np.int32).reshape(count, 12)
    sentence = np.tile(np.repeat([0, 1, 2], [3, 4, 5]), (count, 1))
    length = np.full(count, 12, np.int32)
    length[::4], sentence[::4] = 5, 0
    return Rows({"tokens": tokens, "length": length, "sentence": sentence})


def made(count: int, **given: float) -> Rows:
    return InverseCloze(**given)(rows(count), Draw(row_keys(1, "main", 0, items=np.arange(count))))  # type: ignore[arg-type]


def test_a_sentence_and_the_rest_of_its_passage_are_all_of_it_and_share_nothing() -> None:
    out, count = made(400, keep=0.0), 400
    sizes = []
    for row in range(count):
        query = out["tokens"][row, : out["length"][row]].tolist()
        passage = out["passage.tokens"][row, : out["passage.length"][row]].tolist()
        whole = rows(count)["tokens"][row, : rows(count)["length"][row]].tolist()
        assert sorted(query + passage) == whole and query and passage
        first = whole.index(query[0])
        assert query == whole[first : first + len(query)]
        sizes.append(len(query))
    assert set(sizes[::4]) == {3}  # the first half of five tokens
    others = np.bincount([size for row, size in enumerate(sizes) if row % 4])
    assert others[3:].min() > 70  # 300 rows, three sentences


def test_the_passage_keeps_the_sentence_with_these_odds() -> None:
    out = made(2000, keep=0.1)
    whole = out["passage.length"][np.arange(2000) % 4 > 0] == 12
    assert abs(whole.mean() - 0.1) < 0.03
    assert (made(40, keep=1.0)["passage.length"][1:4] == 12).all()


def test_a_passage_never_has_the_lead_sentence_that_is_asked_for() -> None:
    whole = np.arange(100, 112, dtype=np.int32)
    lead = np.array([[1, 2, 3, 4, 5], [103, 104, 105, 106, 0], [100, 101, 102, 103, 104]], np.int32)
    given = Rows({
        "tokens": np.stack([whole] * 3), "length": np.array([12, 12, 5], np.int32),
        "sentence": np.array([np.repeat([0, 1, 2], [3, 4, 5])] * 2 + [[0] * 12]), "word_start": np.ones((3, 12), np.bool_),
        "lead.tokens": lead, "lead.length": np.array([5, 4, 5], np.int32),
        "lead.sentence": np.repeat(np.array([[-1], [1], [0]], np.int32), 5, axis=1),
    })  # fmt: skip
    out = BodyFirst()(given, Draw(row_keys(1, "main", 0, items=np.arange(3))))
    queries = [out["tokens"][row, : out["length"][row]].tolist() for row in range(3)]
    passages = [out["passage.tokens"][row, : out["passage.length"][row]].tolist() for row in range(3)]
    assert queries == [[1, 2, 3, 4, 5], [103, 104, 105, 106], [100, 101, 102]]  # the last row is nothing but the sentence
    assert passages == [list(range(100, 112)), [100, 101, 102, *range(107, 112)], [103, 104]]
