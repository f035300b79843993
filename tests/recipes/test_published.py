"""Every recipe trains what docs/published.yaml says its authors trained, figure by figure, each with a source."""

from __future__ import annotations

from functools import cache

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.recipe.load import folders_of_recipes, load_recipe, pretraining_recipe_names, read_builtin
from tests.site_scripts import pages, published

OURS, figures, stated = published.OURS, published.figures, published.stated
TABLE, SEARCHED = published.published(), published.searched()


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
        placed = [figure for group, values in groups.items() if group not in {"sources", "searched"} for figure in values]
        assert len(placed) == len(set(placed)), name
        assert set(groups) - {"sources", "searched", OURS} <= groups["sources"].keys(), name
        assert all(len(words) > 10 for words in groups["sources"].values()), name


def test_every_line_of_a_search_has_a_date_a_place_and_what_was_not_found() -> None:
    lines = [line for places in SEARCHED.values() for line in places]
    assert [line for line in lines if not published.SEARCHED.fullmatch(line)] == []
    whole = "2026-11-30 openai/gpt-2@9b63575 (README.md, src/model.py), issues 4 and 6: optimizer and rate"
    assert published.SEARCHED.fullmatch(whole)
    for part in (whole[11:], whole.partition(":")[0], whole.replace("@9b63575", ""), "2026-11-30 paper, §2.3 and appendix: rate"):
        assert not published.SEARCHED.fullmatch(part)


@pytest.mark.parametrize("name", folders_of_recipes())
def test_what_a_recipe_says_was_not_published_was_searched(name: str) -> None:
    groups = TABLE.get(name, {})
    told = [*groups.get(OURS, ()), *published.absences(" ".join([read_builtin(name), *groups.get("sources", {}).values()]))]
    assert SEARCHED.get(name) or told == []


@pytest.mark.parametrize("system", pages.recipes_of_systems())
def test_what_a_page_of_a_system_says_was_not_published_was_searched(system: str) -> None:
    told = published.absences((pages.NOTES / f"{system}.md").read_text(encoding="utf-8"))
    assert any(SEARCHED.get(recipe.name) for recipe in pages.recipes_of_systems()[system]) or told == []


def test_a_text_that_says_what_was_not_published_is_known_by_its_words() -> None:
    told = (
        "The rate is our choice.", "No code was published.", "the authors published no training code", "is unpublished",
        "Steps are not published", "the code does not say", "was never\n  released", "lengths are ours", "They are not known",
    )  # fmt: skip
    assert [text for text in told if not published.absences(text)] == []
    silent = ("the rate is published", "the layer has no bias, as in the code", "no code is run", "hours are needed")
    assert [text for text in silent if published.absences(text)] == []


def test_only_recipes_have_searches() -> None:
    assert SEARCHED.keys() <= folders_of_recipes().keys()


def test_every_recipe_that_writes_its_networks_and_the_size_of_its_vocabulary_counts_its_parameters() -> None:
    counted = {name for name, groups in TABLE.items() if "parameters" in stated(groups)}
    recipes = {name: load_recipe(name) for name in pretraining_recipe_names()}
    sized = {name for name, recipe in recipes.items() if any(path.endswith(".size") for path in figures(recipe))}
    written = {name for name, recipe in recipes.items() if any(network.part is not None for network in recipe.networks.values())}
    assert sized & written <= counted


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
    used, searches = {source for _, source in told.values()}, [line for line in sources.splitlines() if "*searched*" in line]
    assert sorted({line.split("*")[1] for line in sources.splitlines()}) == sorted({*used, "searched"})
    assert searches == [f"- *searched*: {line}" for line in SEARCHED["albert-xxlarge"]]
