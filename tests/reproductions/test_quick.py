"""The variants of reproductions/quick.py, and its table: differences at equal tokens, and at equal seconds along a curve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cloze.checkpoint.build import build_step
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe


@pytest.fixture(scope="module")
def quick(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("quick")


def test_every_variant_is_a_recipe_of_its_own_and_is_asked_as_quick_is(quick: ModuleType, tmp_path: Path) -> None:
    base = load_recipe("quick", size="tiny").canonical()
    hashes, path = [], tmp_path / "variant.yaml"
    for values in quick.PLAN.values():
        parameters, exercises = [], []
        for made in (quick.changed(base, values), quick.asked(base, values)):
            path.write_text(to_yaml(made), encoding="utf-8")
            recipe = load_recipe(path)
            parameters.append({name for name, _ in build_step(recipe, vocab_size=100, seed=1).named_parameters()})
            exercises.append(made.get("exercise"))
            hashes.append(recipe.hash)
        assert parameters[0] == parameters[1]  # what was trained can be asked
        assert exercises[1][1:3] == base["exercise"][1:3]
    assert len(set(hashes[::2])) == len(quick.PLAN)


def test_the_table_compares_seed_by_seed_at_equal_tokens_and_with_the_curve_at_equal_seconds(
    quick: ModuleType, tmp_path: Path
) -> None:
    ledger = quick.Ledger(tmp_path / "quick.jsonl")

    def add(variant: str, times: float, loss: float, seconds: float) -> None:
        for seed in (1, 2):
            found: dict[str, Any] = {"loss": loss + seed / 10, "cpu": seconds, "single": 7.0, "updates": 1}
            ledger.add(quick.cell(variant, round(quick.TOKENS * times), seed), found)

    add("quick", 1.0, 5.0, 40.0)
    add("quick", 1.5, 4.0, 80.0)
    add("Muon, the same peak", 1.0, 4.25, 56.57)  # half way in the logarithm: `quick` would have 4.5 then
    lines = list(quick.table(ledger))
    assert lines[2] == "| quick | 5.15 ± 0.07 (2) | 40 |  |  |"
    assert lines[3] == "| Muon, the same peak | 4.40 ± 0.07 (2) | 57 | **-0.75 ± 0.00 (2)** | -0.25 |"
    assert lines[-2:] == ["`quick` alone: 40 s 5.15; 80 s 4.15.", "Single tokens: 7.00."]


def test_beyond_the_curve_the_last_slope_goes_on(quick: ModuleType) -> None:
    curve = [(10.0, 6.0), (20.0, 5.0), (40.0, 4.5)]
    assert [round(quick.at(curve, seconds), 3) for seconds in (10, 20, 40, 80, 5)] == [6.0, 5.0, 4.5, 4.0, 7.0]
