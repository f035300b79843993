"""Budgets as text, and the share of them that is spent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import BudgetError
from cloze.training.schedule.budget import Budget, Spent


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("10m", "seconds", 600),
        ("90s", "seconds", 90),
        ("2h", "seconds", 7200),
        ("1.5h", "seconds", 5400),
        ("2000steps", "steps", 2000),
        ("1 step", "steps", 1),
        ("50Mtokens", "tokens", 5e7),
        ("1e18flops", "flops", 1e18),
        ("3epochs", "epochs", 3),
        ("0.5epochs", "epochs", 0.5),
        ("50Mbytes", "bytes", 5e7),
        ("1_000tokens", "tokens", 1000),
        ("2ktokens", "tokens", 2000),
        ("1.5Gtokens", "tokens", 1.5e9),
        ("5min", "seconds", 300),
    ],
)
def test_budgets_are_read(text: str, kind: str, amount: float) -> None:
    assert Budget.parse(text) == Budget(kind, amount)


@pytest.mark.parametrize(
    "text", ["", "ten minutes", "10", "10M", "5parsecs", "0steps", "-3steps", "2.5steps", "1e999tokens", "m"]
)
def test_impossible_budgets_say_what_to_write(text: str) -> None:
    with pytest.raises(BudgetError, match=r"(?i)budget.*(write|expected|examples)"):
        Budget.parse(text)


def test_a_million_without_a_unit_is_told_from_minutes() -> None:
    with pytest.raises(BudgetError, match="10Mtokens"):
        Budget.parse("10M")


@given(st.sampled_from(["steps", "tokens", "seconds", "flops", "epochs", "bytes"]), st.integers(1, 10**15))
def test_a_printed_budget_is_read_back(kind: str, amount: int) -> None:
    budget = Budget(kind, float(amount))
    assert Budget.parse(str(budget)) == budget


def test_the_share_is_what_was_spent_of_the_amount() -> None:
    spent = Spent(steps=50, tokens=1000, seconds=30.0)
    assert Budget.parse("200steps").share(spent) == 0.25
    assert Budget.parse("1ktokens").share(spent) == 1.0
    assert Budget.parse("1m").share(spent) == 0.5
    assert Budget.parse("20steps").share(spent) == 2.5


def test_a_part_of_a_budget_has_whole_steps_and_at_least_one() -> None:
    assert Budget.parse("10steps").part(0.26) == Budget.parse("3steps")
    assert Budget.parse("10steps").part(0.01) == Budget.parse("1steps")
    assert Budget.parse("10epochs").part(0.01) == Budget.parse("0.1epochs")
