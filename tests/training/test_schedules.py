"""Slanted triangles, plateaus, and weights that decay: the published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import RecipeError
from cloze.training.schedule.rates import Linear, Plateau, SlantedTriangular, follows_losses, observe_losses
from cloze.training.schedule.schedules import CubicChange, ExponentialChange, LinearChange

SIATL = ExponentialChange(math.exp(-1.6), math.exp(-2.3), stairs=15)


def test_the_slanted_triangle_has_its_published_values() -> None:
    rate = SlantedTriangular(0.01)
    values = {0: 3.125e-4, 50: 5.15625e-3, 100: 0.01, 550: 5.15625e-3, 1000: 3.125e-4}
    for step, value in values.items():
        assert rate(step / 1000) == pytest.approx(value, rel=1e-9)


@given(st.integers(1, 300), st.floats(0.01, 0.9))
def test_the_slanted_triangle_is_never_below_its_start_whatever_the_steps(steps: int, cut: float) -> None:
    """As printed it is -1.18e-4 at step 104 of 105, and divides by zero below 1 / cut steps."""
    rate = SlantedTriangular(0.01, cut=cut)
    assert all(0.01 / 32 - 1e-12 <= rate(step / steps) <= 0.01 + 1e-12 for step in range(steps + 1))


def test_siatls_weight_of_the_language_model_has_its_published_values() -> None:
    gamma = [SIATL(epoch / 15) for epoch in range(16)]
    assert gamma[:5] == pytest.approx([0.201897, 0.192050, 0.182684, 0.173774, 0.165299], abs=1e-6)
    assert (gamma[7], gamma[14]) == pytest.approx((0.142274, 0.100259), abs=1e-6)
    assert gamma[15] == gamma[14]
    assert all(b / a == pytest.approx(0.951229, abs=1e-6) for a, b in zip(gamma[:14], gamma[1:15], strict=True))


def test_a_level_holds_until_the_next_stair() -> None:
    assert SIATL(0.0) == SIATL(0.066) != SIATL(0.067)
    linear = LinearChange(1.0, 0.0, until=0.5, stairs=3)
    assert [linear(share) for share in (0.0, 0.16, 0.17, 0.34, 0.9)] == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_without_stairs_a_schedule_is_smooth() -> None:
    assert ExponentialChange(1.0, 0.01)(0.5) == pytest.approx(0.1)
    assert LinearChange(0.0, 2.0)(0.25) == 0.5
    cubic = CubicChange(0.1, 0.9, until=0.8)
    assert [cubic(share) for share in (0.0, 0.4, 0.8, 1.0)] == pytest.approx([0.1, 0.9 - 0.8 / 8, 0.9, 0.9])
    assert CubicChange(0.0, 1.0, stairs=3)(0.5) == 1 - 0.5**3


@pytest.mark.parametrize("wrong", [(ExponentialChange, {}), (LinearChange, {"until": 0.0}), (LinearChange, {"stairs": 0})])
def test_a_schedule_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(RecipeError, match="schedule"):
        wrong[0](0.2, 0.0, **wrong[1])


def test_a_plateau_drops_when_nothing_got_better_and_counts_anew() -> None:
    rate = Plateau(1.0, factor=0.5, patience=1)
    rates = []
    losses = [3.0, 2.0, 2.0, 2.1, 1.9, 1.95, 1.92, 1.91, 1.9]
    for number in range(len(losses)):
        rate.observe(losses[: number + 1])
        rates.append(rate(0.5))
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_a_plateau_against_the_last_loss_drops_after_one_above_it_and_not_above_the_best() -> None:
    losses = [3.0, 2.0, 2.5, 2.4, 2.3, 2.6]
    rates = {"best": [1.0, 1.0, 0.5, 0.25, 0.125, 0.0625], "last": [1.0, 1.0, 0.5, 0.5, 0.5, 0.25]}
    for against, expected in rates.items():
        rate = Plateau(1.0, factor=0.5, against=against)  # type: ignore[arg-type]
        found = []
        for number in range(len(losses)):
            rate.observe(losses[: number + 1])
            found.append(rate(0.5))
        assert found == expected


def test_a_plateau_that_is_told_everything_at_once_has_the_same_rate() -> None:
    rate = Plateau(1.0, factor=0.5)
    rate.observe([2.0, 2.0, 2.0])
    assert rate(0.9) == 0.25
    floor = Plateau(1.0, factor=0.1, floor=0.05)
    floor.observe([1.0, 1.0, 1.0])
    assert floor(0.2) == 0.05


def test_a_rate_listens_when_it_has_the_method_to_hear() -> None:
    class Halving:
        level = 1.0

        def observe(self, losses: Sequence[float]) -> None:
            self.level = 0.5 ** len(losses)

        def __call__(self, share: float, nominal_steps: int | None = None) -> float:
            return self.level

    rate = Halving()
    observe_losses(rate, [3.0, 2.0])
    assert rate(0.5) == 0.25

    def built(level: float) -> Plateau:
        return Plateau(level)

    assert [follows_losses(one) for one in (Halving, Plateau, built)] == [True] * 3
    assert not any(follows_losses(one) for one in (Linear, Linear(1.0)))
