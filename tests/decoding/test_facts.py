"""A checkpoint that was trained with facts adds them to every text that it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batching.collate import collate, one_per_row
from cloze.decoding.filling import fill
from cloze.decoding.reader import Reader, head_of_kind
from cloze.decoding.scores.scoring import masked_each, score
from cloze.decoding.scores.windows import Windows
from cloze.decoding.vectors.embedding import embed
from cloze.exercises import TokenFacts
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.inject import Inject
from cloze.knowledge.fact_table import BoundFacts
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.tasks.intrinsic.facts import FactPrompt, evaluate
from cloze.tasks.words import word_windows

FACTS = [("cat", "eats", "mice"), ("cat", "is", "warm"), ("dog", "chases", "the cat")]


@pytest.fixture(scope="module")
def plain(checkpoint: Any) -> Any:
    return checkpoint("bert")


@pytest.fixture(scope="module")
def knowing(plain: Any) -> Any:
    return with_facts(plain, FACTS)


def with_facts(checkpoint: Any, facts: list[tuple[str, str, str]], **arguments: Any) -> Any:
    tables = {"facts": BoundFacts.of(facts, checkpoint.tokenizer)}
    edit = Inject("facts", tables=tables, **arguments)
    return SimpleNamespace(**{**vars(checkpoint), "input_edits": (edit,), "tables": tables})


def test_facts_stand_behind_their_words_and_belong_to_no_text(knowing: Any) -> None:
    reader = Reader.of(knowing)
    (row,) = reader.encode(["the cat sleeps"])
    pieces = [reader.tokenizer.decode(row.ids[row.part == part], skip_special=False) for part in (0, -1)]
    assert pieces[0] == "the cat sleeps" and "eats mice" in pieces[1] and "is warm" in pieces[1]
    assert row.tree is not None and (row.part[row.tree.branch > 0] == -1).all()


def test_a_text_is_read_as_it_is_in_training(knowing: Any) -> None:
    reader, text = Reader.of(knowing), "the dog saw the cat"
    edits = [PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=TokenFacts.of(knowing.tokenizer))), PlacedEdit(knowing.input_edits[0])]
    for length in (40, 16, 12):
        exercise, ids = Exercise(edits, length), knowing.tokenizer.encode(text).ids[None]
        rows = exercise(Rows({"tokens": ids, "length": np.array([ids.shape[1]], np.int32)}), Draw(np.zeros(1, np.uint64)))
        wanted = collate(rows, one_per_row(rows["length"].astype(int)), takes=frozenset({"tokens", "segments", "position_ids"}))
        found = reader.batch(reader.encode([text], max_length=length))
        for name in ("tokens", "segments", "position_ids", "visible"):
            assert (name in found) == (name in wanted) or name == "position_ids"
            assert name not in found or np.array_equal(found[name].numpy(), wanted[name])


def test_without_a_known_word_everything_is_as_without_facts_bit_for_bit(knowing: Any, plain: Any) -> None:
    texts = ["a man runs", "the man saw the house"]
    for there, here in ((knowing, texts), (with_facts(plain, [("zebra", "is", "a horse")]), [*texts, "the cat"])):
        first, second = Reader.of(there), Reader.of(plain)
        assert np.array_equal(embed(first, here, length=20), embed(second, here, length=20))


def test_masks_are_filled_with_facts(knowing: Any, plain: Any) -> None:
    head = head_of_kind(knowing, "token_prediction")
    with_, without = (fill(Reader.of(each), head, ["the cat [MASK] on the mat", "a man [MASK]"]) for each in (knowing, plain))
    assert with_[0].masks[0][0].probability != without[0].masks[0][0].probability
    assert [one.id for one in with_[1].masks[0]] == [one.id for one in without[1].masks[0]]
    assert "mice" not in with_[0].best  # the text alone is shown


def test_facts_as_gaps_are_asked_with_the_facts_of_the_network(knowing: Any) -> None:
    reader, head = Reader.of(knowing), head_of_kind(knowing, "token_prediction")
    prompts = [FactPrompt("the cat [MASK] on the mat", (answer,)) for answer in ("and", "the", "of")]
    candidates = fill(reader, head, [prompts[0].text], top=reader.tokenizer.size)[0].masks[0]
    special = set(reader.tokenizer.special_ids)
    ids = [candidate.id for candidate in candidates if candidate.id not in special]
    ranks = [1 + ids.index(reader.tokenizer.encode(f"the cat {prompt.answers[0]} on").ids[2]) for prompt in prompts]
    for prompt, rank in zip(prompts, ranks, strict=True):
        assert evaluate(reader, head, [prompt]).overall.mrr == pytest.approx(1 / rank)


def test_pairs_are_embedded_with_the_facts_of_both_texts(knowing: Any) -> None:
    reader = Reader.of(knowing)
    (row,) = reader.encode(["the dog"], ["the cat"])
    assert row.tree is not None and len(np.unique(row.tree.branch)) == 4
    segments = [set(row.segments[row.tree.branch == branch].tolist()) for branch in (1, 2, 3)]
    assert segments == [{0}, {1}, {1}]


def test_a_masked_word_shows_none_of_its_facts_and_no_fact_is_scored(knowing: Any, plain: Any) -> None:
    reader, head = Reader.of(knowing), head_of_kind(knowing, "token_prediction")
    (row,) = reader.encode(["the cat sleeps"])
    (bare,) = Reader.of(plain).encode(["the cat sleeps"])
    cat = int(np.flatnonzero(row.part == 0)[1])
    batch, at, targets = masked_each(reader, head, [row], np.array([cat]))
    other, there, same = masked_each(Reader.of(plain), head, [bare], np.array([2]))
    scores = [head_scores(reader, head, batch, at), head_scores(Reader.of(plain), head, other, there)]
    assert targets.tolist() == same.tolist() and torch.allclose(*scores, atol=1e-5)
    scored, alone = (
        score(each, head, ["the cat sleeps", "a man"], method="pseudo_log_likelihood") for each in (reader, Reader.of(plain))
    )
    assert [one.tokens for one in scored] == [one.tokens for one in alone]
    assert scored[0].score != alone[0].score and scored[1].score == pytest.approx(alone[1].score, abs=1e-4)


def head_scores(reader: Reader, head: Any, batch: Any, at: Any) -> Any:
    with torch.no_grad():
        return reader.scores(head, reader.states(batch, head.reads), batch, at)


def test_windows_of_a_long_text_leave_room_for_facts(knowing: Any) -> None:
    reader, words = Reader.of(knowing), ["the", "cat", "saw", "a", "man", "in", "the", "house", "and", "ran"] * 5
    made = word_windows(reader, [words], 20)[0]
    assert len(made) > 1 and all(len(window.row) <= 20 for window in made)
    assert any(window.row.tree is not None and window.row.tree.branch.any() for window in made)
    read = np.concatenate([window.words for window in made])
    assert read.tolist() == list(range(len(words)))
    for window in made:
        assert (window.row.part[window.columns] == 0).all()
    assert Windows().size(reader.max_tokens(40)) == 30
