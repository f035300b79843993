"""Predicts the held-out loss of a fitted run from its budget of tokens, by laws measured with cloze.

The loss of a network first falls to that of token frequencies, stays there for a while, and then falls further. Let S be the loss
of a unigram table, P that of a bigram table, D the tokens of the budget and N the parameters without tables (in millions). A law
says

    loss = S - (S - floor * P) * (1 - (1 + (D / D0) ** knee) ** (-power / knee)),
    D0 = tokens * N ** -size * exp(ease * (P - 5.3))

so that little is learned below D0 tokens; above it, the rest falls with a power of D. A text that a bigram table predicts well,
as with a small vocabulary, is learned from fewer tokens. If bigrams mean nothing (replaced tokens), S takes the place of P, and
that factor is 1. `benchmarks/laws.py` fits the constants to ledgers of runs and prints the rows of `LAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from cloze.budget.peaks import network_kind
from cloze.checkpoint.build import plain_arguments
from cloze.exercises.edit import Edit, ExerciseKind
from cloze.recipe.builders import build, stand_ins
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EntrySpec, ObjectiveSpec, PartSpec, PassSpec, Recipe
from cloze.registry import lookup
from cloze.training.baselines import Baseline

PAIRS = 5.3  # nats: P of Wikipedia in 8,000 pieces, which most laws were measured on
STARTED = 2.0  # a table that starts from vectors is worth so many times the tokens of a drawn one (reproductions/budgets.md)


class RunKind(NamedTuple):
    """The runs that a law covers: an exercise (`masked`, `causal`, `spans`, `permuted`, `replaced`) and a kind of network (`pre`
    or `post` norms, `offsets` for post norms with heads that begin at offsets, `recurrent`, or `local` if most layers see a few
    tokens to either side)."""

    exercise: str
    network: str


class Law(NamedTuple):
    """The constants of one kind.

    Nine of ten measured runs were within `scatter` nats of the law. `least` and `most` are the smallest and the largest budget of
    those runs in tokens, `runs` is their number and `ledger` matches the names of their files. `ease` is 0 where the texts of the
    runs were too much alike to tell.
    """

    tokens: float
    size: float
    knee: float
    power: float
    floor: float
    scatter: float
    least: float
    most: float
    runs: int
    ledger: str
    ease: float = 0.0

    def loss(self, *, parameters: float, tokens: float, single: float, pairs: float | None) -> float:
        """The loss after `tokens` tokens of a network with `parameters` parameters, not counting its tables."""
        start = self.tokens * (max(parameters, 1.0) / 1e6) ** -self.size
        if pairs is not None:
            start *= math.exp(self.ease * (pairs - PAIRS))
        fallen = 1.0 - (1.0 + (max(tokens, 0.0) / start) ** self.knee) ** (-self.power / self.knee)
        return single - (single - self.floor * (single if pairs is None else pairs)) * fallen


class Expected(NamedTuple):
    """An expected loss, with the range that should contain nine of ten runs. `apart` is the distance to the measured budgets, in
    decades."""

    loss: float
    low: float
    high: float
    apart: float = 0.0

    def __str__(self) -> str:
        beyond = f"; extrapolated {10**self.apart:,.0f} times beyond the measured budgets" if self.apart > _FAR else ""
        return f"{self.loss:.2f} ({self.low:.2f} to {self.high:.2f}{beyond})"


_LEDGERS = "sweep_*.jsonl"  # in benchmarks/results
#: The laws by kind. Printed by `benchmarks/laws.py`; reproductions/budgets.md shows the runs.
LAWS: dict[RunKind, Law] = {
    RunKind("causal", "post"): Law(8.01e04, 0.268, 1.88, 0.153, 0.531, 0.278, 3e05, 3e06, 11, _LEDGERS),
    RunKind("causal", "pre"): Law(1.04e05, 0.111, 1.92, 0.167, 0.499, 0.158, 3e05, 6e06, 10, _LEDGERS, 0.632),
    RunKind("causal", "recurrent"): Law(1.58e05, 0.266, 2.44, 0.138, 0.518, 0.23, 1e05, 1e06, 14, _LEDGERS, 1.61),
    RunKind("causal", "local"): Law(2.66e04, 0.192, 1.98, 0.155, 0.508, 0.289, 3e05, 1e06, 3, _LEDGERS),
    RunKind("masked", "local"): Law(1.56e05, 0.193, 1.99, 0.196, 0.394, 0.23, 4e05, 1.25e07, 18, _LEDGERS, 2.44),
    RunKind("masked", "offsets"): Law(3.72e05, 1.66e-15, 1, 0.176, 0.321, 0.506, 3e05, 6e06, 28, _LEDGERS, 1.77),
    RunKind("masked", "post"): Law(5.3e05, 3.13e-13, 1, 0.1, 0.441, 0.348, 2.01e05, 4e06, 38, _LEDGERS),
    RunKind("masked", "pre"): Law(5.61e05, 1.49e-15, 1.75, 0.232, 0.305, 0.269, 2.04e05, 1e06, 5, _LEDGERS),
    RunKind("permuted", "post"): Law(9.38e05, 0.2, 2, 0.2, 0.4, 0.5, 1e06, 1e06, 1, _LEDGERS),
    RunKind("spans", "post"): Law(1.7e05, 0.224, 1.94, 0.11, 0.365, 0.261, 4e05, 3e06, 7, _LEDGERS),
    RunKind("spans", "pre"): Law(6.92e04, 0.179, 1.9, 0.1, 0.455, 0.231, 3e05, 1e06, 9, _LEDGERS),
}

REPEATED = 15.4  # what all passes after the first are worth at most, in first passes; see `fresh`
_FEW_TOKENS = 16  # a layer that sees at most so many tokens at a time counts as local
_FAR = 0.5  # decades beyond the measured budgets from which a message says so
_LEAST = 0.1  # nats: the minimum distance of both ends of a range


def expected(kind: RunKind, *, parameters: float, tokens: float, single: float, pairs: float | None = None) -> Expected | None:
    """The expected held-out loss; None if no run of such an exercise has been measured.

    For a kind of network that was not measured, another kind with the same exercise is used, with twice the scatter.
    """
    law, times = LAWS.get(kind), 1.0
    if law is None:
        law, times = next((law for measured_kind, law in LAWS.items() if measured_kind.exercise == kind.exercise), None), 2.0
    if law is None:
        return None
    loss = law.loss(parameters=parameters, tokens=tokens, single=single, pairs=pairs)
    apart = max(0.0, math.log10(law.least / max(tokens, 1.0)), math.log10(max(tokens, 1.0) / law.most))
    scatter = max(_LEAST if pairs is not None else _LEAST / 10, law.scatter) * times * (1.0 + apart)
    return Expected(loss, max(loss - scatter, 0.0), min(loss + scatter, single + scatter / 2), apart)


def fresh(tokens: float, text: float) -> float:
    """How many tokens of new text teach as much as `tokens` that are read from a text of `text` tokens, again and again.

    The first passes over a text are worth about as much as new text, the tenth about half of that, and all together at most 16.4
    first passes (Muennighoff et al., 2023, Scaling Data-Constrained Language Models; the constant is that of the
    authors' code, measured on much larger networks).

    >>> [f"{fresh(tokens, 1e6):.3g}" for tokens in (1e6, 4e6, 3e8)]
    ['1e+06', '3.73e+06', '1.64e+07']
    """
    if tokens <= text:
        return tokens
    return text * (1.0 + REPEATED * -math.expm1((1.0 - tokens / text) / REPEATED))


def run_kind_of(recipe: Recipe, entry: EntrySpec, pass_: PassSpec, objective: ObjectiveSpec) -> RunKind | None:
    """The kind of an objective that predicts tokens, or which tokens were replaced; None for any other."""
    part = recipe.networks[pass_.network].part
    if part is None:
        return None
    band = (part.arguments.get("attention") or {}).get("band") or {}
    network = "local" if 0 < band.get("width", 0) <= _FEW_TOKENS else network_kind(part)
    head_kind = class_of("objective", objective.part.name).kind
    if head_kind == "token_labelling":
        rewritten = any(not isinstance(origin, str) for origin in pass_.take.values())
        return RunKind("replaced", network) if rewritten else None
    exercise = exercise_of(recipe, entry, pass_.view) if head_kind == "token_prediction" else None
    return None if exercise is None or _of_other_rows(recipe, entry, pass_.view, objective) else RunKind(exercise, network)


def _of_other_rows(recipe: Recipe, entry: EntrySpec, view: str, objective: ObjectiveSpec) -> bool:
    """Whether rows are mixed and those of another entry than the first have the targets: they are a part of the budget, for
    which no run has been measured."""
    return recipe.mixing == "row" and not any(f"targets/{objective.set}" in edit.gives for edit in _edits(recipe, entry, view))


def exercise_of(recipe: Recipe, entry: EntrySpec, view: str) -> ExerciseKind | None:
    """The kind of exercise of a view: of the order that is drawn for it, else of the first edit that makes targets of tokens."""
    return next((edit.exercise for edit in _edits(recipe, entry, view) if edit.exercise is not None), None)


def _edits(recipe: Recipe, entry: EntrySpec, view: str) -> Iterator[Edit]:
    """The part that draws the order, if one does, and the edits of a view."""
    ordered = [entry.order] if isinstance(entry.order, PartSpec) else []
    tables = {"tables": stand_ins(recipe.tables)}
    for spec in [*ordered, *(edit.part for edit in entry.exercise if edit.view == view)]:
        yield build(lookup(spec.kind, spec.name), plain_arguments(spec.arguments), tables)


def expected_of(kind: RunKind, baseline: Baseline, *, parameters: float, tokens: float) -> Expected | None:
    """`expected`, from the baseline of an objective."""
    return expected(kind, parameters=parameters, tokens=tokens, single=baseline.single, pairs=baseline.pairs)
