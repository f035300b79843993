"""The edits of single systems: pairs, frames with languages, noises, views and items linked to the tokens."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cloze.corpus.tables.lexicon import BoundLexicon
from cloze.errors import RecipeError
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.companions.bring import Bring
from cloze.exercises.companions.pair import Pair
from cloze.exercises.copy import Copy
from cloze.exercises.cut import CutView
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.match import Match
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.delete import Delete
from cloze.exercises.noise.mask import Mask
from cloze.exercises.noise.permute import Permute
from cloze.exercises.noise.rotate import Rotate
from cloze.exercises.noise.shuffle import Shuffle
from cloze.exercises.targets.predict import Predict
from cloze.rows import Rows

BERT = "[CLS] {A} [SEP] {B} [SEP]"


def framed(passages, draw, facts, count=64, **kwargs):
    return Frame("[CLS] {A} [SEP]", tokenizer=facts)(passages(count, distractor=False, **kwargs), draw(count))


# ---- pairs -----------------------------------------------------------------------------------------------------------


def test_sentence_order_swaps_half_of_the_pairs_and_asks_no_row_of_one_sentence(passages, draw, facts):
    rows = passages(4000, distractor=False)
    edit = Pair(wrong="swapped")
    out = edit(rows, draw(4000))
    assert edit.takes == {"tokens", "length", "sentence"} and edit.gives <= set(out)
    parts, label, asked = out["parts"], out["targets/next"], out["positions/next"] == 0
    assert (asked == (rows["length"] > 8)).all()
    swapped = asked & (label == 1)
    assert abs(swapped.sum() / asked.sum() - 0.5) < 0.03
    assert (parts[swapped, 0, 0] == parts[swapped, 1, 1]).all() and (parts[swapped, 1, 0] == 0).all()
    assert (parts[asked & (label == 0), 0, 1] == parts[asked & (label == 0), 1, 0]).all()
    assert (np.diff(parts, axis=2).sum((1, 2)) == rows["length"]).all()
    assert (np.diff(parts, axis=2)[~asked, 1] == 0).all()
    shown = Frame(BERT, tokenizer=facts)(out, draw(4000))
    row = int(np.flatnonzero(swapped)[0])
    a, b = ([*range(start, stop)] for start, stop in parts[row].tolist())
    text = rows["tokens"][row]
    assert shown["tokens"][row, : shown["length"][row]].tolist() == [2, *text[a], 3, *text[b], 3]
    assert (shown["positions/next"] == out["positions/next"]).all()


def test_structbert_takes_next_previous_and_random_alike(passages, draw):
    rows = passages(9000)
    out = Pair(wrong=["swapped", "random_document"], rate=2 / 3)(rows, draw(9000))
    several = rows["length"] > 8
    label = out["targets/next"]
    share = np.bincount(label[several], minlength=3) / several.sum()
    assert np.abs(share - 1 / 3).max() < 0.02
    assert (label[~several] == 2).all()
    parts = out["parts"]
    assert (parts[label == 2, 1, 0] == 40).all() and (parts[label < 2].max(axis=(1, 2)) <= 40).all()
    assert (parts[label == 1, 1, 0] == 0).all() and (parts[label == 0, 0, 0] == 0).all()


def test_sentence_pairs_are_two_neighbouring_sentences_or_one_from_elsewhere(passages, draw):
    rows = passages(2000)
    out = Pair(unit="sentence")(rows, draw(2000))
    parts, label = out["parts"], out["targets/next"]
    several = rows["length"] > 8
    assert (parts[several, 0, 1] - parts[several, 0, 0] == 8).all() and (parts[:, 0, 0] % 8 == 0).all()
    true = label == 0
    assert (parts[true, 0, 1] == parts[true, 1, 0]).all() and (np.diff(parts, axis=2)[:, 1] <= 8).all()
    assert (parts[~true, 1, 0] == 40).all()


def test_a_pair_moves_every_layer_of_the_distractor_along(passages, draw, facts):
    exercise = Exercise([PlacedEdit(e) for e in (
        Pair(), Frame(BERT, tokenizer=facts), Mask(unit="whole_word"), Corrupt(tokenizer=facts), Predict())], 60)
    assert {"word_start", "distractor.word_start"} <= exercise.wants
    rows = passages(300)
    out = Frame(BERT, tokenizer=facts)(Pair()(rows, draw(300)), draw(300))
    start = {5 + 100 * (r % 4) + c: rows["word_start"][r, c] for r in range(4) for c in range(40)}
    assert start
    for row in range(300):
        part = out["segments"][row] == 1
        if out["targets/next"][row] == 1:
            columns = np.flatnonzero(part & ~out["special"][row] & (np.arange(part.size) < out["length"][row]))
            place = out["tokens"][row, columns] - 505 - 100 * (row % 4)
            assert (out["word_start"][row, columns] == rows["distractor.word_start"][row, place]).all()


def test_wrong_ways_are_listed_once():
    with pytest.raises(RecipeError, match="each way to be wrong once"):
        Pair(wrong=["swapped", "swapped"])


# ---- frames ----------------------------------------------------------------------------------------------------------


def translated():
    return Rows({
        "tokens": np.array([[7, 8, 9], [7, 8, 0]], np.int32), "length": np.array([3, 2], np.int32), "language": np.array([4, 5]),
        "translation.tokens": np.array([[17, 18], [19, 0]], np.int32), "translation.length": np.array([2, 1], np.int32),
        "translation.language": np.array([6, 7]),
    })


def test_tlm_appends_a_translation_to_its_text(draw, facts):
    edit = Frame("[SEP] {A} [SEP] [SEP] {translation} [SEP]", restart=True, inputs={"language": "of_part"}, tokenizer=facts)
    assert edit.takes == {"tokens", "length", "language"} | {f"translation.{n}" for n in ("tokens", "length", "language")}
    out = edit(translated(), draw(2))
    assert out["tokens"][0].tolist() == [3, 7, 8, 9, 3, 3, 17, 18, 3]
    assert out["position_ids"][0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert out["inputs/language"][0].tolist() == [4] * 5 + [6] * 4
    assert out["tokens"][1, :7].tolist() == [3, 7, 8, 3, 3, 19, 3] and out["inputs/language"][1, :7].tolist() == [5] * 4 + [7] * 3
    assert ((out["tokens"] == 3).sum(1)[0]) == 4


def test_tlm_is_cut_to_its_length_at_the_end_of_the_translation(draw, facts):
    edits = [Frame("[SEP] {A} [SEP] [SEP] {translation} [SEP]", tokenizer=facts), Mask(spare="first", rounding="independent")]
    exercise = Exercise([PlacedEdit(e) for e in edits], 8)
    assert {"translation.tokens", "translation.length"} <= exercise.wants and exercise.max_tokens == 4
    out = exercise(translated(), draw(2))
    assert out["tokens"][0, :8].tolist() == [3, 7, 8, 9, 3, 3, 17, 3]


def test_frame_gives_the_language_of_the_row_or_an_id(draw, facts):
    out = Frame("{A}", inputs={"language": "of_row", "task": 3}, tokenizer=facts)(translated(), draw(2))
    assert out["inputs/language"][:, 0].tolist() == [4, 5] and (out["inputs/task"] == 3).all()


def test_frame_takes_any_segment_numbers_and_one_for_the_last_token(draw, facts):
    parts = np.array([[[0, 1], [1, 2]]])
    rows = Rows({"tokens": np.array([[7, 8]], np.int32), "length": np.array([2], np.int32), "parts": parts})

    def segments(template, ids):
        return Frame(template, segments=ids, tokenizer=facts)(rows, draw(1))["segments"][0].tolist()

    assert segments(BERT, [4, 5]) == [4, 4, 4, 5, 5] and segments(BERT, [2, 2]) == [2] * 5
    assert segments("{A} [SEP] {B} [SEP] [CLS]", [0, 1, 2]) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"segments": [0, 1, 2]}, "3 segments for 2 parts"), ({"inputs": {"task": [0]}}, "1 ids for 2 parts"),
    ({"inputs": {"task": "of_row"}}, "is only for language"),
])
def test_frame_refuses_numbers_that_do_not_fit_its_parts(arguments, message):
    with pytest.raises(RecipeError, match=message):
        Frame("{A} [SEP] {B}", **arguments)


# ---- noises ----------------------------------------------------------------------------------------------------------


def test_shuffle_moves_unmasked_trigrams_and_keeps_their_tokens(passages, draw, facts):
    rows = Corrupt(tokenizer=facts)(Mask()(framed(passages, draw, facts, 2000), draw(2000)), draw(2000))
    out = Shuffle()(rows, draw(2000))
    stretch, moved = out["layers/shuffled"], out["layers/shuffled"] > 0
    assert not (moved & (rows["masked"] | rows["special"])).any()
    assert (out["tokens"][~moved] == rows["tokens"][~moved]).all() and (out["original"] == rows["original"]).all()
    n = rows["length"] - 2
    long = n > 20
    assert (stretch.max(1) == np.maximum(np.rint(0.05 * n / 3), 1))[long].all()
    for row in np.flatnonzero(long)[:200]:
        for k in range(1, stretch[row].max() + 1):
            columns = np.flatnonzero(stretch[row] == k)
            assert len(columns) == 3 and columns[2] - columns[0] == 2
            assert sorted(out["tokens"][row, columns]) == sorted(rows["tokens"][row, columns])
    asked = Predict(what="shuffled", set="shuffled")(out, draw(2000))
    row, slot = np.nonzero(asked["positions/shuffled"] >= 0)
    assert (asked["targets/shuffled"][row, slot] == rows["original"][row, asked["positions/shuffled"][row, slot]]).all()
    assert len(row) == moved.sum()


def test_shuffle_takes_every_order_alike_and_every_place(draw):
    tokens = np.broadcast_to(np.arange(5, 17, dtype=np.int32), (12000, 12))
    rows = Rows({"tokens": tokens, "length": np.full(12000, 12, np.int32), "special": np.zeros((12000, 12), bool),
                 "masked": np.zeros((12000, 12), bool)})
    out = Shuffle()(rows, draw(12000))
    start = np.argmax(out["layers/shuffled"], axis=1)
    assert np.abs(np.bincount(start, minlength=10) / 12000 - 0.1).max() < 0.012
    kinds = np.argsort(out["tokens"][np.arange(12000)[:, None], start[:, None] + np.arange(3)], axis=1)
    shares = np.unique(kinds, axis=0, return_counts=True)[1] / 12000
    assert len(shares) == 6 and np.abs(shares - 1 / 6).max() < 0.015


def test_permute_keeps_sentences_whole_and_every_token(passages, draw):
    rows = passages(500, distractor=False)
    out = Permute()(rows, draw(500))
    assert (out["length"] == rows["length"]).all()
    for row in range(500):
        size = rows["length"][row]
        before, after = rows["tokens"][row, :size], out["tokens"][row, :size]
        assert sorted(before) == sorted(after)
        inner = sum(b == a + 1 for a, b in pairwise(after.tolist()))
        assert inner >= size - -(-size // 8)
        assert (np.diff(out["sentence"][row, :size]) != 0).sum() == out["sentence"][row, :size].max(initial=0)


def test_permute_takes_every_order_of_three_sentences_alike(passages, draw):
    rows = passages(6000, width=24, distractor=False).having(length=np.full(6000, 24, np.int32))
    orders = Permute()(rows, draw(6000))["sentence"][:, ::8]
    shares = np.unique(orders, axis=0, return_counts=True)[1] / 6000
    assert len(shares) == 6 and np.abs(shares - 1 / 6).max() < 0.02


def test_permute_moves_only_a_share_of_the_sentences(passages, draw):
    rows = passages(2000, distractor=False).having(length=np.full(2000, 40, np.int32))
    moved = (Permute(rate=0.4)(rows, draw(2000))["sentence"][:, ::8] != np.arange(5)).sum(1)
    assert moved.max() == 2 and 0.4 < (moved > 0).mean() < 0.6
    assert (Permute(rate=0.41)(rows, draw(2000))["sentence"][:, ::8] != np.arange(5)).sum(1).max() == 3  # rounded up


def test_rotate_worked_example_and_every_start(draw, facts):
    tokens = np.broadcast_to(np.array([10, 11, 12, 13], np.int32), (4000, 4))
    rows = Frame("[CLS] {A} [SEP]", tokenizer=facts)(Rows({"tokens": tokens, "length": np.full(4000, 4, np.int32)}), draw(4000))
    out = Rotate()(rows, draw(4000))["tokens"]
    kinds, counts = np.unique(out, axis=0, return_counts=True)
    assert [2, 12, 13, 10, 11, 3] in kinds.tolist()
    assert len(kinds) == 4 and np.abs(counts / 4000 - 0.25).max() < 0.03
    assert (Rotate(rate=0)(rows, draw(4000))["tokens"] == rows["tokens"]).all()


def test_delete_leaves_out_the_share_in_order(passages, draw, facts):
    rows = framed(passages, draw, facts, 400)
    out = Delete(rate=0.3)(rows, draw(400))
    n = rows["length"] - 2
    assert (rows["length"] - out["length"] == np.minimum(np.rint(0.3 * n), n - 1)).all()
    for row in range(400):
        left = out["tokens"][row, : out["length"][row]]
        assert left[0] == 2 and left[-1] == 3 and (np.diff(left[1:-1]) > 0).all()


def test_delete_takes_each_word_by_a_draw_of_its_own_and_leaves_one(passages, draw, facts):
    """UKPLab/sentence-transformers, v2.7.0, DenoisingAutoEncoderDataset.delete: n words, each kept if its number is above 0.6."""
    rows = framed(passages, draw, facts, 4000)
    out = Delete(rate=0.6, unit="word", rounding="independent")(rows, draw(4000))
    shares = []
    for row in range(4000):
        before, after = rows["tokens"][row, 1 : rows["length"][row] - 1], out["tokens"][row, 1 : out["length"][row] - 1]
        starts = rows["word_start"][row, 1 : rows["length"][row] - 1].copy()
        starts[0] = True
        word = np.cumsum(starts) - 1
        stays = np.isin(before, after)
        kept = [stays[word == w] for w in range(word[-1] + 1)]
        assert len(after) and all(part.all() or not part.any() for part in kept)
        if len(kept) > 8:  # where the one that must stay hardly ever counts
            shares.append(np.mean([part.any() for part in kept]))
    assert abs(np.mean(shares) - 0.4) < 0.01 and np.std(shares) > 0.05  # a rounded number would have no such spread
    single = out["length"] == 3
    assert single.any() and (out["length"] >= 3).all()


@pytest.mark.parametrize("edit", [Permute, Rotate, Delete])
def test_noises_refuse_rates_out_of_range(edit):
    with pytest.raises(RecipeError, match="rate must be from 0 to 1"):
        edit(rate=1.5)


# ---- asking one place earlier ----------------------------------------------------------------------------------------


def test_predict_shifted_asks_one_place_before_each_masked_token(passages, draw, facts):
    rows = Mask(rate=0.3)(framed(passages, draw, facts, 50), draw(50))
    plain, shifted = (Predict(shift=shift)(rows, draw(50)) for shift in (0, 1))
    assert (shifted["targets/main"] == plain["targets/main"]).all()
    assert (shifted["positions/main"] == np.where(plain["positions/main"] < 0, -1, plain["positions/main"] - 1)).all()
    first = rows.having(masked=np.arange(42) == np.zeros((50, 1)))
    assert Predict(shift=1)(first, draw(50))["positions/main"].size == 0


def test_predict_next_is_not_shifted_again():
    with pytest.raises(RecipeError, match="shifted by one position already"):
        Predict(what="next", shift=1)


# ---- views and items linked to the tokens ------------------------------------------------------------------------------


def infoword(facts):
    return Exercise([
        PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=facts)), PlacedEdit(Copy("hole")), PlacedEdit(Mask()),
        PlacedEdit(Corrupt(tokenizer=facts)),
        PlacedEdit(Predict()),
        PlacedEdit(Mask(unit="ngram", lengths={"geometric": {"p": 0.2, "max_length": 10}}, count=1), "hole"),
        PlacedEdit(CutView(to="ngram", of="hole")), PlacedEdit(Corrupt(mask=1.0, random=0, keep=0, tokenizer=facts), "hole"),
        PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=facts), "ngram"),
    ], 42)


def test_infoword_cuts_one_ngram_out_of_the_sentence_and_fills_the_hole(passages, draw, facts):
    rows = passages(200, distractor=False)
    out = infoword(facts)(rows, draw(200))
    for row in range(200):
        hole = out["hole.tokens"][row, : out["hole.length"][row]].copy()
        ngram = out["ngram.tokens"][row, 1: out["ngram.length"][row] - 1]
        assert 0 < len(ngram) == (hole == 4).sum()
        hole[hole == 4] = ngram
        assert hole[1:-1].tolist() == rows["tokens"][row, : rows["length"][row]].tolist()


def test_a_brought_companion_can_be_cut_too(passages, draw):
    rows = passages(20)
    rows = Bring("distractor", "other")(rows, draw(20))
    rows = rows.having_all({"other.masked": np.arange(40) < 3 * np.ones((20, 1))})
    out = CutView(to="start", of="other")(rows, draw(20))
    assert (out["start.tokens"] == rows["distractor.tokens"][:, :3]).all()


GRAMS = BoundLexicon(np.array([[-1, -1, -1], [7, 8, -1], [8, 9, 10], [9, 9, -1]], np.int32))


def test_match_finds_every_ngram_and_links_it_to_its_tokens(draw):
    tokens = np.array([[7, 8, 9, 10, 9, 9, 9], [1, 9, 9, 7, 8, 7, 8]], np.int32)
    rows = Rows({"tokens": tokens, "length": np.array([7, 4], np.int32)})
    out = Match("ngrams", tables={"ngrams": GRAMS})(rows, draw(2))
    assert out["items/ngram"].tolist() == [[1, 2, 3, 3], [3, 0, 0, 0]]
    links = [[tuple(pair) for pair in row if pair[0] >= 0] for row in out["links/ngram"].tolist()]
    assert links == [[(0, 0), (1, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (5, 3), (6, 3)], [(1, 0), (2, 0)]]


def test_match_keeps_at_most_so_many_and_every_one_alike(draw):
    rows = Rows({"tokens": np.full((3000, 9), 9, np.int32), "length": np.full(3000, 9, np.int32)})
    out = Match("ngrams", most=2, tables={"ngrams": GRAMS})(rows, draw(3000))
    assert out["items/ngram"].shape == (3000, 2)
    starts = out["links/ngram"][:, ::2, 0]
    assert np.abs(np.bincount(starts.ravel(), minlength=8) / 3000 - 0.25).max() < 0.03


def test_match_after_corrupt_never_holds_a_masked_token(passages, draw):
    facts = TokenFacts(1000, {"[MASK]": 4, "[CLS]": 2, "[SEP]": 3}, np.arange(5, 1000, dtype=np.int32), lambda text: [])
    tokens = np.broadcast_to(np.array([7, 8, 9, 10, 7, 8, 9, 10], np.int32), (300, 8))
    rows = Frame("[CLS] {A} [SEP]", tokenizer=facts)(Rows({"tokens": tokens, "length": np.full(300, 8, np.int32)}), draw(300))
    rows = Corrupt(mask=1.0, random=0, keep=0, tokenizer=facts)(Mask(rate=0.3)(rows, draw(300)), draw(300))
    out = Match("ngrams", tables={"ngrams": GRAMS})(rows, draw(300))
    row, pair = np.nonzero(out["links/ngram"][:, :, 0] >= 0)
    assert len(row) and not rows["masked"][row, out["links/ngram"][row, pair, 0]].any()


def test_match_names_the_table_it_misses(draw):
    rows = Rows({"tokens": np.array([[7, 8]], np.int32), "length": np.array([2], np.int32)})
    with pytest.raises(RecipeError, match="no table 'ngram'. Did you mean 'ngrams'"):
        Match("ngram", tables={"ngrams": GRAMS})(rows, draw(1))
