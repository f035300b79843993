"""T5, BART and MASS end to end: the worked examples of their papers and code, their rates, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import RecipeError
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.companions.answer import DecoderAnswer
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.hide import Hide
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.predict import Predict
from cloze.exercises.units import UnitRequest, infill
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

PAD, EOS, MASK, BOS = 0, 1, 3, 2
FACTS = TokenFacts(
    10000, {"[PAD]": PAD, "[EOS]": EOS, "[BOS]": BOS, "[MASK]": MASK}, np.arange(4, 9900, dtype=np.int32), lambda text: [],
    np.arange(9999, 9899, -1, dtype=np.int32),
)


def text(count, length, width=None):
    """Rows whose tokens are 100, 101, …; every token a word."""
    sizes = np.broadcast_to(np.asarray(length, np.int32), count).copy()
    width = width or int(sizes.max())
    tokens = np.broadcast_to(np.arange(100, 100 + width, dtype=np.int32), (count, width))
    return Rows({"tokens": tokens, "length": sizes, "word_start": np.ones((count, width), bool)})


SENTINELS = {"infill": "sentinels", "mask": 1.0, "random": 0.0, "keep": 0.0}


def draw(count, first=0, seed=5):
    return Draw(row_keys(seed, "main", 0, items=np.arange(first, first + count)))


def t5(length=512, **mask):
    edits = [
        Mask(unit="alternating", **mask), DecoderAnswer(what="spans", tokenizer=FACTS),
        Corrupt(**SENTINELS, tokenizer=FACTS),
        Frame("{A} [EOS]", tokenizer=FACTS),
    ]
    return Exercise([PlacedEdit(edit) for edit in edits], length)


def rebuilt_t5(row):
    """The passage from what the encoder reads and what the decoder is asked."""
    spans, current = {}, None
    size = int(row["decoder.length"][0])
    for token in row["decoder.targets/main"][0, :size].tolist():
        if token >= 9900:
            current = spans.setdefault(token, [])
        elif token != EOS:
            current.append(token)
    out = []
    for token in row["tokens"][0, : row["length"][0]].tolist():
        out += spans.pop(token) if token >= 9900 else [token] if token != EOS else []
    assert not spans
    return out


@pytest.mark.parametrize(("length", "raw", "answer"), [(64, 70, 14), (128, 141, 29), (256, 284, 58), (512, 568, 114)])
def test_t5_reads_as_much_text_as_fills_the_length_exactly(length, raw, answer):
    exercise = t5(length)
    assert exercise.max_tokens == raw
    out = exercise(text(3, raw), draw(3))
    assert out["length"].tolist() == [length] * 3
    assert out["decoder.length"].tolist() == [answer] * 3


def test_t5_worked_example_of_forty_tokens():
    rows = text(1, 40)
    masked = np.isin(np.arange(40), [10, 11, 12, 13, 38, 39])[None]
    span = np.where(masked, np.where(np.arange(40) < 20, 1, 2), 0)
    rows = rows.having_all({"masked": masked, "layers/span": span})
    rows = DecoderAnswer(what="spans", tokenizer=FACTS)(rows, draw(1))
    rows = Corrupt(**SENTINELS, tokenizer=FACTS)(rows, draw(1))
    out = Frame("{A} [EOS]", tokenizer=FACTS)(rows, draw(1))
    t = list(range(100, 140))
    assert out["tokens"][0].tolist() == [*t[:10], 9999, *t[14:38], 9998, EOS]
    assert out["length"].tolist() == [37]
    answer = [9999, *t[10:14], 9998, *t[38:40], EOS]
    assert out["decoder.targets/main"][0].tolist() == answer
    assert out["decoder.tokens"][0].tolist() == [PAD, *answer[:-1]]
    assert out["decoder.positions/main"][0].tolist() == list(range(9))
    assert out["decoder.length"].tolist() == [9]


def test_t5_masks_forty_tokens_in_two_spans_and_always_the_last_token():
    out = Mask(unit="alternating")(text(2000, 40), draw(2000))
    assert (out["masked"].sum(1) == 6).all() and (out["layers/span"].max(1) == 2).all()
    assert out["masked"][:, -1].all() and not out["masked"][:, 0].any()


def test_t5_has_one_span_and_a_fixed_suffix_up_to_twenty_nine_tokens():
    for n in range(2, 30):
        out = Mask(unit="alternating")(text(20, n), draw(20))
        number = min(max(round(0.15 * n), 1), n - 1)
        assert (out["masked"] == (np.arange(n) >= n - number)).all()


def test_t5_cuts_every_way_equally_often():
    out = Mask(unit="alternating")(text(20000, 40), draw(20000))
    first = (out["layers/span"] == 1).sum(1)
    assert np.abs(np.bincount(first, minlength=6)[1:6] / 20000 - 0.2).max() < 0.015
    begin = np.argmax(out["masked"], axis=1)
    assert begin.min() == 1 and begin.max() == 33
    assert np.abs(np.bincount(begin, minlength=34)[1:34] / 20000 - 1 / 33).max() < 0.006


@settings(max_examples=30, deadline=None)
@given(n=st.lists(st.integers(2, 120), min_size=1, max_size=6), seed=st.integers(0, 10**6), rate=st.floats(0.05, 0.6))
def test_t5_input_and_answer_rebuild_the_passage_alone_and_in_a_block(n, seed, rate):
    rows, numbers = text(len(n), n), draw(len(n), seed=seed)
    exercise = t5(rate=rate)
    whole = exercise(rows, numbers)
    for place, size in enumerate(n):
        alone = exercise(rows.take(slice(place, place + 1)), numbers.take(np.array([place])))
        assert rebuilt_t5(alone) == list(range(100, 100 + size))
        assert rebuilt_t5(whole.take(slice(place, place + 1))) == list(range(100, 100 + size))


def test_t5_says_when_there_are_too_few_sentinels():
    few = TokenFacts(10000, FACTS.roles, FACTS.ordinary, FACTS.read, FACTS.sentinels[:2])
    rows = Mask(unit="alternating")(text(1, 200), draw(1))
    with pytest.raises(RecipeError, match="10 spans in one row, but this tokenizer has 2 sentinels"):
        Corrupt(**SENTINELS, tokenizer=few)(rows, draw(1))


@pytest.mark.parametrize("rates", [{}, {"mask": 0.5, "random": 0.5, "keep": 0.0}, {"mask": 0.0, "random": 0.0, "keep": 1.0}])
def test_rates_that_sentinels_do_not_follow_are_refused(rates):
    with pytest.raises(RecipeError, match="a sentinel in place of every span; write mask: 1.0, random: 0.0, keep: 0.0.$"):
        Corrupt(infill="sentinels", **rates)


@pytest.mark.parametrize("drawn", [{"replacements": "frequency"}, {"frequent": 9}])
def test_ways_to_draw_random_tokens_are_refused_beside_sentinels(drawn):
    with pytest.raises(RecipeError, match="infill: sentinels draws no random token; leave out replacements and frequent"):
        Corrupt(**SENTINELS, **drawn)


def test_the_unit_of_corruption_is_refused_where_spans_are_infilled() -> None:
    with pytest.raises(RecipeError, match="per: word changes nothing"):
        Corrupt(infill="sentinels", per="word", mask=1.0, random=0.0, keep=0.0)


def test_an_answer_after_the_infilling_is_refused():
    rows = Corrupt(**SENTINELS, tokenizer=FACTS)(Mask(unit="alternating")(text(1, 40), draw(1)), draw(1))
    with pytest.raises(RecipeError, match="put answer before corrupt"):
        DecoderAnswer(what="spans", tokenizer=FACTS)(rows, draw(1))


@pytest.mark.parametrize(("mean", "expected"), [(3.0, (0.816, 0.083, 0.267, 0.048)), (3.5, (0.804, 0.070, 0.267, 0.029))])
def test_bart_infilling_has_the_published_statistics(mean, expected):
    rows, count = text(4000, 500), 4000
    edit = Mask(unit="infill", rate=0.3, rounding="up", lengths={"poisson": mean})
    marked = edit(rows, draw(count))
    out = Corrupt(mask=1.0, random=0, keep=0, infill="one_mask", tokenizer=FACTS)(marked, draw(count))
    inside = np.arange(out["tokens"].shape[1]) < out["length"][:, None]
    masks = ((out["tokens"] == MASK) & inside).sum(1)
    empty = marked["layers/insert"].sum(1)
    drawn = infill._lengths(UnitRequest(edit, rows, draw(count), np.ones((count, 500), bool), np.full(count, 150)))[1].sum()
    found = out["length"].mean() / 500, masks.mean() / 500, marked["masked"].mean(), empty.sum() / drawn
    assert np.abs(np.subtract(found, expected)).max() < 0.005


def test_bart_asks_for_the_whole_text_before_any_noise():
    edits = [
        DecoderAnswer(frame="[BOS] {A} [EOS]", start="[EOS]", tokenizer=FACTS),
        Mask(unit="infill", rate=0.3, rounding="up"), Corrupt(mask=0.9, random=0.1, keep=0, infill="one_mask", tokenizer=FACTS),
        Frame("[BOS] {A} [EOS]", tokenizer=FACTS),
    ]
    exercise = Exercise([PlacedEdit(e) for e in edits], 64)
    assert exercise.max_tokens == 62
    out = exercise(text(50, 62), draw(50))
    answer = [BOS, *range(100, 162), EOS]
    assert (out["decoder.targets/main"] == answer).all()
    assert (out["decoder.tokens"] == [EOS, *answer[:-1]]).all()
    inside = np.arange(out["tokens"].shape[1]) < out["length"][:, None]
    kept = inside & (out["tokens"] >= 100) & (out["tokens"] < 162)
    for row in range(50):
        shown = out["tokens"][row][kept[row]]
        assert (np.diff(shown) != 0).all()
    assert (out["tokens"] == MASK).any()


def test_bart_masks_word_by_word_and_draws_some_masks_as_random_tokens():
    rows = text(3000, 100)
    rows = rows.having(word_start=rows["tokens"] % 2 == 0)
    marked = Mask(unit="infill", rate=0.3, rounding="up")(rows, draw(3000))
    assert (marked["masked"][:, ::2] == marked["masked"][:, 1::2]).all()
    out = Corrupt(mask=0.9, random=0.1, keep=0, infill="one_mask", tokenizer=FACTS)(marked, draw(3000))
    inside = np.arange(out["tokens"].shape[1]) < out["length"][:, None]
    filled = ((out["tokens"] == MASK) & inside).sum()
    spans, empty = marked["layers/span"].max(1).sum(), marked["layers/insert"].sum(1)
    assert abs((filled - (empty - np.ceil(empty / 10)).sum()) / spans - 0.9) < 0.01


def test_bart_shows_a_tenth_of_the_empty_spans_of_a_row_rounded_up_as_random_tokens():
    empty = np.arange(26)
    rows = text(26, 40).having_all({
        "masked": np.zeros((26, 40), bool), "layers/span": np.zeros((26, 40), np.int32),
        "layers/insert": (np.arange(40) == 7) * empty[:, None],
    })
    out = Corrupt(mask=0.9, random=0.1, keep=0, infill="one_mask", tokenizer=FACTS)(rows, draw(26))
    shown = out["tokens"][:, 7:40]
    assert (out["length"] == 40 + empty).all()
    assert ((shown == MASK).sum(1) == empty - np.ceil(empty / 10)).all()
    positions = [np.flatnonzero(row[:count] != MASK) for row, count in zip(shown, empty, strict=True)]
    assert len(set(np.concatenate(positions[11:]).tolist())) > 8  # anywhere among them


def mass(length=64, **mask):
    edits = [
        Frame("[BOS] {A} [EOS]", tokenizer=FACTS), Mask(unit="fragment", **{"rate": 0.5, **mask}),
        DecoderAnswer(what="masked", frame="{A}", start="previous", positions="original", tokenizer=FACTS),
        Corrupt(tokenizer=FACTS),
        Hide(),
    ]
    return Exercise([PlacedEdit(e) for e in edits], length)


def test_mass_worked_example():
    rows = Frame("[BOS] {A} [EOS]", tokenizer=FACTS)(text(1, 8), draw(1))
    masked = np.isin(np.arange(10), [3, 4, 5, 6])[None]
    rows = rows.having_all({"masked": masked, "layers/span": masked.astype(np.int32)})
    rows = DecoderAnswer(what="masked", frame="{A}", start="previous", positions="original", tokenizer=FACTS)(rows, draw(1))
    out = Hide()(Corrupt(mask=1.0, random=0, keep=0, tokenizer=FACTS)(rows, draw(1)), draw(1))
    x = dict(enumerate(range(100, 108), 1))
    assert out["tokens"][0].tolist() == [BOS, x[1], x[2], MASK, MASK, MASK, MASK, x[7], x[8], EOS]
    assert out["decoder.tokens"][0].tolist() == [x[2], x[3], x[4], x[5]]
    assert out["decoder.position_ids"][0].tolist() == [2, 3, 4, 5]
    assert out["decoder.targets/main"][0].tolist() == [x[3], x[4], x[5], x[6]]
    assert np.flatnonzero(out["crossing"][0]).tolist() == [0, 1, 2, 7, 8, 9]


def test_mass_fragment_is_half_the_text_at_the_stated_places():
    out = mass(start={"first": 0.2, "last": 0.2})(text(20000, 11), draw(20000))
    number = (~out["crossing"]).sum(1)
    assert (number == 6).all()  # round(11 / 2) to even
    begin = np.argmin(out["crossing"], axis=1)
    share = np.bincount(begin, minlength=8)[1:7] / 20000
    assert np.abs(share - [0.3, 0.1, 0.1, 0.1, 0.1, 0.3]).max() < 0.012


@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_mass_at_its_limits_is_one_token_or_the_whole_text(rate):
    out = mass(rate=rate)(text(30, 12), draw(30))
    assert (out["decoder.length"] == (1 if rate < 0.5 else 12)).all()
    assert out["crossing"][:, 0].all()


@settings(max_examples=20, deadline=None)
@given(n=st.lists(st.integers(2, 50), min_size=1, max_size=6), seed=st.integers(0, 10**6))
def test_mass_input_and_answer_rebuild_the_passage_alone_and_in_a_block(n, seed):
    rows, numbers = text(len(n), n), draw(len(n), seed=seed)
    whole = mass()(rows, numbers)
    for place, size in enumerate(n):
        alone = mass()(rows.take(slice(place, place + 1)), numbers.take(np.array([place])))
        for row in (alone, whole.take(slice(place, place + 1))):
            shown = row["tokens"][0, : size + 2].copy()
            number = int(row["decoder.length"][0])
            shown[row["decoder.position_ids"][0, :number] + 1] = row["decoder.targets/main"][0, :number]
            assert shown.tolist() == [BOS, *range(100, 100 + size), EOS]


def test_an_answer_of_a_companion_is_the_whole_translation():
    rows = text(2, [3, 2]).having_all({
        "translation.tokens": np.array([[7, 8], [9, 0]], np.int32), "translation.length": np.array([2, 1], np.int32)})
    edit = DecoderAnswer(of="translation", frame="{A} [EOS]", tokenizer=FACTS)
    out = edit(rows, draw(2))
    assert out["decoder.tokens"].tolist()[0] == [PAD, 7, 8]
    assert out["decoder.targets/main"][0].tolist() == [7, 8, EOS] and out["decoder.targets/main"][1, :2].tolist() == [9, EOS]
    assert out["decoder.positions/main"].tolist() == [[0, 1, 2], [0, 1, -1]]
    assert edit.for_length(1)(rows, draw(2))["decoder.targets/main"][0].tolist() == [7, EOS]


def test_predict_after_corrupt_and_answer_agree_on_what_was_masked():
    rows = Frame("[BOS] {A} [EOS]", tokenizer=FACTS)(text(10, 20), draw(10))
    rows = Corrupt(tokenizer=FACTS)(Mask(unit="fragment")(rows, draw(10)), draw(10))
    asked = Predict()(rows, draw(10))["targets/main"]
    answer = DecoderAnswer(what="masked", frame="{A}", start="previous", tokenizer=FACTS)(rows, draw(10))
    assert (answer["decoder.targets/main"] == asked).all()


def test_rows_with_a_second_sequence_are_not_packed():
    with pytest.raises(RecipeError, match="packing: false"):
        Exercise([PlacedEdit(DecoderAnswer(tokenizer=FACTS))], 64, packed=True)


def test_edits_change_what_the_decoder_reads_and_not_what_it_is_asked():
    rows = Frame("[BOS] {A} [EOS]", tokenizer=FACTS)(text(20, 12), draw(20))
    corrupt = Corrupt(mask=1.0, random=0.0, keep=0.0, tokenizer=FACTS)
    noise = [PlacedEdit(edit, "decoder") for edit in (Mask(rate=0.5, spare="none"), corrupt)]
    answer = PlacedEdit(DecoderAnswer(tokenizer=FACTS))
    (plain, noisy) = (Exercise([answer, *edits], 64)(rows, draw(20)) for edits in ([], noise))
    hidden = noisy["decoder.tokens"] == MASK
    assert 0.4 < hidden[noisy["decoder.tokens"] != 0].mean() < 0.6
    assert (noisy["decoder.tokens"][~hidden] == plain["decoder.tokens"][~hidden]).all()
    assert (noisy["decoder.targets/main"] == plain["decoder.targets/main"]).all() and (noisy["tokens"] == rows["tokens"]).all()


def test_an_answer_in_another_view_makes_a_second_sequence_of_that_view():
    rows = text(3, 5).having_all({"hole.tokens": np.full((3, 2), 9, np.int32), "hole.length": np.full(3, 2, np.int32)})
    exercise = Exercise([PlacedEdit(DecoderAnswer(tokenizer=FACTS, frame="{A}"), "hole")], 64)
    out = exercise(rows, draw(3))
    assert exercise.second == {"hole.decoder"} and "decoder.tokens" not in out
    assert out["hole.decoder.targets/main"].tolist() == [[9, 9]] * 3
