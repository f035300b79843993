"""`ask_mention`: the tokens around a mention and its candidates, as `data2samples` in NPoe/ebert, code/run_aida.py."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.facts import TokenFacts
from cloze.exercises.knowledge.ask_mention import AskMention
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "/", "*", "the", "in", "Paris", "New", "York", "##s", "."]
SPELLINGS = [*WORDS, "[ENTITY/Q1]", "[ENTITY/Q2]", "[ENTITY/Q3]"]
ID = {piece: number for number, piece in enumerate(SPELLINGS)}
Q1, Q2, Q3 = (ID[f"[ENTITY/Q{number}]"] for number in (1, 2, 3))
FACTS = TokenFacts(
    len(SPELLINGS), {role: ID[role] for role in WORDS[:5]}, np.arange(5, len(WORDS), dtype=np.int32),
    lambda text: [ID[word] for word in text.split()], spellings=SPELLINGS,
)
#: Entities Q1, Q2, Q3 and Q9, which has no token; 5 is no entity. Forms: Paris, New York, York, in.
TABLES: Any = {"surfaces": SimpleNamespace(
    ids=("Q1", "Q2", "Q3", "Q9"), null=5,
    candidates=np.array([[0, 0, 0], [1, 4, 2], [3, 0, 0], [2, 3, 0], [4, 0, 0]], np.int32),
    priors=np.array([[0, 0, 0], [0.5, 0.3, 0.2], [1, 0, 0], [0.9, 0.1, 0], [1, 0, 0]], np.float32),
)}
TEXT = ["the", "Paris", "in", "New", "York", "."]
PARIS, NEW_YORK, YORK, IN = 1, 2, 3, 4


def block(*rights: list[int], words: list[str] = TEXT, starts: list[bool] | None = None) -> Rows:
    """Rows of the text, whose forms are Paris (1), in (2), New York (3, 4) and York (4), with what each of them means."""
    rows = len(rights)
    tokens = np.array([[ID[word] for word in words]] * rows, np.int32)
    links = np.array([[[1, 0], [2, 1], [3, 2], [4, 2], [4, 3]]] * rows)
    return Rows({
        "tokens": tokens, "length": np.full(rows, len(words), np.int32),
        "word_start": np.array([starts or [not word.startswith("##") for word in words]] * rows),
        "items/surface": np.array([[PARIS, IN, NEW_YORK, YORK]] * rows, np.int32), "links/surface": links,
        "items/entity": np.array(rights, np.int32),
    })  # fmt: skip


def draw(rows: int, epoch: int = 0) -> Draw:
    return Draw(row_keys(5, "main", epoch, items=np.arange(rows)))


def edit(**more: Any) -> AskMention:
    return AskMention(tables=TABLES, tokenizer=FACTS, **more)


def pieces(rows: Rows, row: int = 0) -> str:
    return " ".join(SPELLINGS[number] for number in rows["tokens"][row, : rows["length"][row]])


def test_a_mask_and_a_slash_stand_before_the_mention_and_a_star_behind_it() -> None:
    made = edit()(block([1, 0, 0, 0], [0, 0, 3, 0]), draw(2))
    assert pieces(made) == "the [MASK] / Paris * in New York ."
    assert pieces(made, 1) == "the Paris in [MASK] / New York * ."
    assert made["positions/entity"].tolist() == [[1], [3]] and made["targets/entity"].tolist() == [[Q1], [Q3]]


def test_candidates_are_those_with_a_token_in_the_order_of_their_priors_which_are_not_divided_again() -> None:
    made = edit()(block([2, 0, 0, 0], [0, 0, 3, 0]), draw(2))
    assert made["items/candidate"].tolist() == [[Q1, Q2], [Q3, 0]]
    assert made["item_length/candidate"].tolist() == [2, 1]
    np.testing.assert_allclose(made["item_vectors/candidate"][:, :, 0], np.log([[0.5, 0.2], [1, 1]]), rtol=1e-6)
    assert made["links/candidate"].tolist() == [[[1, 0], [1, 1]], [[3, 0], [-1, -1]]]


def test_no_entity_and_an_entity_without_a_token_are_the_mask() -> None:
    for right in (5, 4):  # no entity; Q9
        made = edit()(block([right, 0, 0, 0]), draw(1))
        assert made["targets/entity"].tolist() == [[ID["[MASK]"]]] and made["item_length/candidate"].tolist() == [2]


def test_a_mention_is_asked_only_if_it_has_a_candidate_and_means_one_of_them_or_none() -> None:
    for rights in ([3, 0, 0, 0], [0, 5, 0, 0], [0, 0, 0, 0]):  # another entity; no candidate with a token; not asked
        made = edit()(block(rights), draw(1))
        assert pieces(made) == " ".join(TEXT) and made["positions/entity"].tolist() == [[-1]]
        assert not made["items/candidate"].any() and (made["links/candidate"] == -1).all()


def test_a_mention_inside_a_word_is_not_asked() -> None:
    words = [*TEXT[:-1], "##s"]
    made = edit()(block([0, 0, 3, 2], words=words), draw(1))
    assert made["positions/entity"].tolist() == [[-1]]
    inside = edit()(block([0, 0, 0, 2], starts=[True, True, True, True, False, True]), draw(1))
    assert inside["positions/entity"].tolist() == [[-1]]


def test_every_eligible_mention_is_drawn_about_equally_often() -> None:
    made = edit()(block(*[[1, 0, 3, 3]] * 600), draw(600))
    counts = np.unique(made["positions/entity"], return_counts=True)
    assert counts[0].tolist() == [1, 3, 4] and (np.abs(counts[1] - 200) < 50).all()


def test_the_mask_is_where_the_template_puts_it() -> None:
    made = edit(template="* {mention} / [MASK]")(block([0, 0, 3, 0], [5, 0, 0, 0]), draw(2))
    assert pieces(made) == "the Paris in * New York / [MASK] ." and pieces(made, 1) == "the * Paris / [MASK] in New York ."
    assert made["positions/entity"].tolist() == [[7], [4]]
    assert made["links/candidate"].tolist() == [[[7, 0], [-1, -1]], [[4, 0], [4, 1]]]


def test_a_row_grows_by_what_the_template_has() -> None:
    assert edit().max_input(20) == 17 and AskMention().max_input(20) == 17


@pytest.mark.parametrize(("make", "said"), [
    (lambda: AskMention(template="[MASK] / *"), r"Expected \{mention\} once, and no other part"),
    (lambda: AskMention(template="{mention} {A} [MASK]"), r"Expected \{mention\} once, and no other part"),
    (lambda: AskMention(template="{mention} *"), r"Expected one \[MASK\], which stands for the entity"),
    (
        lambda: edit(prefix="E/")(block([1, 0, 0, 0]), draw(1)),
        r"no candidate of the table 'surfaces', such as Q1, Q2, Q3, has a token [\s\S]*\[E/Q1\][\s\S]*cloze vocab entities",
    ),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused_in_words(make: Callable[[], object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        make()
