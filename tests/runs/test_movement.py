"""`train:` and `layerwise_rates:` in a recipe: who moves when, and how fast, while pre-training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.recipe.load import load_recipe, recipe_from_data
from cloze.runs.run import pretrain
from cloze.training.tensors import read_tensors
from tests.small_recipe import Write, message_of

Replaced = Callable[..., Path]
NETWORK = "{transformer: {layers: 2, width: 64, heads: 2}}"
SMALL = ("{size: 8000}", "{size: 300}"), ("length: 128", "length: 32"), ("batch: 32", "batch: 4")


def changed(write: Write, little_text: Path, out: Path, network: str, *more: tuple[str, str]) -> dict[str, float]:
    """How far every tensor has moved after eight steps, by its name in the run's state."""
    recipe = write((NETWORK, network), *SMALL, *more)
    pretrain(recipe, corpus=little_text, out=out, budget="8steps", seed=1, overrides=["training.keep_steps=[0]"],
             report=lambda text: None)
    first, last = (
        read_tensors(out / "cloze" / "checkpoints" / f"step-{step:08d}" / "state" / "parameters.safetensors") for step in (0, 8)
    )
    return {name: float((last[name] - tensor).norm() / tensor.norm().clamp(min=1e-6)) for name, tensor in first.items()}


def test_depth_groups_that_are_not_named_keep_every_bit(write: Write, little_text: Path, tmp_path: Path) -> None:
    moved = changed(write, little_text, tmp_path / "run", NETWORK[:-1] + ", train: [1]}")
    for name, distance in moved.items():
        moves = name.startswith(("networks.main.layers.1.", "objectives."))
        assert (distance > 0) == moves, name


def test_gradual_unfreezing_by_shares_of_the_budget_reaches_the_embeddings_last(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    moved = changed(write, little_text, tmp_path / "run", NETWORK[:-1] + ", train: {gradual: {every: 0.3, of: budget}}}")
    layer = {n: moved[f"networks.main.layers.{n}.inner.weight"] for n in (0, 1)}
    assert layer[1] > layer[0] > 0
    assert moved["networks.main.embeddings.tokens.weight"] < layer[0]


def test_rates_by_depth_hold_the_lower_layers_back(write: Write, little_text: Path, tmp_path: Path) -> None:
    rates = ("  batch:", "  layerwise_rates: {factors: {each: [0.0, 0.01, 1.0], heads: 1.0}}\n  batch:")
    moved = changed(write, little_text, tmp_path / "run", NETWORK, rates)
    assert moved["networks.main.embeddings.tokens.weight"] == 0.0
    low, high = (moved[f"networks.main.layers.{n}.inner.weight"] for n in (0, 1))
    assert 0 < low < 0.05 * high


def test_the_canonical_form_keeps_them(write: Write) -> None:
    recipe = load_recipe(write((NETWORK, NETWORK[:-1] + ", train: {sequential: {layers: 2}}}"),
                               ("  batch:", "  layerwise_rates: {divide: 2.6}\n  batch:")))
    again = recipe_from_data(recipe.canonical())
    assert again.networks == recipe.networks and again.training == recipe.training and again.hash == recipe.hash


@pytest.mark.parametrize(
    ("train", "told"),
    [("{gradul: {}}", "Did you mean 'gradual'?"), ("{gradual: {every: 0}}", "got 0, expected a number above 0."),
     ("{gradual: {evry: 1}}", 'unknown argument "evry"')],
)
def test_a_way_to_unfreeze_that_makes_no_sense_is_told(write: Write, train: str, told: str) -> None:
    from cloze.checkpoint.checks.check import check_recipe

    path = write((NETWORK, NETWORK[:-1] + f", train: {train}}}"))
    assert told in message_of(lambda: check_recipe(load_recipe(path)))
