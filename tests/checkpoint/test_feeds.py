"""Which fields of an entry a batch holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.batching import Cursor
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data
from cloze.corpus.stores.build import build_store_from_texts
from cloze.recipe.load import load_recipe
from cloze.text import Tokenizer


@pytest.mark.parametrize("member", ["takes", "optional"])
def test_a_batch_holds_the_fields_that_an_objective_needs_or_can_use(member: str, begun: Path, tmp_path: Path) -> None:
    trained = load_recipe(begun / "run/cloze/recipe.yaml")
    tokenizer = Tokenizer.load(begun / "run")
    store = build_store_from_texts(["rain falls. a cat sleeps."] * 9, tokenizer, tmp_path / "store")
    step = build_step(trained, vocab_size=tokenizer.size, seed=0)
    (objective,) = step.objectives.values()

    def batch_fields() -> set[str]:
        return set(build_data(trained, {"main": store}, step, tokenizer, seed=0).next("main", Cursor())[0][0].batch)

    assert "segments" not in batch_fields()
    setattr(objective, member, getattr(objective, member) | {"segments"})
    assert "segments" in batch_fields()
