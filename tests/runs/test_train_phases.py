"""Phases that set what is trained: the embeddings first, then everything (two-phase continuation with new words)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cloze.recipe.load import load_recipe
from cloze.recipe.origins import never_trained
from cloze.runs.phasing import unfreezing
from cloze.runs.run import pretrain
from cloze.training.tensors import read_tensors
from tests.small_recipe import MINE, Write

TRAINING = "training:\n  optimizer: adamw"
SMALL = ("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4")


def schedule(*phases: str) -> tuple[str, str]:
    return TRAINING, "schedule: [" + ", ".join(phases) + "]\n" + TRAINING


TWO = schedule("{share: 0.5, set: {network.train: [embeddings]}}", "{share: 0.5}")


def test_the_first_phase_trains_the_embeddings_and_the_heads_and_the_second_everything(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    pretrain(
        write(*SMALL, TWO), corpus=little_text, out=tmp_path / "run", budget="4steps", report=lambda text: None,
        overrides=["training.keep_steps=[0, 2]", "training.checkpoint_every=2"],
    )
    folder = tmp_path / "run" / "cloze" / "checkpoints"
    at = [read_tensors(folder / f"step-{n:08d}" / "state" / "parameters.safetensors") for n in (0, 2, 4)]
    layers = [name for name in at[0] if ".layers." in name and at[0][name].dim() == 2]
    moved = [{name for name in a if not torch.equal(a[name], b[name])} for a, b in zip(at, at[1:], strict=False)]
    assert len(layers) >= 6 and "networks.main.embeddings.tokens.weight" in moved[0] & moved[1]
    assert not any(".layers." in name for name in moved[0]) and set(layers) <= moved[1]
    assert any(name.startswith("objectives.") for name in moved[0])


@pytest.mark.parametrize("path", ["network.train", "networks.main.train"])
def test_what_is_trained_follows_the_share_of_the_budget(write: Write, path: str) -> None:
    recipe = load_recipe(write(schedule(f"{{share: 0.25, set: {{{path}: [-1]}}}}", "{share: 0.75}")))
    way = unfreezing(recipe, "main")
    groups = [way.trainable(3, epochs=0.0, share=share) for share in (0.0, 0.24, 0.25, 1.0)]
    assert groups == [{2, 3}, {2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}]


def test_a_network_that_is_frozen_in_one_phase_only_counts_as_trained(write: Write) -> None:
    frozen = load_recipe(write(("heads: 2}}", "heads: 2}, train: none}")))
    assert never_trained(frozen, "main")
    thawed = write(("heads: 2}}", "heads: 2}, train: none}"), schedule("{share: 0.5}", "{share: 0.5, set: {network.train: all}}"))
    assert not never_trained(load_recipe(thawed), "main")


def test_a_phase_refuses_a_depth_group_that_is_none(write: Write) -> None:
    from cloze.errors import RecipeError

    path = write(schedule("{share: 0.5, set: {network.train: [embedings]}}", "{share: 0.5}"), text=MINE)
    with pytest.raises(RecipeError, match="embedings"):
        unfreezing(load_recipe(path), "main").trainable(3, epochs=0.0, share=0.0)
