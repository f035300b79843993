"""Every recipe trains what docs/published.yaml says its authors trained, figure by figure, each with a source."""

from __future__ import annotations

from functools import cache

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.recipe.load import load_recipe, pretraining_recipe_names
from tests.site_scripts import pages, published

OURS, figures, stated = published.OURS, published.figures, published.stated
TABLE = published.published()


@cache
def parameters(name: str) -> int:
    """Everything that the recipe trains, counted on torch's meta device; what networks share counts once."""
    return check_recipe(load_recipe(name)).parameters


def test_the_table_has_every_recipe_and_no_other() -> None:
    assert sorted(TABLE) == pretraining_recipe_names()


@pytest.mark.parametrize("name", TABLE)
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
    sized = {
        name for name in pretraining_recipe_names() if any(path.endswith(".size") for path in figures(load_recipe(name)))
    }
    assert sized <= counted


def test_a_figure_that_a_recipe_changes_is_found_out() -> None:
    changed = figures(load_recipe("bert", overrides=["training.rate.linear.peak=2e-4"]))
    told = {figure: value for figure, (value, _) in stated(TABLE["bert"]).items() if figure != "parameters"}
    assert {path for path in told if told[path] != changed[path]} == {"training.rate.linear.peak"}


def test_the_table_for_readers_tells_units_turns_and_what_is_ours() -> None:
    rows = {line.partition("](")[0].removeprefix("| ["): line for line in pages.figures_table().splitlines()[2:]}
    assert sorted(rows) == pretraining_recipe_names()
    assert rows["mbert"] == (
        "| [mbert](family/mbert.md) | 178,566,653 | 119,547 | *1,000,000 steps* | *256* | *128* → *512* | *1e-4* | "
        "*10,000 steps* | 0.1 | 15 % |"
    )
    assert rows["gpt-bert"].endswith("| 32,768 → 16,384 → 8,192 | 128 → 256 → 512 | 0.01 | 1.6 % | 0.1 | 30 % → 15 % |")


def test_a_page_tells_every_figure_of_its_recipe_and_every_source() -> None:
    table, _, sources = pages.system_figures(TABLE["albert-xxlarge"]).partition("\n\n")
    told = stated(TABLE["albert-xxlarge"])
    assert len(table.splitlines()) == len(told) + 2
    assert "| `training.optimizer.lamb.betas` | 0.9, 0.999 | code |" in table and "| `transformer.dropout` | 0 | issue |" in table
    assert sorted(line.split("*")[1] for line in sources.splitlines()) == sorted({source for _, source in told.values()})
