"""Captions of films: neighbours are appended with their frames, and frames are written as visual words."""

from __future__ import annotations

import numpy as np
import pytest

from cloze import rng
from cloze.corpus import Store
from cloze.corpus.records import Records, RecordStore
from cloze.errors import RecipeError
from cloze.exercises.companions.append import Append
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.items.write_items import WriteItems
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text import Tokenizer
from tests.samples import films

ITEMS = {"frames": ["features", "word"]}


@pytest.fixture(scope="module")
def store() -> RecordStore:
    opened = Store.open(films())
    assert isinstance(opened, RecordStore)
    return opened


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(films() / "tokenizer")


def rows_of(store: RecordStore, want: frozenset[str] = frozenset()) -> Rows:
    """All records in their order."""
    bound = Records(answer="none", items=ITEMS, length=32).bind(store, seed=1, entry="main")
    plan = bound.plan(0, 32)
    return bound.read(plan, np.argsort(plan.order), want)


def draw_of(rows: Rows) -> Draw:
    return Draw(rng.row_keys(7, items=np.arange(rows.count)))


NEXT = frozenset({"next.tokens", "next.length", "next.item_length/frames", "next.items/frames/word"})


def test_the_next_caption_is_that_of_the_next_picture_of_the_same_film(store: RecordStore) -> None:
    rows = rows_of(store, NEXT)
    last = np.arange(60) % 3 == 2
    assert (rows["next.length"][last] == 0).all() and (rows["next.item_length/frames"][last] == 0).all()
    assert (rows["next.items/frames/word"][last] == -1).all()
    for row in np.flatnonzero(~last):
        n, r = rows["next.length"][row], rows["next.item_length/frames"][row]
        assert rows["next.tokens"][row, :n].tolist() == rows["tokens"][row + 1, : rows["length"][row + 1]].tolist()
        assert r == rows["item_length/frames"][row + 1]
        assert rows["next.items/frames/word"][row, :r].tolist() == rows["items/frames/word"][row + 1, :r].tolist()


def test_films_are_held_out_as_a_whole(store: RecordStore) -> None:
    parts = store.split(0.25)
    assert {int(record) // 3 for record in parts["train"]}.isdisjoint(int(record) // 3 for record in parts["held_out"])
    assert len(parts["held_out"]) % 3 == 0 and len(parts["held_out"])


def test_append_puts_texts_and_items_of_both_one_after_another(store: RecordStore) -> None:
    rows = rows_of(store, NEXT)
    made = Append(rate=1.0, items=("frames",))(rows, draw_of(rows))
    for row in range(60):
        a, b = int(rows["length"][row]), int(rows["next.length"][row])
        assert made["length"][row] == a + b
        assert made["tokens"][row, : a + b].tolist() == [*rows["tokens"][row, :a], *rows["next.tokens"][row, :b]]
        r, s = int(rows["item_length/frames"][row]), int(rows["next.item_length/frames"][row])
        words = [*rows["items/frames/word"][row, :r], *rows["next.items/frames/word"][row, :s]]
        assert made["items/frames/word"][row].tolist() == words + [-1] * (made["items/frames/word"].shape[1] - r - s)
        if s:
            assert np.array_equal(made["item_vectors/frames"][row, r : r + s], rows["item_vectors/frames"][row + 1, :s])
        assert not made["item_vectors/frames"][row, r + s :].any()
    same = Append(rate=0.0, items=("frames",))(rows, draw_of(rows))
    assert np.array_equal(same["length"], rows["length"]) and np.array_equal(same["items/frames/word"], rows["items/frames/word"])


def test_a_film_is_written_as_every_first_to_fifth_of_its_words(store: RecordStore, tokenizer: Tokenizer) -> None:
    rows = rows_of(store)
    first = tokenizer.id("[frames/0]")
    assert first is not None
    edit = WriteItems(steps=5, tokenizer=TokenFacts.of(tokenizer))
    made, steps = edit(rows, draw_of(rows)), set()
    for row in range(60):
        words = rows["items/frames/word"][row, : rows["item_length/frames"][row]] + first
        step = next(s for s in range(1, 6) if made["video.length"][row] == len(words[::s]))
        assert made["video.tokens"][row, : made["video.length"][row]].tolist() == words[::step].tolist()
        steps.add(step)
    assert steps >= {1, 2, 3}
    everything = WriteItems(tokenizer=TokenFacts.of(tokenizer))(rows, draw_of(rows))
    assert np.array_equal(everything["video.length"], rows["item_length/frames"])


def test_a_template_puts_a_border_of_one_token_between_text_and_film(store: RecordStore, tokenizer: Tokenizer) -> None:
    facts = TokenFacts.of(tokenizer)
    edits = [WriteItems(tokenizer=facts), Frame("[CLS] {A} [>] {video} [SEP]", tokenizer=facts)]
    rows = rows_of(store)
    made = Exercise([PlacedEdit(edit, "main") for edit in edits], 32)(rows, draw_of(rows))
    text, film = rows["tokens"][0, : rows["length"][0]], rows["items/frames/word"][0, : rows["item_length/frames"][0]]
    shown = [tokenizer.role("[CLS]"), *text, tokenizer.id("[>]"), *(film + tokenizer.id("[frames/0]")), tokenizer.role("[SEP]")]
    assert made["tokens"][0, : made["length"][0]].tolist() == shown


def test_words_that_the_vocabulary_lacks_are_refused_with_the_way_to_make_them(store: RecordStore, tokenizer: Tokenizer) -> None:
    rows = rows_of(store)
    given = {"items/shots/word": rows["items/frames/word"], "item_length/shots": rows["item_length/frames"]}
    with pytest.raises(RecipeError, match=r"no visual words \[shots/0\].*\n  Make them: cloze vocab visual .* --set shots"):
        WriteItems(set="shots", tokenizer=TokenFacts.of(tokenizer))(rows.having_all(given), draw_of(rows))
    more = rows.having_all({"items/frames/word": rows["items/frames/word"] + 9})
    with pytest.raises(RecipeError, match=r"an item has the word 1\d, and there are 9 of 'frames'"):
        WriteItems(tokenizer=TokenFacts.of(tokenizer))(more, draw_of(rows))
