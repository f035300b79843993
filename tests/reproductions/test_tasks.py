"""reproductions/tasks.py: the values of every task are those of its recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from cloze.recipe.load import load_recipe


def test_the_values_of_every_task_and_of_every_model_are_known_to_their_recipes(script: Callable[[str], ModuleType]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("task_files", "ledger"):
            patch.setitem(sys.modules, name, script(name))
        patch.setitem(sys.modules, "tasks", ModuleType("tasks"))  # where dataclasses look for the names of their annotations
        tasks = script("tasks")
    for case in tasks.CASES.values():
        load_recipe(case.task, overrides=case.values)
    for model in tasks.MODELS.values():
        load_recipe(model.recipe, size=model.size, overrides=model.values)
