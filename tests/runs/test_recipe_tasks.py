"""The task of a recipe, by which its checkpoints are selected."""

from __future__ import annotations

from typing import Any

import pytest

from cloze.recipe.load import load_recipe
from cloze.runs.recipe_tasks import answer_sets, task_of_recipe


@pytest.mark.parametrize("name", ["sentence_classification", "regression", "multi_label", "multiple_choice", "text_to_text"])
def test_the_task_of_a_recipe_reads_the_column_of_answers_that_the_recipe_names(name: str) -> None:
    recipe = load_recipe(name, overrides=["corpus.label=score"])
    task: Any = task_of_recipe(recipe)
    assert task.description()["columns"]["label"] == "score"


def test_answers_that_no_column_holds_have_no_column() -> None:
    task: Any = task_of_recipe(load_recipe("retrieval"))
    assert "label" not in task.description()["columns"]


@pytest.mark.parametrize(("name", "sets"), [
    ("sentence_classification", {"label"}), ("regression", {"label"}), ("multi_label", {"label"}),
    ("dependency_parsing", {"label"}), ("retrieval", set()),
])  # fmt: skip
def test_the_sets_of_answers_are_those_of_the_edits_that_make_targets_of_them(name: str, sets: set[str]) -> None:
    recipe = load_recipe(name)
    assert answer_sets(recipe, next(iter(recipe.entries.values()))) == sets
