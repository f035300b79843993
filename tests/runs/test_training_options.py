"""A run with every option that changes while it trains: paused and resumed, it gives what it gives at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.small_recipe import trainer

RECIPE = """\
name: growing
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 80}}}
corpus: {passages: {length: 16}}
network: {transformer: {layers: 1, width: 16, heads: 2, positions: {rotary: {}}, dropout: 0.1}}
exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask: {rate: {linear: {start: 0.5, end: 0.2}}}
  - corrupt: {mask: {linear: {start: 0.5, end: 1}}, random: {linear: {start: 0.3, end: 0}}, keep: {linear: {start: 0.2, end: 0}}}
  - predict: masked
objectives: [token_prediction: {transform: gelu, tie: true}]
training:
  optimizer: stable_adamw
  rate: {linear: {peak: 1e-2, warmup: 0.1}}
  batch: 12
  batch_warmup: {linear: {start: 0.25, end: 1.0, until: 0.5}}
  average: {decay: 0.8}
  keep_best: token_prediction
  evaluate_every: 0.25
  held_out: 0.2
reading: {single: "[CLS] {A} [SEP]"}
"""


def log(folder: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (folder / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines())
    kept = ("step", "event", "loss", "examples", "tokens", "objectives")
    return [{key: line[key] for key in kept if key in line} for line in lines if line["event"] in ("train", "held_out")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, little_text: Path) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    trainer(folder, little_text, budget="8steps")(folder / "run", RECIPE)
    return folder / "run"


def test_the_batch_grows_as_the_recipe_says(whole: Path) -> None:
    examples = [event["examples"] for event in log(whole) if event["event"] == "train"]
    assert examples == [3, 3 + 5, 8 + 8, 16 + 10, 26 + 12, 50, 62, 74]


def test_a_run_that_pauses_and_resumes_is_the_whole_run(whole: Path, tmp_path: Path, little_text: Path) -> None:
    train = trainer(tmp_path, little_text, budget="8steps")
    train(tmp_path / "run", RECIPE, until=0.375)
    train(tmp_path / "run", RECIPE)
    found, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", whole))
    assert {name: tensor.numpy().tobytes() for name, tensor in found.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in expected.items()
    }
    paused = [event for event in log(tmp_path / "run") if event["event"] == "train"]
    assert paused == [event for event in log(whole) if event["event"] == "train"]
