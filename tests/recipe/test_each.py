"""`each: depth_group`: one stage per depth group of the checkpoint, and chain-thaw, which is made of them."""

from __future__ import annotations

import pytest

from cloze.document import read_yaml
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe
from cloze.recipe.stages import repeat_overrides, repeat_stages

STAGES = """
stages:
  head: {network: {from: start, train: none}}
  layers: {each: depth_group, network: {from: previous, train: {alone: depth_group}}}
  all: {network: {from: previous}}
"""


def test_a_stage_stands_for_every_depth_group_and_each_begins_with_the_one_before() -> None:
    made = repeat_stages(read_yaml(STAGES, "mine.yaml"), ["embeddings", 0, 1]).plain()["stages"]
    assert made == {
        "head": {"network": {"from": "start", "train": "none"}},
        "layers_embeddings": {"network": {"from": "head", "train": {"alone": "embeddings"}}},
        "layers_0": {"network": {"from": "layers_embeddings", "train": {"alone": 0}}},
        "layers_1": {"network": {"from": "layers_0", "train": {"alone": 1}}},
        "all": {"network": {"from": "layers_1"}},
    }


def test_a_value_of_a_repeated_stage_is_one_of_each_repetition() -> None:
    given = ["training.batch=8", "stages.layers.training.batch=4", "stages.all.training.batch=2", "stages.layers_0.share=3"]
    assert repeat_overrides(read_yaml(STAGES, "mine.yaml"), given, ["embeddings", 0]) == [
        "training.batch=8", "stages.layers_embeddings.training.batch=4", "stages.layers_0.training.batch=4",
        "stages.all.training.batch=2", "stages.layers_0.share=3",
    ]  # fmt: skip
    made = load_recipe("chain_thaw", overrides=["stages.layers.training.epochs=3", "stages.all.training.epochs=5"])
    assert [(stage.name, stage.recipe.training.epochs) for stage in made.stages] == [
        ("head", 20), ("layers_embeddings", 3), ("all", 5)
    ]  # fmt: skip


@pytest.mark.parametrize(("stages", "said"), [
    ("{a: {each: layer}}", r"stages.a.each: got 'layer', expected depth_group"),
    ("{a: {network: {from: previous}}}", r"stages.a: is the first stage"),
])  # fmt: skip
def test_a_stage_that_cannot_be_repeated_is_refused(stages: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        repeat_stages(read_yaml(f"stages: {stages}", "mine.yaml"))
