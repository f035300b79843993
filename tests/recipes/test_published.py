"""Every recipe trains what docs/published.yaml says its authors trained, figure by figure, each with a source."""

from __future__ import annotations

from functools import cache

import pytest

from cloze.assembly.check import check_recipe
from cloze.assembly.load import load_recipe, recipe_names
from cloze.assembly.published import OURS, figures, published, stated

TABLE = published()


@cache
def parameters(name: str) -> int:
    """Everything that the recipe trains, counted on torch's meta device."""
    found = check_recipe(load_recipe(name))
    return sum(found.networks.values()) + sum(found.heads.values())


def test_the_table_has_every_recipe_and_no_other() -> None:
    assert sorted(TABLE) == recipe_names()


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_has_the_figures_of_the_table_and_no_figure_is_missing_from_it(name: str) -> None:
    told = {figure: value for figure, (value, _) in stated(TABLE[name]).items()}
    parts = told.pop("parameters", None)
    assert told == figures(load_recipe(name))
    assert parts is None or parts == parameters(name)


def test_every_figure_has_one_source_that_is_named() -> None:
    for name, groups in TABLE.items():
        placed = [figure for group, values in groups.items() if group != "sources" for figure in values]
        assert len(placed) == len(set(placed)), name
        assert set(groups) - {"sources", OURS} <= groups["sources"].keys(), name
        assert all(len(words) > 10 for words in groups["sources"].values()), name


def test_every_recipe_that_has_a_vocabulary_of_known_size_counts_its_parameters() -> None:
    counted = {name for name, groups in TABLE.items() if "parameters" in stated(groups)}
    sized = {name for name in recipe_names() if any(path.endswith(".size") for path in figures(load_recipe(name)))}
    assert sized <= counted


def test_a_figure_that_a_recipe_changes_is_found_out() -> None:
    changed = figures(load_recipe("bert", overrides=["training.rate.linear.peak=2e-4"]))
    told = {figure: value for figure, (value, _) in stated(TABLE["bert"]).items() if figure != "parameters"}
    assert {path for path in told if told[path] != changed[path]} == {"training.rate.linear.peak"}
