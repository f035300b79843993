"""The tables of reproductions/masks.py: losses by mask, differences paired by seed, and whether a network has learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cloze.recipe.load import load_recipe


@pytest.fixture(scope="module")
def masks(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("masks")


def test_every_variant_and_every_measure_is_a_recipe_of_its_own(masks: ModuleType) -> None:
    for variants in masks.PLAN.values():
        found = [load_recipe("quick", overrides=list(values)).hash for values in variants.values()]
        assert len(set(found)) == len(found) and load_recipe("quick").hash in found
    measured = [load_recipe("quick", overrides=["exercise.mask.unit=token", *values]).hash for values in masks.MASKS.values()]
    assert len(set(measured)) == len(masks.MASKS) == 4


def test_a_table_compares_with_the_first_variant_seed_by_seed_and_says_what_has_not_learned(
    masks: ModuleType, tmp_path: Path
) -> None:
    ledger = masks.Ledger(tmp_path / "masks.jsonl")
    chosen = masks.Choice(tmp_path, tmp_path, tmp_path, "4Mtokens", "cpu", 0, ledger)

    def add(experiment: str, variant: str, seed: int, loss: float) -> None:
        found: dict[str, Any] = {"single": 7.0, "losses": dict.fromkeys(masks.MASKS, loss), "tags": loss / 10, "epochs": 20.0}
        ledger.add(masks.cell(chosen, experiment, variant, seed), found)

    for seed, loss in ((1, 5.0), (2, 5.25)):
        add("epochs", "in every epoch", seed, loss)
        add("epochs", "once", seed, loss + 0.5 + seed / 50)
    (table,) = masks.tables(ledger, "4Mtokens")
    assert table.splitlines()[4:] == [
        "| in every epoch | " + "5.12 ± 0.18 (2) | " * 4 + "51.2 ± 1.8 (2) | 20.0 | yes |",
        "| once | " + "5.65 ± 0.19 (2) | " * 4 + "56.5 ± 1.9 (2) | 20.0 | no (1.21 nats) |",
        "| *once − in every epoch* | " + "**+0.53 ± 0.01 (2)** | " * 4 + "**+5.3 ± 0.1 (2)** |  |  |",
    ]


def test_experiments_share_a_network_with_the_same_masks_on_the_same_text(masks: ModuleType, tmp_path: Path) -> None:
    chosen = masks.Choice(tmp_path, tmp_path, tmp_path, "4Mtokens", "cpu", 0, masks.Ledger(tmp_path / "masks.jsonl"))
    assert masks.cell(chosen, "unit", "tokens", 1) != masks.cell(chosen, "epochs", "in every epoch", 1)
    assert masks.cell(chosen, "rate", "30%", 1) == masks.cell(chosen, "unit", "tokens", 1)
    assert masks.cell(chosen, "unit", "spans", 1) != masks.cell(chosen, "unit", "tokens", 1)
