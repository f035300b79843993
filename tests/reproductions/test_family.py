"""The variants of reproductions/family.py: each is a recipe that can be read and built, and each is fitted to the budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cloze.assembly.load import load_recipe
from cloze.corpus.store import Store


@pytest.fixture(scope="module")
def family(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("family")


def test_every_variant_is_a_recipe_of_its_own_that_is_fitted_to_the_budget(
    family: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "open", lambda path: type("Opened", (), {"tokens": range(20_000_000)})())
    chosen = family.Choice(tmp_path, tmp_path, tmp_path, "3Mtokens", "cpu", 6, family.Ledger(tmp_path / "family.jsonl"))
    for experiment, variants in family.experiments().items():
        hashes, batches = set(), set()
        for name, variant in variants.items():
            recipe = family.recipe_of(variant, tmp_path, f"{experiment}-{name}")
            values = family.fitted(recipe, variant.set, chosen)
            made = load_recipe(recipe, size="tiny", overrides=[*variant.set, *values])
            hashes.add(made.hash)
            if not isinstance(recipe, str):
                batches.add(made.training.batch)
        assert len(hashes) == len(variants) > 1
        assert batches <= {24}  # 1,640 tokens an update in rows of 64
