"""The first neural language model at its authors' size, and its decay."""

from __future__ import annotations

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.recipe.load import load_recipe


def test_the_sizes_are_those_of_the_larger_corpus() -> None:
    """|V| (1 + nm + h) + h (1 + (n - 1) m) parameters (Bengio et al., 2003, §2), n = 6, h = 60, m = 100, |V| = 17,964 (§4)."""
    words, n, h, m = 17_964, 6, 60, 100
    found = check_recipe(load_recipe("nnlm"))
    counted = sum(found.networks.values()) + sum(found.heads.values())
    assert counted == words * (1 + n * m + h) + h * (1 + (n - 1) * m) == 11_904_264


def test_decay_by_the_row_is_that_of_its_words() -> None:
    """θ falls by rate · 1e-5 for every word of the paper; a step here is a row of 256 words."""
    recipe = load_recipe("nnlm")
    assert recipe.sources["main"].arguments["length"] == 256
    assert recipe.training.batch == 1 and recipe.training.divide == "nothing"
    assert recipe.training.optimizer.arguments["weight_decay"] == pytest.approx(256 * 1e-5)
