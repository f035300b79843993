"""The loss that a budget of tokens should end with."""

from __future__ import annotations

import math

import pytest

from cloze.budget import expected as laws
from cloze.budget.expected import Expected, Law, RunKind, expected, run_kind_of
from cloze.recipe.load import load_recipe

LAW = Law(1e6, 0.25, 2.0, 0.2, 0.4, scatter=0.2, least=1e6, most=1e8, runs=9, ledger="none")
KNOWN = {"single": 7.0, "pairs": 5.0}


@pytest.fixture
def one_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "LAWS", {RunKind("masked", "post"): LAW})


def test_a_law_begins_at_single_tokens_falls_with_tokens_and_parameters_and_ends_at_its_floor() -> None:
    losses = [LAW.loss(parameters=1e6, tokens=tokens, **KNOWN) for tokens in (0, 1e5, 1e6, 1e7, 1e8)]
    assert losses[0] == 7.0 and losses[1] > 6.99 and losses == sorted(losses, reverse=True)
    assert losses[2] == pytest.approx(7.0 - 5.0 * (1 - 2**-0.1))
    assert LAW.loss(parameters=1e6, tokens=1e60, **KNOWN) == pytest.approx(0.4 * 5.0, abs=1e-6)
    assert LAW.loss(parameters=16e6, tokens=1e6, **KNOWN) == LAW.loss(parameters=1e6, tokens=2e6, **KNOWN)


def test_a_text_whose_pairs_are_easy_is_learned_from_fewer_tokens() -> None:
    law = LAW._replace(ease=2.0)
    usual = law.loss(parameters=1e6, tokens=1e6, single=7.0, pairs=laws.PAIRS)
    assert usual == LAW.loss(parameters=1e6, tokens=1e6, single=7.0, pairs=laws.PAIRS)
    easy = {"parameters": 1e6, "single": 7.0, "pairs": laws.PAIRS - 1.0}
    assert law.loss(tokens=1e6, **easy) == pytest.approx(LAW.loss(tokens=1e6 * math.exp(2.0), **easy))
    constant = law.loss(parameters=1e6, tokens=1e6, single=0.4, pairs=None)  # replaced tokens have no pairs
    assert constant == LAW.loss(parameters=1e6, tokens=1e6, single=0.4, pairs=None)


def test_the_range_is_the_scatter_of_the_runs_and_wider_beyond_their_budgets(one_law: None) -> None:
    def width(tokens: float) -> float:
        told = expected(RunKind("masked", "post"), parameters=1e6, tokens=tokens, **KNOWN)
        assert told is not None and told.low < told.loss < told.high
        return told.loss - told.low

    assert width(1e7) == pytest.approx(0.2) and width(1e9) == pytest.approx(0.4)
    assert str(Expected(5.0, 4.8, 5.2, 1.0)) == "5.00 (4.80 to 5.20; extrapolated 10 times beyond the measured budgets)"


def test_a_network_that_was_not_measured_has_twice_the_range_and_an_exercise_that_was_not_has_none(one_law: None) -> None:
    near = expected(RunKind("masked", "recurrent"), parameters=1e6, tokens=1e7, **KNOWN)
    assert near is not None and near.loss - near.low == pytest.approx(0.4)
    assert expected(RunKind("causal", "post"), parameters=1e6, tokens=1e7, **KNOWN) is None


@pytest.mark.parametrize(
    ("recipe", "kinds"),
    [
        ("bert", [("masked", "post"), None]),
        ("modern", [("masked", "pre")]),
        ("context2vec", [None]),
        ("gpt2", [("causal", "pre")]),
        ("t5-small", [("spans", "pre")]),
        ("bart-base", [("spans", "post")]),
        ("xlnet-base", [("permuted", "post")]),
        ("electra-small", [("masked", "post"), ("replaced", "post")]),
        ("awd-lstm", [("causal", "recurrent"), None, None]),
        ("elmo", [("causal", "recurrent")]),
        ("gpt-bert", [("masked", "pre"), None]),  # one row in sixteen is causal
    ],
)
def test_objectives_are_told_apart_by_exercise_and_network(recipe: str, kinds: list[tuple[str, str] | None]) -> None:
    loaded = load_recipe(recipe)
    entries = loaded.step_entries.values()
    found = [run_kind_of(loaded, entry, run, objective) for entry in entries for run, objective in entry.objectives()]
    assert found[: len(kinds)] == kinds


def test_the_laws_in_use_come_from_runs_and_say_what_is_learned() -> None:
    assert laws.LAWS
    for kind, law in laws.LAWS.items():
        assert law.runs >= 1 and 0 < law.least <= law.most and law.ledger, kind
        known = {"single": 0.4, "pairs": None} if kind.exercise == "replaced" else {"single": 7.0, "pairs": 5.3}
        first, last = (law.loss(parameters=1e6, tokens=tokens, **known) for tokens in (1e4, 1e9))  # type: ignore[arg-type]
        assert last < first <= known["single"], kind  # type: ignore[operator]
