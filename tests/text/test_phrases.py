"""Phrases: which pairs are joined and by what score, and that every way to ids joins them alike."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import CheckpointError, RecipeError
from cloze.text import ChunkEncoder, Normalise, Phrases, TextSpec, Tokenizer, train
from cloze.text.joins import Join, Joins, PairTable, join_pairs
from cloze.text.words import Words
from tests.text.conftest import ENGLISH, SPECS

LOWER = Normalise(lower=True)
TEXTS = [  # n(new) = 5, n(york) = 4, n(new york) = 4
    "New York is big.", "new york, new york!", "a new day in new york", "the big day is in a park", "big , , , a the the is day",
]


def trained(texts: list[str] = TEXTS, **given: object) -> Tokenizer:
    return train(TextSpec(LOWER, Phrases(**{"min_count": 1, "min_pairs": 1, **given})), texts)  # type: ignore[arg-type]


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(number) for number in tokenizer.encode(text).ids]


def test_the_score_of_word2phrase_counts_all_words_of_the_text() -> None:
    tokenizer = trained(thresholds=(4.5,))
    total = 5 + 6 + 6 + 7 + 9
    assert [(j.word, j.times, j.score) for j in tokenizer.joins.pairs] == [("new_york", 4, (4 - 1) / 5 / 4 * total)]  # type: ignore[union-attr]
    assert trained(thresholds=(4.95,)).joins is None  # above the threshold, not at it
    assert pieces(tokenizer, "In NEW YORK") == ["in", "new_york"]


def test_npmi_is_one_minus_what_chance_explains() -> None:
    (join,) = (j for j in trained(thresholds=(0.0,), score="npmi").joins.pairs if j.word == "new_york")  # type: ignore[union-attr]
    total = 5 + 6 + 6 + 7 + 9
    assert join.score == pytest.approx(math.log(4 * total / (5 * 4)) / -math.log(4 / total), rel=1e-12)


def test_a_second_pass_joins_phrases_and_counts_the_joined_text() -> None:
    texts = ["new york city"] * 3 + ["new york"] * 3 + ["city a b c d e f g"]
    tokenizer = trained(texts, thresholds=(2.9, 1.4))
    first, second = (join for join in tokenizer.joins.pairs if "city" in join.word or join.word == "new_york")  # type: ignore[union-attr]
    assert (first.word, first.times, first.score) == ("new_york", 6, 5 / 36 * 23)
    assert (second.number, second.word, second.times) == (2, "new_york_city", 3)
    assert second.score == 2 / 6 / 4 * 17  # the text has 17 words after the first pass
    assert pieces(tokenizer, "new york city city") == ["new_york_city", "city"]
    assert tokenizer.spellings[4] == "new_york" or tokenizer.spellings[5] == "new_york"


def test_marks_unknown_words_and_line_ends_are_never_joined() -> None:
    texts = ["a , b"] * 5 + ["x\ny"] * 5 + ["c"] * 5 + ["d"] * 5
    assert trained(texts, thresholds=(0.0,)).joins.words == ("x_y",)  # type: ignore[union-attr]  # a line end is white space
    tokenizer = trained(["new york"] * 5 + ["some thing else"], thresholds=(0.1,), min_count=2)
    assert tokenizer.joins.words == ("new_york",)  # type: ignore[union-attr]
    assert pieces(tokenizer, "some thing new york") == ["[UNK]", "[UNK]", "new_york"]
    encoded = tokenizer.encode_batch(["a new", "york"])
    assert [len(one.ids) for one in encoded] == [2, 1]


def test_words_are_ranked_by_what_remains_of_them_and_size_cuts_phrases_with_their_words() -> None:
    texts = ["new york"] * 6 + ["big"] * 5 + ["york"] * 2
    tokenizer = trained(texts, thresholds=(1.0,))
    assert tokenizer.spellings[4:] == ("new_york", "big", "york", "new")
    cut = trained(texts, thresholds=(1.0,), size=7)  # no room for `new`
    assert cut.joins is None and cut.spellings[4:] == ("big", "york")


def _greedy(ids: list[int], pairs: dict[tuple[int, int], int]) -> list[int]:
    found, place = [], 0
    while place < len(ids):
        pair = tuple(ids[place : place + 2])
        found.append(pairs.get(pair, ids[place]))  # type: ignore[arg-type]
        place += 2 if pair in pairs else 1
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=4),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1),
)
def test_pairs_are_taken_from_left_to_right_within_lines(lines: list[list[int]], pairs: set[tuple[int, int]]) -> None:
    made = {pair: 4 + number for number, pair in enumerate(sorted(pairs))}
    first, second = (np.array(part, np.int64) for part in zip(*made, strict=True))
    table = PairTable.of(first, second, np.array(list(made.values()), np.int64), 4 + len(made))
    ids = np.array([number for line in lines for number in line], np.int32)
    last = np.array([place == len(line) - 1 for line in lines for place in range(len(line))], np.bool_)
    joined, stays = join_pairs(table, ids, last)
    assert joined[stays].tolist() == [number for line in lines for number in _greedy(line, made)]


def test_every_encoder_joins_alike_and_offsets_cover_the_phrase() -> None:
    tokenizer = trained(thresholds=(4.5,))
    texts = [*TEXTS, "", "new", "york new york", "new  YORK\u3000new york"]
    ids, starts, offsets = tokenizer.encode_flat(texts)
    lines = ChunkEncoder(tokenizer).encode_lines(texts)
    assert lines.ids.tolist() == ids.tolist() and lines.offsets.tolist() == offsets.tolist() and starts.all()
    spelled = tokenizer.encode_spelled(["in New  York, a"])
    assert spelled.ids.tolist() == tokenizer.encode("in New  York, a").ids.tolist()
    assert (spelled.begin.tolist(), spelled.end.tolist()) == ([0, 3, 12, 14], [2, 12, 13, 15])


def test_a_saved_tokenizer_keeps_its_phrases_and_a_damaged_list_is_named(tmp_path: Path) -> None:
    tokenizer = trained(thresholds=(4.5,))
    tokenizer.save(tmp_path, length=9, frame_single="{A}")
    again = Tokenizer.load(tmp_path)
    assert again.hash == tokenizer.hash != tokenizer.joined_by(None).hash
    assert pieces(again, "new york") == ["new_york"]
    assert pieces(again.with_words(["zebra"]), "zebra new york") == ["zebra", "new_york"]
    (tmp_path / "phrases.tsv").write_text("pass\tfirst\tsecond\tcount\tscore\n1\tnew\n")
    with pytest.raises(CheckpointError, match=r"phrases.tsv:2: '1\\tnew' is not a phrase"):
        Tokenizer.load(tmp_path)
    (tmp_path / "phrases.tsv").write_text("pass\tfirst\tsecond\tcount\tscore\n1\tnew\tzoo\t1\t1\n")
    with pytest.raises(CheckpointError, match="'zoo' is not in the vocabulary"):
        Tokenizer.load(tmp_path)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(RecipeError, match="expected word2phrase or npmi"):
        Phrases(score="pmi")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="200; npmi is between -1 and 1"):
        Phrases(score="npmi")
    for wrong in (-1.0, float("nan")):
        with pytest.raises(RecipeError, match=f"{wrong:g}; word2phrase's score is compared with numbers from 0 on"):
            Phrases(thresholds=(200.0, wrong))
    with pytest.raises(RecipeError, match="a threshold for each pass"):
        Phrases(thresholds=())
    with pytest.raises(RecipeError, match="only whole words are joined"):
        train(SPECS["bert"], ENGLISH).joined_by(Joins([Join(1, "a", "b", 1, 1.0)]))


def test_without_joins_the_words_are_those_of_words() -> None:
    assert trained(thresholds=(1e9,)).description == train(TextSpec(LOWER, Words(min_count=1)), TEXTS).description


def test_pairs_of_many_blocks_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(TEXTS * 3, thresholds=(0.0,))
    monkeypatch.setattr("cloze.text.phrases._LINES", 1)
    monkeypatch.setattr("cloze.text.phrases._TOGETHER", 1)
    assert trained(TEXTS * 3, thresholds=(0.0,)).joins.pairs == whole.joins.pairs  # type: ignore[union-attr]
    assert len(whole.joins.pairs) > 10  # type: ignore[union-attr]
