"""The table of reproductions/recipes.py: a row per recipe, in the order of the finding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest


def test_a_recipe_is_a_row_of_means_in_percent(script: Callable[[str], ModuleType]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("task_files", "ledger"):
            patch.setitem(sys.modules, name, script(name))
        patch.setitem(sys.modules, "recipes", ModuleType("recipes"))  # where dataclasses look for the names of their annotations
        recipes = script("recipes")
    score = {"mean": 0.75, "deviation": 0.125, "number": 3, "runs": [], "constant": 0}
    once = {**score, "deviation": None}
    found = {
        "answer": "gpt2 is best.", "tasks": [{"name": "mood", "constant_answer": 0.5}],
        "systems": [
            {"name": "gpt2", "overall": score, "tasks": {"mood": once}, "held_out": 4.5, "cost": {"seconds": 120.0}},
            {"name": "bert", "overall": None, "tasks": {}, "held_out": None, "cost": None},
        ],
    }  # fmt: skip
    assert list(recipes.tables(found)) == [
        "gpt2 is best.",
        "",
        "| recipe | mean | mood | held-out loss | minutes |",
        "|---|---|---|---|---|",
        "| gpt2 | 75.0 ± 12.5 | 75.0 | 4.50 | 2 |",
        "| bert | – | – | – | – |",
        "| one answer for all | – | 50.0 | – | – |",
    ]
