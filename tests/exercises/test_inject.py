"""K-BERT's branches: what is inserted, its positions, and who sees whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloze.batching.collate import collate, one_per_row
from cloze.errors import RecipeError
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.exercises.knowledge.inject import Inject
from cloze.knowledge.fact_table import BoundFacts
from cloze.rng import Draw
from cloze.rows import Rows

CLS, COOK, VISITS, BEIJING, CEO_OF, APPLE, CAPITAL_OF, CHINA, BORN, MOBILE = range(10)


def table(facts: dict[tuple[int, ...], list[tuple[list[int], list[int]]]], longest: int = 2) -> BoundFacts:
    """Facts by subject: the tokens of predicates and objects."""
    grams = np.full((len(facts) + 1, longest), -1)
    for row, subject in zip(grams[1:], facts, strict=True):
        row[: len(subject)] = subject
    branches = [fact for own in facts.values() for fact in own]
    return BoundFacts(
        grams=grams, subject=np.arange(len(grams)), first=np.cumsum([0, *map(len, facts.values())]),
        begin=np.cumsum([0, *(len(p) + len(o) for p, o in branches)]), predicate=np.array([len(p) for p, _ in branches]),
        tokens=np.array([token for p, o in branches for token in p + o]), edges=np.zeros((2, 20)),
    )


COOKS = table({(COOK,): [([CEO_OF], [APPLE])]})


def rows(*tokens: list[int], **fields: Any) -> Rows:
    width = max(map(len, tokens))
    padded = np.array([one + [0] * (width - len(one)) for one in tokens], np.int32)
    return Rows({"tokens": padded, "length": np.array(list(map(len, tokens)), np.int32), **fields})


def injected(given: Rows, facts: BoundFacts = COOKS, **arguments: Any) -> Rows:
    return Inject("facts", tables={"facts": facts}, **arguments)(given, Draw(np.zeros(given.count, np.uint64)))


def test_the_sentence_of_the_paper_has_its_soft_positions_and_24_ones() -> None:
    made = injected(rows([CLS, COOK, VISITS, BEIJING]))
    assert made["tokens"].tolist() == [[CLS, COOK, CEO_OF, APPLE, VISITS, BEIJING]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 2, 3]]
    assert made["visible"].astype(int).tolist() == [[
        [1, 1, 0, 0, 1, 1],
        [1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1],
        [1, 1, 0, 0, 1, 1],
    ]]  # fmt: skip
    assert made["visible"].sum() == 24


def test_branches_of_one_word_do_not_see_each_other_and_restart_their_positions() -> None:
    facts = table({(COOK, VISITS): [([CEO_OF], [APPLE]), ([BORN], [MOBILE]), ([CAPITAL_OF], [CHINA])]})
    made = injected(rows([CLS, COOK, VISITS, BEIJING]), facts)
    assert made["tokens"].tolist() == [[CLS, COOK, VISITS, CEO_OF, APPLE, BORN, MOBILE, BEIJING]]  # the first two of three
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4, 3, 4, 3]]
    first, second, word, other = [3, 4], [5, 6], [1, 2], [0, 7]
    seen = made["visible"][0]
    assert seen[np.ix_(first, first + word)].all() and seen[np.ix_(second, second + word)].all()
    assert seen[np.ix_(word, word + first + second + other)].all() and seen[np.ix_(other, other + word)].all()
    assert not seen[np.ix_(first, second + other)].any() and not seen[np.ix_(other, first + second)].any()
    assert (seen == seen.T).all()


@pytest.mark.parametrize(("most", "predicate", "expected"), [
    (1, True, [CEO_OF, APPLE]), (2, True, [CEO_OF, APPLE, BORN, MOBILE]), (2, False, [APPLE, MOBILE]),
])
def test_the_first_facts_of_a_subject_are_taken_with_or_without_predicates(
    most: int, predicate: bool, expected: list[int]
) -> None:
    facts = table({(COOK,): [([CEO_OF], [APPLE]), ([BORN], [MOBILE])]})
    made = injected(rows([COOK, VISITS]), facts, most=most, predicate=predicate)
    assert made["tokens"].tolist() == [[COOK, *expected, VISITS]]


def test_targets_and_columns_follow_their_tokens() -> None:
    given = rows(
        [CLS, COOK, BEIJING], [COOK, CLS],
        **{"targets/main": np.array([[5, 6], [7, 0]]), "positions/main": np.array([[2, 1], [1, -1]]), "summary": np.array([2, 1]),
           "words": np.array([[1, 2], [0, -1]]), "segments": np.array([[0, 1, 0], [1, 0, 0]]), "special": np.zeros((2, 3), bool)},
    )
    made = injected(given)
    assert made["positions/main"].tolist() == [[4, 1], [3, -1]]
    assert made["summary"].tolist() == [4, 3] and made["words"].tolist() == [[1, 4], [0, -1]]
    assert made["segments"][0].tolist() == [0, 1, 1, 1, 0] and made["segments"][1, :4].tolist() == [1, 1, 1, 0]  # of its word
    assert made["special"][0].tolist() == [False, False, True, True, False]  # no text


def test_where_there_is_no_room_the_branches_on_the_left_are_kept_and_the_text_is_whole() -> None:
    facts = table({(COOK,): [([CEO_OF], [APPLE])], (BEIJING,): [([CAPITAL_OF], [CHINA])]})
    edit = Inject("facts", tables={"facts": facts})
    given = rows([CLS, COOK, VISITS, BEIJING], [CLS, BEIJING])
    made = edit.for_length(7)(given, Draw(np.zeros(2, np.uint64)))
    assert made["tokens"][0, :6].tolist() == [CLS, COOK, CEO_OF, APPLE, VISITS, BEIJING] and made["length"].tolist() == [6, 4]
    assert edit.for_length(5)(given, Draw(np.zeros(2, np.uint64)))["length"].tolist() == [4, 4]
    assert edit.max_input(128) == 96 and replace(edit, reserve=0.0).max_input(128) == 128


def test_masked_words_get_no_branch() -> None:
    mask = 19
    assert injected(rows([CLS, mask, VISITS]))["tokens"].tolist() == [[CLS, mask, VISITS]]


def test_without_positions_and_matrix_facts_are_ordinary_text() -> None:
    made = injected(rows([CLS, COOK, VISITS]), soft_positions=False, visible=False)
    assert made["tokens"].tolist() == [[CLS, COOK, CEO_OF, APPLE, VISITS]] and set(made) == {"tokens", "length"}


def test_in_a_batch_padding_sees_itself_and_a_batch_without_branches_has_no_matrix() -> None:
    made = injected(rows([CLS, COOK], [CLS]))
    arrays = collate(made, one_per_row(made["length"].astype(int), 5), takes=frozenset({"tokens", "position_ids"}))
    seen = arrays["visible"]
    assert seen.shape == (2, 5, 5) and seen[0].sum() == 2 + 4 + 3 + 3 + 1
    assert (seen[0, 4] == [0, 0, 0, 0, 1]).all() and (seen[1, 1:] == np.eye(5, dtype=bool)[1:]).all() and seen[1, 0].sum() == 1
    bare = injected(rows([CLS, VISITS], [CLS]))
    assert "visible" not in collate(bare, one_per_row(bare["length"].astype(int)), takes=frozenset({"tokens"}))


def test_rows_of_entries_without_facts_see_everything() -> None:
    joined = Rows.concatenate_mixed([injected(rows([COOK, CLS])), rows([CLS])])
    assert joined["visible"].shape == (2, 4, 4) and joined["visible"][1, 0, 0] and joined["position_ids"][1, 0] == 0


def test_packing_and_edits_that_move_tokens_later_are_refused() -> None:
    edit = Inject("facts", tables={"facts": COOKS})
    with pytest.raises(RecipeError, match=r"packing puts several examples into a row[\s\S]*packing: false"):
        Exercise([PlacedEdit(edit)], 8, packed=True)
    made = injected(rows([CLS, COOK]))
    with pytest.raises(RecipeError, match=r"no edit can move tokens once inject .*: put it last"):
        made.splice(np.array([[0]]), np.array([1]))
    with pytest.raises(RecipeError, match="there is no table 'fact'. Did you mean 'facts'"):
        Inject("fact", tables={"facts": COOKS})
