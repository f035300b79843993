"""The units of `mask`: lengths against their laws, exact counts, rates on many rows, and rows alike in any block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.boundaries import Boundaries
from cloze.exercises.targets.predict import Predict
from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import exactly, keyed
from cloze.rows import Rows

SPANBERT = {"unit": "span", "rounding": "up"}
UNITS = [
    SPANBERT, {"unit": "ngram"}, {"unit": "ngram", "words": False, "lengths": {"1": 0.8, "2": 0.1, "3": 0.1}},
    {"unit": "spaced", "rate": 1 / 6, "rounding": "down", "of": "all"},
    {"unit": "infill", "rate": 0.3, "rounding": "up"}, {"unit": "alternating"},
    {"unit": "fragment", "rate": 0.5}, {"unit": "fragment", "rate": 0.5, "window": 16},
    {"unit": "spaced", "rate": 1 / 6, "rounding": "down", "window": "half"}, {"unit": "token", "rounding": "independent"},
    {"unit": "whole_word", "rounding": "independent"}, {"unit": "partition", "rate": 0.3, "rounding": "stochastic"},
    {"unit": ["token", "phrase", "entity"]},
]


def framed(passages, draw, facts, count=64, **kwargs):
    rows = passages(count, distractor=False, **kwargs)
    g = np.random.default_rng(4)
    shape = rows["tokens"].shape
    for name, share in (("phrase", 0.3), ("entity", 0.1)):
        starts = g.random(shape) < share
        inside = np.pad(starts[:, :-1], ((0, 0), (1, 0))) & ~starts
        rows = rows.having_all({f"layers/{name}": np.where(starts, 1, np.where(inside, 2, 0)).astype(np.uint8)})
    return Frame("[CLS] {A} [SEP]", tokenizer=facts)(rows, draw(count))


def text(count, length):
    tokens = np.broadcast_to(np.arange(5, 5 + length, dtype=np.int32), (count, length))
    return Rows({
        "tokens": tokens, "length": np.full(count, length, np.int32), "word_start": np.ones((count, length), bool),
        "special": np.zeros((count, length), bool),
    })


def test_draws_with_replacement_hide_as_many_tokens_as_electras(draw):
    """google-research/electra pretrain_helpers.py: `num_to_predict` draws of tf.random.categorical, scattered once each."""
    masked = Mask(rate=0.25, rounding="replacement")(text(4000, 64), draw(4000))["masked"]
    counts = masked.sum(1)
    assert counts.mean() == pytest.approx(64 * (1 - (1 - 1 / 64) ** 16), abs=0.05)  # 14.28 of 16
    assert counts.max() == 16 and np.abs(masked.mean(0) - counts.mean() / 64).max() < 0.03
    with pytest.raises(RecipeError, match="does not use rounding: replacement"):
        Mask(unit="whole_word", rounding="replacement")


def test_gpt_bert_cuts_the_row_into_spans_and_masks_them_whole(draw):
    rows = text(4000, 60)
    masked = Mask(unit="partition", rate=0.15, rounding="stochastic")(rows, draw(4000))
    every = Mask(unit="partition", rate=1.0)(rows, draw(4000))
    assert every["masked"].all()
    span, chosen = every["layers/span"], masked["masked"]
    sizes = np.bincount((np.arange(4000)[:, None] * 61 + span).ravel(), minlength=4000 * 61).reshape(4000, 61)
    inside = sizes[sizes > 0]
    assert inside.max() == 3 and np.abs(np.bincount(inside)[1:] / len(inside) - 1 / 3).max() < 0.02  # the last is cut short
    hidden = np.zeros_like(sizes)
    np.add.at(hidden, (np.nonzero(chosen)[0], span[chosen]), 1)
    assert ((hidden == 0) | (hidden == sizes)).all()
    number = chosen.sum(1)
    assert number.min() == 9 and number.max() == 11
    assert np.abs(chosen.mean(0)[3:-3] - chosen.mean()).max() < 0.03


def test_frequent_tokens_alone_are_masked_and_replace_each_other(passages, draw, facts):
    rows = framed(passages, draw, facts)
    frequent = int(np.median(rows["tokens"]))
    masked = Mask(rate=0.3, of="all", frequent=frequent)(rows, draw(64))
    hidden = rows["tokens"][masked["masked"]]
    assert len(hidden) > 100 and hidden.max() < frequent
    eligible = np.count_nonzero((rows["tokens"] < frequent) & ~rows["special"] & framed_text(rows), axis=1)
    wanted = np.maximum(np.rint(0.3 * rows["length"]), 1)
    assert (masked["masked"].sum(1) == np.minimum(wanted, eligible)).all()
    shown = Corrupt(mask=0.0, random=1.0, keep=0.0, frequent=200, tokenizer=facts)(masked, draw(64))
    drawn_ids = shown["tokens"][masked["masked"]]
    assert set(drawn_ids.tolist()) <= set(range(5, 200)) and len(set(drawn_ids.tolist())) > 100
    with pytest.raises(RecipeError, match="corrupt.frequent: 5 leaves no id"):
        Corrupt(frequent=5, tokenizer=facts)(masked, draw(64))


def framed_text(rows):
    return np.arange(rows["tokens"].shape[1]) < rows["length"][:, None]


def test_geometric_lengths_are_those_of_spanbert(draw):
    odds = odds_of({"geometric": {"p": 0.2, "max_length": 10}})
    published = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
    assert np.abs(odds[1:] - published).max() < 5e-5 and odds[0] == 0
    assert abs((odds * np.arange(11)).sum() - 3.797) < 5e-4
    found = np.bincount(drawn(odds, draw(10**5).bits("x")), minlength=11)
    expected = odds * 10**5
    assert ((found - expected)[1:] ** 2 / expected[1:]).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001
    assert found[0] == 0


def test_inverse_lengths_are_those_of_albert_and_xlnet():
    assert np.allclose(odds_of({"inverse": 3}), [0, 6 / 11, 3 / 11, 2 / 11])
    assert np.abs(odds_of({"inverse": {"max_length": 5}})[1:] - [0.438, 0.219, 0.146, 0.1095, 0.0876]).max() < 5e-4


def test_lengths_may_be_listed_and_poisson_ones_may_be_zero():
    assert np.allclose(odds_of({"1": 8, "3": 2}), [0, 0.8, 0, 0.2])
    assert np.allclose(odds_of({1: 0.8, 2: 0.2}), [0, 0.8, 0.2])
    poisson = odds_of({"poisson": 3})
    assert abs(poisson[0] - np.exp(-3)) < 1e-6 and abs((poisson * np.arange(len(poisson))).sum() - 3) < 1e-5


@pytest.mark.parametrize("law", [{"geometric": 0.2}, {"gaussian": 3.0}, {"1": -1.0, "2": 2.0}, {}, {"1": 0.0}])
def test_lengths_that_are_no_law_are_refused(law):
    with pytest.raises(RecipeError, match="lengths"):
        odds_of(law)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"unit": "token", "lengths": {"inverse": 3.0}}, "does not use lengths"),
    ({"unit": "span", "power": 0.5}, "does not use power"), ({"unit": "fragment", "count": 1}, "does not use count"),
    ({"unit": "span", "rounding": "independent"}, "does not use rounding"),
    ({"unit": ["phrase"]}, "names of layers"), ({"count": 0}, "count must be at least 1"),
    ({"unit": "fragment", "start": {"first": 0.8, "last": 0.3}}, "add up to at most 1"),
])
def test_mask_refuses_what_its_unit_would_not_look_at(arguments, message):
    with pytest.raises(RecipeError, match=message):
        Mask(**arguments)


@pytest.mark.parametrize("arguments", UNITS, ids=lambda a: str(a["unit"]))
def test_units_never_choose_a_special_token_and_number_their_spans(passages, draw, facts, arguments):
    rows = framed(passages, draw, facts, 300)
    out = Mask(**arguments)(rows, draw(300))
    inside = np.arange(rows["tokens"].shape[1]) < rows["length"][:, None]
    assert not (out["masked"] & (rows["special"] | ~inside)).any()
    if "layers/span" in out:
        span = out["layers/span"]
        assert ((span > 0) == out["masked"]).all()
        for row in range(300):
            found = span[row][span[row] > 0]
            assert (np.diff(found) >= 0).all() and set(found.tolist()) == set(range(1, found.max(initial=0) + 1))


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("more", [{}, {"window": "half"}, {"spare": "first"}])
@pytest.mark.parametrize("arguments", [{"unit": "token"}, {"unit": "whole_word"}, *UNITS], ids=lambda a: str(a.get("unit", "")))
def test_units_choose_nothing_in_rows_without_columns(draw, facts, arguments, more, count):
    mask = Mask(**{**arguments, **more})
    layers = {f"layers/{name}": np.zeros((count, 0), np.uint8) for name in ("phrase", "entity")}
    out = mask(text(count, 0).having_all(layers), draw(count))
    assert {name: out[name].shape for name in mask.gives} == dict.fromkeys(mask.gives, (count, 0))
    assert out["masked"].dtype == bool
    asked = Predict()(Corrupt(tokenizer=facts)(out, draw(count)), draw(count))
    assert asked["positions/main"].shape == (count, 0)


@pytest.mark.parametrize("arguments", UNITS, ids=lambda a: str(a["unit"]))
@settings(max_examples=10, deadline=None)
@given(chosen=st.integers(0, 19), seed=st.integers(0, 10**6))
def test_units_choose_alike_alone_and_in_a_block(passages, draw, arguments, chosen, seed):
    facts = TokenFacts(1000, {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}, np.arange(5, 1000, dtype=np.int32), lambda text: [])
    rows, numbers = framed(passages, draw, facts, 20, seed=seed % 40), draw(20, seed=seed)
    whole = Mask(**arguments)(rows, numbers)
    size = int(rows["length"][chosen])
    alone = rows.take(slice(chosen, chosen + 1))
    alone = Rows({k: v[:, :size] if v.ndim > 1 and v.shape[1] == rows["tokens"].shape[1] else v for k, v in alone.items()})
    out = Mask(**arguments)(alone, numbers.take(np.array([chosen])))
    assert (out["masked"][0] == whole["masked"][chosen, :size]).all()
    for name in ("layers/span", "layers/insert"):
        assert name not in out or (out[name][0] == whole[name][chosen, :size]).all()


def test_spanbert_spends_its_budget_exactly_and_starts_at_words(passages, draw, facts):
    rows = framed(passages, draw, facts, 2000)
    out = Mask(**SPANBERT)(rows, draw(2000))
    assert (out["masked"].sum(1) == np.ceil(0.15 * (rows["length"] - 2) - 1e-9)).all()
    begins = out["masked"].copy()
    begins[:, 1:] &= ~out["masked"][:, :-1]
    assert rows["word_start"][begins].mean() > 0.999


def test_spanbert_spans_that_touch_are_one(draw):
    out = Mask(**SPANBERT, rate=0.5)(text(500, 60), draw(500))
    span, masked = out["layers/span"], out["masked"]
    together = masked[:, 1:] & masked[:, :-1]
    assert (span[:, 1:] == span[:, :-1])[together].all()


def test_spanbert_masks_every_place_about_equally_often(draw):
    masked = Mask(**SPANBERT, rate=0.15)(text(10**5 // 4, 40), draw(10**5 // 4))["masked"]
    assert abs(masked.mean() - 0.15) < 1e-9
    assert np.abs(masked.mean(0)[5:35] - 0.15).max() < 0.025


def test_corrupt_per_span_draws_once_and_by_frequency(draw, facts):
    rows = Mask(**SPANBERT, rate=0.3)(text(4000, 60), draw(4000))
    counts = np.zeros(1000, np.int64)
    counts[[500, 501]] = [30, 10]
    out = Corrupt(per="span", replacements="frequency", tokenizer=facts, counts=counts)(rows, draw(4000))
    span = rows["layers/span"]
    kind = np.where(out["tokens"] == 4, 1, np.where(out["tokens"] != out["original"], 2, 0))
    together = (span[:, 1:] == span[:, :-1]) & (span[:, 1:] > 0)
    assert (kind[:, 1:] == kind[:, :-1])[together].all()
    begins = (span > 0) & ~np.pad(together, ((0, 0), (1, 0)))
    share = np.bincount(kind[begins], minlength=3) / begins.sum()
    assert np.abs(share - [0.1, 0.8, 0.1]).max() < 0.01
    random = out["tokens"][(kind == 2)]
    assert set(random.tolist()) == {500, 501} and abs((random == 500).mean() - 0.75) < 0.02


def test_corrupt_by_frequency_says_what_is_missing(draw, facts):
    with pytest.raises(RecipeError, match="need the counts"):
        Corrupt(replacements="frequency", tokenizer=facts)(Mask()(text(50, 60), draw(50)), draw(50))


def test_boundaries_ask_for_every_token_of_a_span_from_both_sides(facts, draw):
    rows = Frame("[CLS] {A} [SEP]", tokenizer=facts)(text(1, 10).without("special"), draw(1))
    masked = np.isin(np.arange(12), [1, 4, 5, 6, 9])[None]
    out = Boundaries()(rows.having(masked=masked), draw(1))
    assert out["targets/boundary"].tolist() == [[8, 9, 10, 13]]
    assert out["positions/boundary"].tolist() == [[3, 3, 3, 8]]
    assert out["targets/boundary_right"].tolist() == [[1, 2, 3, 1]]
    assert out["positions/boundary_right"].tolist() == [[7, 7, 7, 10]]
    short = Boundaries(most=2)(rows.having(masked=masked), draw(1))
    assert short["targets/boundary"].tolist() == [[8, 9, 13]]


def test_boundaries_are_never_masked_nor_special(passages, draw, facts):
    rows = Mask(**SPANBERT, rate=0.3)(framed(passages, draw, facts, 500), draw(500))
    out = Boundaries()(rows, draw(500))
    for side in ("", "_right"):
        row, slot = np.nonzero(out[f"positions/boundary{side}"] >= 0)
        column = out[f"positions/boundary{side}"][row, slot]
        assert not rows["masked"][row, column].any() and not rows["special"][row, column].any()


def test_albert_takes_ngrams_by_their_odds_while_there_is_room(draw):
    out = Mask(unit="ngram", rate=0.02, count=1)(text(50000, 50), draw(50000))
    size = out["masked"].sum(1)
    share = np.bincount(size, minlength=4)[1:] / 50000
    one, two, three = 6 / 11, 3 / 11, 2 / 11  # the last two words of a row have shorter n-grams only
    expected = np.array([one + (two + three) / 50, two * 49 / 50 + three / 50, three * 48 / 50])
    assert np.abs(share - expected).max() < 0.01


def test_albert_ngrams_are_whole_words_and_never_exceed_the_number(passages, draw, facts):
    rows = framed(passages, draw, facts, 500)
    out = Mask(unit="ngram")(rows, draw(500))
    number = np.maximum(np.rint(0.15 * (rows["length"] - 2)), 1)
    assert (out["masked"].sum(1) <= number).all()
    inner = ~rows["word_start"][:, 1:] & ~rows["special"][:, 1:] & ~rows["special"][:, :-1]
    assert (out["masked"][:, 1:] == out["masked"][:, :-1])[inner & (np.arange(41) < rows["length"][:, None] - 2)].all()


def test_albert_uses_up_the_number_when_words_are_single_tokens(draw):
    assert (Mask(unit="ngram")(text(500, 100), draw(500))["masked"].sum(1) == 15).all()


def test_ngrams_never_meet(draw):
    span = Mask(unit="ngram", rate=0.4)(text(500, 60), draw(500))["layers/span"]
    for row in range(500):
        assert np.bincount(span[row])[1:].max() <= 3


def test_xlnet_asks_for_exactly_85_of_512(draw):
    out = Mask(unit="spaced", rate=1 / 6, rounding="down", of="all")(text(400, 512), draw(400))
    assert (out["masked"].sum(1) == 85).all()
    halves = Mask(unit="spaced", rate=1 / 6, rounding="down")(text(50, 256), draw(50))["masked"].sum(1)
    assert (halves == 42).all()


def test_xlnet_halves_share_the_85(draw):
    rows = text(200, 512)
    rows = rows.having(special=np.isin(np.arange(512), [400, 510, 511])[None] & np.ones((200, 1), bool))
    masked = Mask(unit="spaced", rate=1 / 6, rounding="down", of="all", window="half")(rows, draw(200))["masked"]
    assert (masked[:, :256].sum(1) == 43).all() and (masked[:, 256:].sum(1) == 42).all()


def test_mass_may_take_one_fragment_of_every_stretch(draw):
    span = Mask(unit="fragment", rate=0.5, window=64)(text(100, 512), draw(100))["layers/span"]
    for place in range(8):
        assert ((span[:, 64 * place: 64 * place + 64] == place + 1).sum(1) == 32).all()


def test_xlnet_spans_have_its_lengths_and_are_spread_over_the_row(draw):
    out = Mask(unit="spaced", rate=1 / 6, rounding="down")(text(2000, 512), draw(2000))
    assert np.abs(out["masked"].mean(0).reshape(8, 64).mean(1) - 85 / 512).max() < 0.03
    sizes = np.concatenate([np.bincount(row)[1:] for row in out["layers/span"][:, :300]])
    share = np.bincount(sizes, minlength=6)[2:6] / (sizes > 1).sum()  # the remainder is filled up with single tokens
    assert np.abs(share - np.array([0.219, 0.146, 0.1095, 0.0876]) / 0.562).max() < 0.02


def test_xlnet_spans_start_at_words_unless_they_fill_up(draw):
    rows = text(300, 512)
    rows = rows.having(word_start=rows["tokens"] % 3 == 0)
    span = Mask(unit="spaced", rate=1 / 6, rounding="down")(rows, draw(300))["layers/span"]
    begins = (np.diff(span, axis=1, prepend=0) > 0) & (span > 0)
    longer = begins[:, :-1] & (span[:, 1:] == span[:, :-1])
    assert longer.sum() > 2000 and rows["word_start"][:, :-1][longer].all()


def test_at_least_one_token_is_masked_where_coins_choose_none(draw):
    rows = text(400, 6)
    coins, some = (Mask(rounding=rounding)(rows, draw(400))["masked"] for rounding in ("independent", "at_least_one"))
    counts = coins.sum(1)
    assert (counts == 0).any() and (counts > 1).any() and (some | ~coins).all()
    assert (some.sum(1) == np.maximum(counts, 1)).all()
    with pytest.raises(RecipeError, match="does not use rounding: at_least_one"):
        Mask(unit="whole_word", rounding="at_least_one")


def test_xlm_masks_each_token_by_a_coin_and_never_the_first(draw):
    masked = Mask(rounding="independent", spare="first")(text(2500, 40), draw(2500))["masked"]
    assert not masked[:, 0].any()
    n = masked[:, 1:].size
    assert abs(masked[:, 1:].mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / n)
    assert masked.sum(1).std() > 1.5


def test_power_masks_rare_tokens_more_often_and_still_exactly_so_many(draw):
    counts = np.ones(1000, np.int64)
    counts[5:25] = 100
    masked = Mask(power=0.5, counts=counts)(text(4000, 40), draw(4000))["masked"]
    assert (masked.sum(1) == 6).all()
    frequent, rare = masked[:, :20].mean(), masked[:, 20:].mean()
    assert 8 < rare / frequent < 11


def test_power_says_that_it_needs_counts(draw):
    with pytest.raises(RecipeError, match="give it counts"):
        Mask(power=0.5)(text(2, 40), draw(2))


def test_units_of_layers_are_masked_whole_and_the_last_layer_holds(draw):
    base = text(1, 8)
    phrase = np.array([[1, 2, 2, 0, 0, 0, 1, 2]], np.uint8)
    entity = np.array([[0, 0, 1, 2, 0, 0, 0, 0]], np.uint8)
    rows = base.having_all({"layers/phrase": phrase, "layers/entity": entity}).take(np.zeros(4000, int))
    edit = Mask(unit=["token", "phrase", "entity"], rounding="independent")
    assert edit.takes >= {"layers/phrase", "layers/entity"}
    masked = edit(rows, draw(4000))["masked"]
    for unit in ([0, 1], [2, 3], [4], [5], [6, 7]):
        assert (masked[:, unit] == masked[:, unit[:1]]).all()
        assert abs(masked[:, unit[0]].mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / 4000)
    assert (masked[:, 0] != masked[:, 2]).any() and (masked[:, 4] != masked[:, 5]).any()


def test_ernie_shows_a_chosen_phrase_token_by_token(draw, facts):
    rows = text(10000, 40)
    rows = rows.having_all({"layers/phrase": np.broadcast_to(np.tile([1, 2], 20), (10000, 40)).astype(np.uint8)})
    rows = Mask(unit=["token", "phrase"], rounding="independent")(rows, draw(10000))
    assert abs(rows["masked"].mean() - 0.15) < 0.003
    out = Corrupt(tokenizer=facts)(rows, draw(10000))
    shown, original = out["tokens"][rows["masked"]], out["original"][rows["masked"]]
    assert abs((shown == 4).mean() - 0.8) < 0.01 and abs((shown == original).mean() - 0.1) < 0.01
    first, second = out["tokens"][:, ::2] == 4, out["tokens"][:, 1::2] == 4
    assert (first != second).any()


def test_alternating_passes_over_special_tokens(draw):
    plain, rows = text(200, 30), text(200, 33)
    rows = rows.having(special=np.isin(np.arange(33), [0, 12, 32])[None] & np.ones((200, 1), bool))
    masked = Mask(unit="alternating")(rows, draw(200))["masked"]
    assert not masked[:, [0, 12, 32]].any()
    assert (np.delete(masked, [0, 12, 32], axis=1) == Mask(unit="alternating")(plain, draw(200))["masked"]).all()


def test_alternating_never_masks_the_first_token(draw):
    masked = Mask(unit="alternating", rate=1.0)(text(20, 6), draw(20))["masked"]
    assert (masked == np.array([False, True, True, True, True, True])).all()


def test_spans_have_the_lengths_of_their_law(draw):
    """The lengths of the stretches that come out, against those of the plainest loop: the last span of a row is cut short."""
    law, number, width = {"2": 0.5, "5": 0.5}, 35, 700
    masked = Mask(unit="span", rounding="up", rate=number / width, lengths=law)(text(1500, width), draw(1500))["masked"]
    g = np.random.default_rng(3)
    plain = np.zeros_like(masked)
    for row in plain:
        while (left := number - row.sum()) > 0:
            anchor, length = g.integers(width), g.choice([2, 5])
            if not row[anchor]:
                row[[c for c in range(anchor, min(anchor + length, width)) if not row[c]][:left]] = True
    found, expected = (np.bincount(stretches(block), minlength=11)[:11] for block in (masked, plain))
    assert (found.sum() > 10000) and np.abs(found / found.sum() - expected / expected.sum()).max() < 0.012
    assert expected[2] > 0.35 * expected.sum() < 2 * expected[5]


def stretches(masked):
    """The lengths of all runs of masked tokens."""
    edges = np.diff(np.pad(masked, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    return np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]


@pytest.mark.parametrize("law", [{"inverse": 2**31}, {"inverse": 0}, {"4000000000": 1.0}])
def test_a_law_of_lengths_that_no_row_could_hold_is_refused(law: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match="expected a number from 1 to 100,000"):
        odds_of(law)  # type: ignore[arg-type]


def test_what_is_chosen_does_not_depend_on_the_width_of_the_block() -> None:
    """Random words that agree in their high bits, or wholly, choose and sort the same in wider blocks."""
    g = np.random.default_rng(1)
    bits = g.integers(0, 1 << 12, (400, 200), dtype=np.uint32) << np.uint32(20)  # many equal words
    free, number = g.random((400, 200)) < 0.9, g.integers(0, 60, 400)
    wide_bits, wide_free = np.pad(bits, ((0, 0), (0, 500))), np.pad(free, ((0, 0), (0, 500)))
    chosen = exactly(number, free, bits)
    assert chosen.sum(1).tolist() == number.tolist() and not (chosen & ~free).any()
    assert np.array_equal(exactly(number, wide_free, wide_bits)[:, :200], chosen)
    order = np.argsort(keyed(free, bits), axis=1)
    assert np.array_equal(np.argsort(keyed(wide_free, wide_bits), axis=1)[:, :200][free.sum(1)[:, None] > np.arange(200)],
                          order[free.sum(1)[:, None] > np.arange(200)])
