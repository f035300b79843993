"""Fit recipes of word vectors, published for billions of words, to a small text and a budget of minutes.

The network is a table, and a step changes a few of its rows, so batch and rate need no fit; the rate falls with the share of the
budget spent. Four things depend on text and budget: how often the text is read, which words have a vector, how many occurrences
of frequent words are dropped, and how many buckets n-grams share. reproductions/budgets.md shows the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cloze.budget.facts import BudgetFacts, ChangedValue, as_integer
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import Recipe

PASSES, CELL_PASSES = 50, 20  # passes over windows and over cells beyond which vectors did not improve
SMALL_BYTES, LEAST_COUNT = 50_000_000, 2  # below this size of the text, words with so many occurrences get a vector
SMALL_TOKENS, THRESHOLD = 10_000_000, 1e-4  # below this size of the text, more occurrences of frequent words are dropped
BUCKETS, LEAST_BUCKETS = 0.2, 10_000  # buckets of n-grams per token of the text, and the minimum


def learns_words(recipe: Recipe) -> bool:
    """Whether a recipe makes word vectors by passes over a text. (A factorisation ends when it has converged.)"""
    parts = [network.part for network in recipe.networks.values()]
    tables = all(part is not None and class_of("network", part.name).of_words for part in parts)
    return tables and None not in _learned_from(recipe)


def most_passes(recipe: Recipe) -> int:
    """The passes over a text after which a recipe of word vectors gains nothing."""
    return CELL_PASSES if "cells" in _learned_from(recipe) else PASSES


def least_counts(recipe: Recipe, text_bytes: int) -> Iterator[ChangedValue]:
    """How often a word must occur to have a vector, in a text of that many bytes."""
    if text_bytes >= SMALL_BYTES or "cells" in _learned_from(recipe):
        return
    for name, text in recipe.texts.items():
        published = text.tokenizer.arguments.get("min_count") or 0
        if published > LEAST_COUNT:
            why = f"{text_bytes / 1e6:,.1f} MB of text: rarer words get useful vectors, too"
            yield ChangedValue(f"texts.{name}.tokenizer.min_count", published, LEAST_COUNT, why)


def fit_words(recipe: Recipe, facts: BudgetFacts) -> Iterator[ChangedValue]:
    """The changes that fit a recipe of word vectors to the tokens that a budget pays for."""
    passes = facts.budget_tokens / max(facts.text_tokens, 1)
    most = most_passes(recipe)
    if passes > most:
        why = f"the budget allows {passes:,.0f} passes over the text; the vectors stop improving after {most}"
        yield ChangedValue("training.epochs", as_integer(recipe.training.epochs), most, why)
    for entry in recipe.entries.values():
        for index, edit in enumerate(entry.exercise):
            argument = class_of(edit.part.kind, edit.part.name).thins
            published = edit.part.arguments.get(argument) or 0.0
            if isinstance(published, float) and published > THRESHOLD and facts.text_tokens < SMALL_TOKENS:
                why = "the frequent words of a small text crowd out the others"
                yield ChangedValue(f"exercise[{index}].{argument}", published, THRESHOLD, why)
    for name, network in recipe.networks.items():
        arguments = network.part.arguments if network.part is not None else {}
        hashed = arguments.get("subwords")
        here = max(LEAST_BUCKETS, 10_000 * math.ceil(BUCKETS * facts.text_tokens / 10_000))
        if hashed and here < arguments["buckets"]:
            yield ChangedValue(f"networks.{name}.buckets", arguments["buckets"], here, "the text has no more frequent n-grams")


def _learned_from(recipe: Recipe) -> set[str | None]:
    """What each objective learns vectors of words from; see `Objective.vectors_from`."""
    specs = [objective.part for entry in recipe.step_entries.values() for _, objective in entry.objectives()]
    return {class_of("objective", part.name).vectors_from for part in specs}
