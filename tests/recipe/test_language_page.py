"""docs/language.md: its recipe is legal, its snippets are legal parts of one, its Python registers a part that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.document import read_yaml
from cloze.recipe.grammar import KEYS
from cloze.recipe.load import load_recipe
from cloze.registry import arguments_of
from tests.small_recipe import message_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    return [block for marked, block in found if marked == language]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("mine.yaml")
    path.write_text(next(block for block in blocks("yaml") if block.startswith("name:")))
    return path


def test_its_recipe_is_legal(mine: Path) -> None:
    assert check_recipe(load_recipe(mine)).recipe.training.batch == 32


def test_every_snippet_is_strict_yaml_and_sections_extend_the_recipe(mine: Path) -> None:
    whole = mine.read_text()
    for block in blocks("yaml"):
        root = read_yaml(block, "block")
        if root.is_mapping and root.value.keys() <= {"mixing", "mixture", "schedule"}:
            mine.write_text(whole + block)
            check_recipe(load_recipe(mine))
        assert root.is_list or root.value.keys() <= set(KEYS)


def test_the_error_it_shows_is_the_error_one_gets(mine: Path) -> None:
    shown = next(block for block in blocks("") if "ratio" in block)
    mine.write_text(mine.read_text().replace("rate: 0.15", "ratio: 0.15"))
    assert message_of(lambda: load_recipe(mine)) == shown.strip()


def test_its_part_can_be_used(mine: Path) -> None:
    Path("my_parts.py").write_text(blocks("python")[0])
    text = mine.read_text().replace("  - corrupt:", "  - ask_first\n  - corrupt:")
    mine.write_text(text.replace("tie: true", "tie: true, set: first"))
    checked = check_recipe(load_recipe(mine, with_files=["my_parts.py"]))
    assert "targets/first" in checked.batch["main"]


def test_its_table_of_training_names_every_key() -> None:
    from cloze.recipe.recipe import TrainingSpec

    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for key in arguments_of(TrainingSpec))
    assert all(f"`{key}`" in text for key in KEYS)


def test_its_objective_can_be_used_and_its_loss_is_a_sum(mine: Path) -> None:
    import torch

    from cloze.registry import lookup

    Path("my_objective.py").write_text(blocks("python")[1])
    mine.write_text(mine.read_text().replace("objectives:\n", "objectives:\n  - row_length: {scale: 0.5}\n"))
    checked = check_recipe(load_recipe(mine, with_files=["my_objective.py"]))
    assert checked.heads["row_length"] == 256 + 1
    objective = lookup("objective", "row_length")(width=4, scale=0.5)
    torch.nn.init.zeros_(objective.head.weight)
    torch.nn.init.zeros_(objective.head.bias)
    batch = {"tokens": torch.ones(2, 4, dtype=torch.long), "block": torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])}
    loss = objective.loss(objective.scores({"hidden": torch.ones(2, 4, 4)}, batch), batch)
    assert objective.count(batch) == 2
    assert loss.total == 0.5 * (0.75**2 + 0.25**2)
    del batch["block"]  # no row has padding
    assert objective.loss(objective.scores({"hidden": torch.ones(2, 4, 4)}, batch), batch).total == 0.5 * 2
    mine.write_text(mine.read_text().replace("scale: 0.5", "scale: -1"))
    assert "row_length.scale: got -1, expected a number above 0." in message_of(lambda: load_recipe(mine))
