"""What each edit does, on rows small enough to work out by hand, and its rates on many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import RecipeError
from cloze.exercises.companions.pair import Pair
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.mask import Mask
from cloze.exercises.order import Order
from cloze.exercises.targets.predict import Predict
from cloze.rows import Rows


def framed(passages, draw, facts, count=64, template="[CLS] {A} [SEP]", **kwargs):
    rows = passages(count, distractor=False, **kwargs)
    return Frame(template, tokenizer=facts)(rows, draw(count))


def test_frame_inserts_roles_around_the_passage(draw, facts):
    rows = Rows({"tokens": np.array([[7, 8, 9]], np.int32), "length": np.array([2], np.int32)})
    out = Frame("[CLS] {A} [SEP]", tokenizer=facts)(rows, draw(1))
    assert out["tokens"][0, :4].tolist() == [2, 7, 8, 3]
    assert out["length"].tolist() == [4]
    assert out["special"][0, :4].tolist() == [True, False, False, True]


def test_frame_numbers_segments_by_part_and_gives_the_separator_to_the_part_before(draw, facts):
    rows = Rows({
        "tokens": np.array([[7, 8, 9, 10]], np.int32), "length": np.array([4], np.int32),
        "parts": np.array([[[0, 1], [1, 4]]]),
    })
    out = Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts)(rows, draw(1))
    assert out["tokens"][0].tolist() == [2, 7, 3, 8, 9, 10, 3]
    assert out["segments"][0].tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_frame_leaves_out_an_empty_part_with_its_separator(draw, facts):
    rows = Rows({
        "tokens": np.array([[7, 8], [7, 8]], np.int32), "length": np.array([2, 2], np.int32),
        "parts": np.array([[[0, 2], [0, 0]], [[0, 1], [1, 2]]]),
    })
    out = Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts)(rows, draw(2))
    assert out["length"].tolist() == [4, 5]
    assert out["tokens"][0, :4].tolist() == [2, 7, 8, 3]
    assert out["tokens"][1].tolist() == [2, 7, 3, 8, 3]


@pytest.mark.parametrize("width", [0, 3])
def test_frame_of_rows_that_are_all_empty_is_empty(draw, facts, width):
    rows = Rows({
        "tokens": np.zeros((2, width), np.int32), "length": np.zeros(2, np.int32), "parts": np.zeros((2, 2, 2), np.int64),
    })
    out = Frame("[CLS] {A} [SEP] {B} [SEP]", restart=True, tokenizer=facts)(rows, draw(2))
    assert out["length"].tolist() == [0, 0]
    assert {out[name].shape for name in ("tokens", "special", "segments", "position_ids")} == {(2, 0)}


def test_frame_restarts_positions_and_splits_two_separators_between_the_parts(draw, facts):
    rows = Rows({
        "tokens": np.array([[7, 8, 9]], np.int32), "length": np.array([3], np.int32),
        "parts": np.array([[[0, 1], [1, 3]]]),
    })
    out = Frame("[SEP] {A} [SEP] [SEP] {B} [SEP]", restart=True, tokenizer=facts)(rows, draw(1))
    assert out["tokens"][0].tolist() == [3, 7, 3, 3, 8, 9, 3]
    assert out["position_ids"][0].tolist() == [0, 1, 2, 0, 1, 2, 3]


def test_frame_reads_literal_text_and_moves_layers_and_places_along(draw, facts):
    rows = Rows({
        "tokens": np.array([[7, 8]], np.int32), "length": np.array([2], np.int32),
        "word_start": np.array([[True, False]]), "targets/x": np.array([[70, 80]]), "positions/x": np.array([[0, -1]]),
    })
    out = Frame("[CLS] four five! {A}", tokenizer=facts)(rows, draw(1))
    assert out["tokens"][0].tolist() == [2, 9, 10, 7, 8]
    assert out["word_start"][0].tolist() == [True, True, True, True, False]
    assert out["positions/x"][0].tolist() == [3, -1]


def test_frame_counts_its_insertions_in_room(facts):
    assert Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts).max_input(512) == 509
    assert Frame("[CLS] {A} [SEP] {B} [SEP]").max_input(128) == 125


def test_frame_without_a_part_is_refused():
    with pytest.raises(RecipeError, match="names no part"):
        Frame("[CLS] [SEP]")


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5])
def test_mask_chooses_exactly_the_rounded_share_of_ordinary_tokens(passages, draw, facts, rate):
    rows = framed(passages, draw, facts, 200)
    masked = Mask(rate=rate)(rows, draw(200))["masked"]
    ordinary = rows["length"] - 2
    expected = np.minimum(np.maximum(np.rint(rate * ordinary), 1), ordinary)
    assert masked.sum(1).tolist() == expected.tolist()


def test_mask_counts_special_tokens_when_the_share_is_of_all(passages, draw, facts):
    rows = framed(passages, draw, facts, 200)
    masked = Mask(of="all", most=4)(rows, draw(200))["masked"]
    expected = np.minimum(np.minimum(np.maximum(np.rint(0.15 * rows["length"]), 1), 4), rows["length"] - 2)
    assert masked.sum(1).tolist() == expected.tolist()


def test_mask_rounds_stochastically_to_the_right_mean(passages, draw, facts):
    rows = framed(passages, draw, facts, 20000)
    masked = Mask(rounding="stochastic")(rows, draw(20000))["masked"]
    ordinary = rows["length"] - 2
    number = masked.sum(1)
    assert set(np.unique(number - np.floor(0.15 * ordinary))) <= {0, 1}
    assert abs(number.mean() - (0.15 * ordinary).mean()) < 0.02


def test_mask_chooses_every_place_equally_often(passages, draw, facts):
    rows = framed(passages, draw, facts, 20000, width=10, sentence=10)
    rows = rows.take(rows["length"] == 12)
    masked = Mask(rate=0.3)(rows, draw(rows.count))["masked"]
    share = masked.mean(0)[1:11]
    assert not masked[:, [0, 11]].any()
    assert np.abs(share - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / rows.count)


def test_whole_word_mask_never_splits_a_word_and_never_exceeds_the_number(passages, draw, facts):
    rows = framed(passages, draw, facts, 500)
    masked = Mask(unit="whole_word")(rows, draw(500))["masked"]
    limit = np.minimum(np.maximum(np.rint(0.15 * (rows["length"] - 2)), 1), rows["length"] - 2)
    assert (masked.sum(1) <= limit).all()
    starts, special = rows["word_start"], rows["special"]
    for row in range(500):
        words, current = [], []
        for column in range(rows["length"][row]):
            if special[row, column]:
                continue
            if starts[row, column] and current:
                words.append(current)
                current = []
            current.append(column)
        words.append(current)
        for word in words:
            assert masked[row, word].all() or not masked[row, word].any()


def test_whole_word_mask_uses_up_the_number_when_words_are_single_tokens(passages, draw, facts):
    rows = framed(passages, draw, facts, 100).having(word_start=np.ones((100, 42), bool))
    masked = Mask(unit="whole_word")(rows, draw(100))["masked"]
    assert masked.sum(1).tolist() == Mask()(rows, draw(100))["masked"].sum(1).tolist()


def test_corrupt_shows_masks_random_tokens_and_originals_at_the_stated_odds(passages, draw, facts):
    rows = Mask(rate=0.5)(framed(passages, draw, facts, 6000), draw(6000))
    out = Corrupt(tokenizer=facts)(rows, draw(6000))
    at = rows["masked"]
    shown, original = out["tokens"][at], out["original"][at]
    n = len(shown)
    assert abs((shown == 4).mean() - 0.8) < 4 * np.sqrt(0.16 / n)
    kept = (shown == original).mean()
    assert abs(kept - (0.1 + 0.1 / 995)) < 4 * np.sqrt(0.09 / n)
    assert (out["tokens"][~at] == rows["tokens"][~at]).all()
    assert shown[shown != 4].min() >= 5


def test_corrupt_per_word_treats_the_pieces_of_a_word_alike(passages, draw, facts):
    rows = Mask(unit="whole_word", rate=0.5)(framed(passages, draw, facts, 500), draw(500))
    out = Corrupt(mask=0.5, random=0.0, keep=0.5, per="word", tokenizer=facts)(rows, draw(500))
    hidden = out["tokens"] == 4
    follows = rows["masked"][:, 1:] & rows["masked"][:, :-1] & ~rows["word_start"][:, 1:]
    assert follows.sum() > 100
    assert (hidden[:, 1:] == hidden[:, :-1])[follows].all()


def test_corrupt_refuses_odds_that_do_not_add_up():
    with pytest.raises(RecipeError, match="add up to 1"):
        Corrupt(mask=0.8, random=0.3, keep=0.1)


def test_predict_lists_the_original_of_every_masked_token_in_order(passages, draw, facts):
    rows = Mask(rate=0.3)(framed(passages, draw, facts, 50), draw(50))
    out = Predict()(Corrupt(tokenizer=facts)(rows, draw(50)), draw(50))
    for row in range(50):
        columns = np.flatnonzero(rows["masked"][row])
        positions = out["positions/main"][row]
        assert positions[positions >= 0].tolist() == columns.tolist()
        assert out["targets/main"][row, : len(columns)].tolist() == rows["tokens"][row, columns].tolist()


def test_predict_asks_nothing_in_rows_that_are_mismatched(draw):
    rows = Rows({
        "tokens": np.array([[7, 8], [9, 10], [11, 12]], np.int32), "masked": np.array([[0, 1], [1, 1], [1, 0]], bool),
        "mismatched": np.array([False, True, False]),
    })
    made = Predict(unless="mismatched")(rows, draw(3))
    assert made["positions/main"].tolist() == [[1], [-1], [0]]
    assert made["targets/main"][[0, 2], 0].tolist() == [8, 11]
    assert Predict()(rows, draw(3))["positions/main"].tolist() == [[1, -1], [0, 1], [0, -1]]
    with pytest.raises(RecipeError, match="unless: mismatched is not for what: next"):
        Predict("next", unless="mismatched")


def test_predict_all_asks_at_special_tokens_too_and_never_at_padding(draw):
    rows = Rows({"tokens": np.array([[2, 7, 3], [2, 3, 0]], np.int32), "length": np.array([3, 2], np.int32)})
    made = Predict("all", set="all")(rows, draw)
    assert made["positions/all"].tolist() == [[0, 1, 2], [0, 1, -1]]
    assert made["targets/all"][:, :2].tolist() == [[2, 7], [2, 3]]


def test_predict_next_asks_at_every_token_but_the_last(draw):
    rows = Rows({"tokens": np.array([[5, 6, 7, 0], [8, 9, 0, 0]], np.int32), "length": np.array([3, 2], np.int32)})
    out = Predict(what="next")(rows, draw(2))
    assert out["positions/main"].tolist() == [[0, 1, -1], [0, -1, -1]]
    assert out["targets/main"][0, :2].tolist() == [6, 7]
    assert out["targets/main"][1, 0] == 9


def test_orders_are_what_the_table_says(draw):
    rows = Rows({
        "tokens": np.zeros((1, 4), np.int32), "length": np.array([3], np.int32),
        "segments": np.array([[0, 0, 1, 1]], np.int32),
    })
    orders = {kind: Order(kind)(rows, draw(1))["order"][0].tolist() for kind in
              ("open", "left_to_right", "right_to_left", "source_to_target")}
    assert orders["open"] == [0, 0, 0, 0]
    assert orders["left_to_right"] == [0, 1, 2, 3]
    assert orders["right_to_left"][:3] == [2, 1, 0]
    assert orders["source_to_target"] == [0, 0, 1, 2]


def test_pair_cuts_at_a_sentence_border_and_labels_the_true_continuation_zero(passages, draw):
    rows = passages(400)
    out = Pair()(rows, draw(400))
    parts, label = out["parts"], out["targets/next"]
    assert out["tokens"].shape[1] == 80
    true = label == 0
    assert (parts[true, 0, 1] % 8 == 0).all() and (parts[true, 1, 0] == parts[true, 0, 1]).all()
    assert (parts[true, 1, 1] == rows["length"][true]).all()
    assert (parts[~true, 1, 0] == 40).all()


def test_pair_gives_a_random_second_segment_to_every_passage_of_one_sentence(passages, draw):
    rows = passages(400, sentence=40)
    assert (Pair()(rows, draw(400))["targets/next"] == 1).all()


def test_pair_is_wrong_at_the_stated_rate(passages, draw):
    rows = passages(4000)
    several = rows["length"] > 8
    label = Pair(rate=0.5)(rows, draw(4000))["targets/next"][several]
    assert abs(label.mean() - 0.5) < 4 * np.sqrt(0.25 / several.sum())


def test_pair_trims_the_longer_segment_at_both_ends(passages, draw):
    rows = passages(2000)
    out, whole = Pair(rate=0.01).for_length(20)(rows, draw(2000)), Pair(rate=0.01)(rows, draw(2000))
    true = out["targets/next"] == 0
    before = np.diff(whole["parts"], axis=2)[true, :, 0]
    after = np.diff(out["parts"], axis=2)[true, :, 0]
    cut = before.sum(1) > 20
    assert cut.sum() > 500 and (after[~cut] == before[~cut]).all()
    assert (after[cut].sum(1) == 20).all()
    for (a, b), got in zip(before[cut].tolist(), after[cut].tolist(), strict=True):
        while a + b > 20:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert got == [a, b]
    dropped = before[:, 0] - after[:, 0]
    front = out["parts"][true, 0, 0]
    assert abs(front[dropped > 0].sum() / dropped.sum() - 0.5) < 0.03


def test_pair_with_rate_zero_asks_nothing_and_may_leave_one_segment(passages, draw):
    rows = passages(2000, distractor=False)
    out = Pair(rate=0.0, single=0.25)(rows, draw(2000))
    assert "targets/next" not in out
    several = rows["length"] > 8
    one = (out["parts"][:, 1, 1] == out["parts"][:, 1, 0])[several]
    assert abs(one.mean() - 0.25) < 4 * np.sqrt(0.19 / several.sum())


def test_pair_for_packing_is_never_longer_than_its_passage(passages, draw):
    for sentence in (8, 40):
        rows = passages(500, sentence=sentence)
        sizes = np.diff(Pair().for_length(30).without_growth()(rows, draw(500))["parts"], axis=2)[:, :, 0]
        assert (sizes.sum(1) <= np.minimum(rows["length"], 30)).all()
        assert (sizes.min(1) >= 1).mean() > 0.95


def bert(facts, length=43):
    edits = (Pair(), Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts), Mask(of="all"), Corrupt(tokenizer=facts), Predict())
    return Exercise([PlacedEdit(e) for e in edits], length)


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 20), cut=st.integers(0, 20), length=st.integers(8, 43), seed=st.integers(0, 10**6))
def test_a_row_is_the_same_alone_and_in_any_block(passages, draw, count, cut, length, seed):
    from cloze.exercises import TokenFacts

    roles = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    exercise = bert(TokenFacts(1000, roles, np.arange(5, 1000, dtype=np.int32), lambda text: []), length)
    rows, numbers = passages(count, seed=seed % 50), draw(count, seed=seed)
    whole = exercise(rows, numbers)
    chosen = min(cut, count - 1)
    alone = exercise(rows.take(slice(chosen, chosen + 1)), numbers.take(np.array([chosen])))
    size = int(alone["length"][0])
    assert whole["length"][chosen] == size <= length
    assert whole["tokens"][chosen, :size].tolist() == alone["tokens"][0, :size].tolist()
    positions = whole["positions/main"][chosen]
    assert positions[positions >= 0].tolist() == alone["positions/main"][0].tolist()
    assert whole["targets/next"][chosen] == alone["targets/next"][0]


def test_the_example_alone_rebuilds_the_framed_text(passages, draw, facts):
    rows = passages(300)
    out = bert(facts)(rows, draw(300))
    rebuilt = out["tokens"].copy()
    row, slot = np.nonzero(out["positions/main"] >= 0)
    rebuilt[row, out["positions/main"][row, slot]] = out["targets/main"][row, slot]
    paired = Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts)(Pair().for_length(40)(rows, draw(300)), draw(300))
    inside = np.arange(rebuilt.shape[1]) < out["length"][:, None]
    assert (rebuilt[inside] == paired["tokens"][:, : rebuilt.shape[1]][inside]).all()


def test_masks_differ_between_epochs_and_repeat_for_the_same_address(passages, draw, facts):
    rows = passages(50)
    first, again, other = (bert(facts)(rows, draw(50, epoch=e)) for e in (0, 0, 1))
    assert (first["tokens"] == again["tokens"]).all()
    assert first["tokens"].shape != other["tokens"].shape or (first["tokens"] != other["tokens"]).any()


def test_an_exercise_works_out_what_the_source_must_read(facts):
    assert bert(facts, 128).max_tokens == 125
    assert bert(facts).wants == {
        "tokens", "vectors", "length", "sentence", "target_length", "border", "apart", "favour", "distractor.favour",
        "distractor.tokens", "distractor.vectors", "distractor.length", "distractor.sentence",
    }
