"""Whole words by number, words that start at further pieces, and one draw for a whole word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.join_words import JoinWords
from cloze.exercises.noise.mask import Mask
from cloze.exercises.noise.split_words import SplitWords
from cloze.rows import Rows

CAMEMBERT = {"unit": "whole_word", "of": "words", "rounding": "stochastic", "spare": "none"}


def framed(passages, draw, facts, count):
    return Frame("[CLS] {A} [SEP]", tokenizer=facts)(passages(count, distractor=False), draw(count))


def words_of(rows, values):
    """(rows, W) the first value of every word of each row, and whether the whole word has it."""
    inside = np.arange(values.shape[1]) < rows["length"][:, None]
    word = np.cumsum(rows["word_start"] & inside, axis=1) - 1
    count = np.zeros((len(values), word.max() + 1))
    size = count.copy()
    row, column = np.nonzero(inside)
    np.add.at(size, (row, word[row, column]), 1)
    np.add.at(count, (row, word[row, column]), values[row, column])
    return count, size


def test_camembert_masks_a_share_of_the_words_and_skips_none(passages, draw, facts):
    rows = framed(passages, draw, facts, 6000)
    count, size = words_of(rows, Mask(**CAMEMBERT)(rows, draw(6000))["masked"])
    chosen = count > 0
    assert (count[chosen] == size[chosen]).all()
    words = (size > 0).sum(1)
    beyond = chosen.sum(1) - np.floor(0.15 * words)
    assert set(beyond) == {0, 1} and abs((chosen.sum(1) - 0.15 * words).mean()) < 0.02
    for pieces in (1, 2, 3, 4):  # long words are as likely as short ones: by tokens they are skipped
        assert abs(chosen[size == pieces].mean() - 0.15) < 0.01
    assert chosen[:, 0].mean() > 0.1  # [CLS] is a word, too


def test_a_number_of_words_is_for_whole_words_only():
    with pytest.raises(RecipeError, match="does not use of: words"):
        Mask(of="words")


def test_every_word_may_be_taken_without_going_over(passages, draw, facts):
    rows = framed(passages, draw, facts, 50)
    masked = Mask(unit="whole_word", of="words", rate=1.0)(rows, draw(50))["masked"]
    assert (masked.sum(1) == rows["length"] - 2).all()


def test_one_draw_for_each_word_shows_its_pieces_alike(passages, draw, facts):
    rows = Mask(**{**CAMEMBERT, "rate": 0.5})(framed(passages, draw, facts, 4000), draw(4000))
    out = Corrupt(per="word", tokenizer=facts)(rows, draw(4000))
    hidden, size = words_of(rows, out["tokens"] == 4)
    assert set(np.unique(hidden / np.maximum(size, 1))) == {0, 1}
    chosen = words_of(rows, rows["masked"])[0] > 0
    assert abs((hidden[chosen] > 0).mean() - 0.8) < 0.01


def test_the_odds_of_random_and_kept_tokens_are_not_mistaken_for_each_other(passages, draw, facts):
    rows = Mask(rate=0.5)(framed(passages, draw, facts, 3000), draw(3000))
    out = Corrupt(mask=0.5, random=0.4, keep=0.1, tokenizer=facts)(rows, draw(3000))
    shown, original = out["tokens"][rows["masked"]], out["original"][rows["masked"]]
    assert abs((shown == original).mean() - (0.1 + 0.4 / 995)) < 0.01
    assert abs((shown == 4).mean() - 0.5) < 0.01


PIECES = ["<pad>", "[CLS]", "▁the", "ing", ",", "'", ",.", "9", "ß", "▁g", "ING", "<x>", "$", "a-b", "’", "—", "€", "\u200b"]
WIDE = {"’", "—", "€", "\u200b"}


@pytest.mark.parametrize(("at", "starting"), [
    (["marks"], {",", "$"}), (["foreign"], {"<pad>", "▁the", "'", "9", "ß", "▁g", "<x>"} | WIDE),
    (["marks", "foreign"], {",", "$", "<pad>", "▁the", "'", "9", "ß", "▁g", "<x>"} | WIDE),
    (["unicode"], {",", "$", "'"} | WIDE - {"€"}),  # `_is_punctuation` of BERT and of DeBERTa's spm_tokenizer.py
])
def test_words_also_start_at_marks_and_at_pieces_of_other_letters(draw, facts, at, starting):
    rows = Rows({
        "tokens": np.arange(len(PIECES), dtype=np.int32)[None], "length": np.array([len(PIECES)], np.int32),
        "word_start": np.arange(len(PIECES))[None] == PIECES.index("ING"),
    })
    out = SplitWords(at, tokenizer=replace(facts, spellings=PIECES))(rows, draw(1))
    assert {PIECES[column] for column in np.flatnonzero(out["word_start"][0])} == starting | {"ING"}


def test_the_spellings_of_a_tokenizer_reach_the_edit(draw):
    from cloze.text.normalise import Normalise
    from cloze.text.vocabularies.training import Unigram

    lines = [f"{a}{b} {b}{a}" for a in ("plan", "cost", "sun", "9") for b in (",", "!", "(")] * 20
    tokenizer = Unigram(size=34).train(lines, Normalise())
    encoded = tokenizer.encode("plan, (99!")
    rows = Rows({"tokens": encoded.ids[None], "length": np.array([len(encoded.ids)]), "word_start": encoded.word_start[None]})
    facts = TokenFacts.of(tokenizer)
    assert [facts.spellings[number] for number in encoded.ids] == ["▁plan,", "▁", "(", "9", "9", "!"]
    assert encoded.word_start.tolist() == [True, True, False, False, False, False]
    assert SplitWords(["marks"], tokenizer=facts)(rows, draw(1))["word_start"].tolist() == [[True] * 3 + [False, False, True]]


def test_words_start_only_behind_spaces(draw, facts):
    """`startswith(" ")` of fairseq's gpt2_bpe.py: marks, endings, line ends belong to the word before; special tokens start."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "The", "Ġcat", "'s", ",", "Ċ", "Ġ,", "ly"]
    rows = Rows({
        "tokens": np.array([[5, 6, 7, 8, 10, 11, 9, 5, 2]], np.int32), "length": np.array([9], np.int32),
        "word_start": np.array([[True, True, True, True, True, False, True, True, True]]),
    })
    joined = JoinWords(tokenizer=replace(facts, spellings=pieces))(rows, draw(1))["word_start"]
    assert joined.tolist() == [[True, True, False, False, True, False, False, False, True]]
    plain = JoinWords(tokenizer=replace(facts, spellings=["a", "##b"]))(rows, draw(1))["word_start"]
    assert plain.tolist() == rows["word_start"].tolist()


@pytest.mark.parametrize("at", [[], ["letters"]])
def test_unknown_places_are_refused(at):
    with pytest.raises(RecipeError, match="expected marks, foreign, unicode or several"):
        SplitWords(at)


def test_a_tokenizer_without_spellings_is_refused(draw, facts):
    rows = Rows({"tokens": np.array([[1]]), "length": np.array([1]), "word_start": np.array([[True]])})
    with pytest.raises(RecipeError, match="needs the spelling of tokens"):
        SplitWords(tokenizer=facts)(rows, draw(1))
