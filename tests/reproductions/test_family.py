"""The variants of reproductions/family.py: each is a recipe that can be read and built, and each is fitted to the budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cloze.runs.planning import fitted_recipe


@pytest.fixture(scope="module")
def family(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("family")


def test_every_variant_is_a_recipe_of_its_own_that_is_fitted_to_the_budget(family: ModuleType, tmp_path: Path) -> None:
    for experiment, variants in family.experiments().items():
        hashes, batches = set(), set()
        for name, variant in variants.items():
            recipe = family.recipe_of(variant, tmp_path, f"{experiment}-{name}")
            made, _ = fitted_recipe(recipe, "3Mtokens", size="tiny", overrides=variant.set, fit=True)
            hashes.add(made.recipe.hash)
            if not isinstance(recipe, str):
                batches.add(made.recipe.training.batch)
        assert len(hashes) == len(variants) > 1
        assert batches <= {24}  # 1,640 tokens an update in rows of 64
