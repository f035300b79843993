"""Words in the pieces of one of two vocabularies, drawn at random: both spell the same text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises import Edit, TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.mix_vocabularies import MixVocabularies
from cloze.exercises.retokenize import OtherReading
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.text import Normalise, TextSpec, Tokenizer, WordPiece, train

TEXT = (Path(__file__).resolve().parents[2] / "cloze" / "samples" / "english.txt").read_text(encoding="utf-8")[:20_000]
SENTENCES = ["the little house stood near the river, and children played there", "everything was quiet in the morning"]


def wordpiece(size: int) -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), WordPiece(size=size)), TEXT.splitlines())


SMALL, LARGE = wordpiece(90), wordpiece(600)


def edit(rate: float, *, rows: Tokenizer = SMALL, other: Tokenizer = LARGE, limit: int | None = None) -> Edit:
    reading = OtherReading(rows, other, "[CLS] {A} [SEP]", None, rows.size + other.size, rows.size)
    made = MixVocabularies(network="teacher", rate=rate, tables={"teacher": reading})
    return made if limit is None else made.for_length(limit)


def framed(texts: Sequence[str], tokenizer: Tokenizer = SMALL) -> Rows:
    """Rows of these texts behind `[CLS]` and before `[SEP]`."""
    read = tokenizer.encode_batch(list(texts))
    width = max(len(each.ids) for each in read)
    tokens, starts = np.zeros((len(read), width), np.int32), np.zeros((len(read), width), bool)
    for number, each in enumerate(read):
        tokens[number, : len(each.ids)], starts[number, : len(each.ids)] = each.ids, each.word_start
    rows = Rows({"tokens": tokens, "length": np.array([len(each.ids) for each in read], np.int32), "word_start": starts})
    return Frame("[CLS] {A} [SEP]", tokenizer=TokenFacts.of(tokenizer))(rows, draw(len(texts)))


def draw(rows: int, epoch: int = 0) -> Draw:
    return Draw(row_keys(3, "main", epoch, items=np.arange(rows)))


def ids_of(made: Rows, row: int) -> list[int]:
    return list(made["mixed.tokens"][row, : made["mixed.length"][row]])


def words_of(made: Rows, row: int, rows: Tokenizer = SMALL, other: Tokenizer = LARGE) -> list[str]:
    """The words of a row of the view, each spelled by the tokenizer of its ids."""
    ids, starts = made["mixed.tokens"][row, : made["mixed.length"][row]], made["mixed.word_start"][row]
    special = np.isin(ids, rows.special_ids)
    groups = np.split(ids[~special], np.flatnonzero(starts[: len(ids)][~special])[1:])
    return [
        (rows.decode(group) if group[0] < rows.size else other.decode(group - rows.size)).replace(" ", "") for group in groups
    ]


def test_with_probability_1_the_view_is_the_row_and_with_0_it_is_that_of_the_other_vocabulary() -> None:
    rows = framed(SENTENCES)
    whole = edit(1.0)(rows, draw(2))
    for name in ("tokens", "length", "segments", "special", "word_start"):
        assert np.array_equal(whole[f"mixed.{name}"], rows[name])
    other = edit(0.0)(rows, draw(2))
    for row, sentence in enumerate(SENTENCES):
        body = [number + SMALL.size for number in LARGE.encode(sentence).ids]
        assert ids_of(other, row) == [SMALL.role("[CLS]"), *body, SMALL.role("[SEP]")]
    assert other["mixed.special"].sum() == 4


def test_both_segmentations_spell_the_same_words_and_half_of_the_words_are_of_each() -> None:
    rows = framed([SENTENCES[0]] * 200)
    made = edit(0.5)(rows, draw(200))
    expected = SENTENCES[0].replace(",", " ,").split()
    chosen = np.zeros(len(expected))
    for row in range(200):
        assert words_of(made, row) == expected
        starts = made["mixed.word_start"][row] & ~made["mixed.special"][row]
        chosen += made["mixed.tokens"][row][starts] < SMALL.size
    assert abs(chosen.mean() / 200 - 0.5) < 0.03 and chosen.min() > 70 and chosen.max() < 130
    assert not np.array_equal(made["mixed.tokens"], edit(0.5)(rows, draw(200, epoch=1))["mixed.tokens"])


def test_words_that_the_other_vocabulary_lacks_and_ends_of_cut_words_keep_their_pieces() -> None:
    own = wordpiece(600)
    few = train(TextSpec(Normalise(lower=True), WordPiece(size=40)), ["abab abba baab"])  # letters a and b alone
    made = edit(0.0, rows=own, other=few)(framed(["abba house"], own), draw(1))
    kept = [number for number in ids_of(made, 0) if number < own.size]
    assert own.decode(kept[1:-1]) == "house" and words_of(made, 0, own, few) == ["abba", "house"]
    rows = framed(["children"], SMALL)
    cut = Rows({name: rows[name] - 1 if name == "length" else np.delete(rows[name], 1, 1) for name in rows if name != "parts"})
    assert ids_of(edit(0.0)(cut, draw(1)), 0) == cut["tokens"][0].tolist()


def test_a_row_is_never_longer_than_a_row_may_be() -> None:
    rows = framed(SENTENCES, LARGE)
    longest = int(rows["length"].max())
    free = edit(0.0, rows=LARGE, other=SMALL)(rows, draw(2))
    assert free["mixed.length"].max() > longest
    bound = edit(0.0, rows=LARGE, other=SMALL, limit=longest)(rows, draw(2))
    assert bound["mixed.length"].max() <= longest
    assert [words_of(bound, row, LARGE, SMALL) for row in (0, 1)] == [words_of(free, row, LARGE, SMALL) for row in (0, 1)]


def test_without_a_teacher_that_reads_both_vocabularies_it_says_how_to_write_one() -> None:
    with pytest.raises(RecipeError, match=r"no network 'teacher' from a checkpoint .*\n  Write `teacher: \{from: NAME, chan"):
        MixVocabularies(network="teacher")(framed(SENTENCES), draw(2))
