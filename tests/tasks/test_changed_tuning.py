"""`cloze finetune --change`: a network that is changed while it learns a task, and the folder that is written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.saved_change import write_change
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import is_added
from cloze.recipe.load import read_tree
from cloze.recipe.origins import add_changes
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.tuned_folder import load_tuned

Folder = Callable[[str], Path]
VALUES = ["training.epochs=1", "length=24", "training.rate.linear.peak=0.01"]


def tuned(start: Path, tables: Path, out: Path, *changes: str, overrides: list[str] = VALUES) -> Path:
    finetune(
        start, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out, changes=changes, overrides=overrides,
        report=lambda line: None,
    )
    return out


def test_changes_are_written_into_the_recipe_of_the_task(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    shown = cloze("finetune", folder("bert"), "--change", "lora=4", "--change", "pfeiffer_adapters={width: 6}", "--show")
    path = tmp_path / "shown.yaml"
    path.write_text(shown.out, encoding="utf-8")
    network = read_tree(path).plain()["networks"]["main"]
    assert network["from"] == "start" and network["change"] == [
        {"lora": {"rank": 4, "alpha": None, "on": None}}, {"pfeiffer_adapters": {"width": 6, "activation": "relu", "std": None}},
    ]


def test_a_change_that_adds_parameters_has_ten_times_the_rate(folder: Folder) -> None:
    loaded = load_checkpoint(folder("bert"))
    whole = recipe_onto("sentence_classification", loaded).training.rate.arguments["peak"]
    told: list[str] = []
    made = recipe_onto("sentence_classification", loaded, changes=["adapters=4", "sparsify=0.1"], report=told.append)
    assert made.training.rate.arguments["peak"] == pytest.approx(10 * whole)
    assert "10 times that for adapters" in told[0]


def test_a_change_is_made_on_every_stage_that_begins_with_the_checkpoint(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    stage = "{network: {from: start, change: [arguments: {to: {dropout: 0.0}}]}}"
    path.write_text(f"name: mine\nstages:\n  one: {stage}\n  two: {{network: {{from: one}}}}\n", encoding="utf-8")
    tree = read_tree(path)
    add_changes(tree, ["lora=2"], "start")
    stages = tree.plain()["stages"]
    assert stages["one"]["network"]["change"] == [{"arguments": {"to": {"dropout": 0.0}}}, {"lora": 2}]
    assert stages["two"]["network"] == {"from": "one"}


@pytest.mark.parametrize(("given", "said"), [
    ("lorra=4", "--change lorra=4: unknown change 'lorra'. Did you mean 'lora'?"),
    ("lora=many", "rank"),
    ("keep_layers=[3]", "keep_layers"),
])  # fmt: skip
def test_a_change_that_is_none_is_refused(folder: Folder, cloze: Callable[..., Any], given: str, said: str) -> None:
    refused = cloze("finetune", folder("bert"), "--change", given, "--show")
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err


def test_adapters_learn_a_task_while_the_network_keeps_every_bit(folder: Folder, tables: Path, tmp_path: Path) -> None:
    start = folder("bert")
    before, after = load_checkpoint(start), load_checkpoint(tuned(start, tables, tmp_path / "out", "adapters=8"))
    own = before.network.state_dict()
    moved = {name for name, tensor in after.network.state_dict().items() if name not in own or not torch.equal(tensor, own[name])}
    assert moved and all(is_added(name) or "norm" in name for name in moved)


@pytest.fixture(scope="module")
def lora(folder: Folder, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with low-rank updates of queries and values that has learned the task."""
    return tuned(folder("bert"), tables, tmp_path_factory.mktemp("lora") / "out", "lora={rank: 2, on: [query, value]}")


def probabilities(place: Path, tables: Path) -> list[dict[str, float]]:
    learner, _ = load_tuned(load_checkpoint(place))
    found: Any = learner.predict(learner.task.read(str(tables / "dev.tsv")))
    return [one.probabilities for one in found]


def near(found: list[dict[str, float]], expected: list[dict[str, float]]) -> bool:
    return all(one == pytest.approx(other, abs=1e-5) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("to", ["change", "peft", "merged"])
def test_a_change_is_written_alone_or_merged_and_answers_as_before(
    lora: Path, folder: Folder, tables: Path, tmp_path: Path, cloze: Callable[..., Any], to: str
) -> None:
    done = cloze("export", lora, tmp_path / "out", "--to", to)
    assert done.code == 0, done.err
    expected = probabilities(lora, tables)
    assert near(probabilities(tmp_path / "out", tables), expected)
    assert not near(probabilities(tmp_path / "out", tables), [dict.fromkeys(one, 0.5) for one in expected])
    updated = [name for name in load_checkpoint(tmp_path / "out").network.state_dict() if is_added(name)]
    assert bool(updated) == (to != "merged")
    if to == "merged":
        return
    sizes = {name: sum(file.stat().st_size for file in place.rglob("*.safetensors")) for name, place in (
        ("base", folder("bert")), ("out", tmp_path / "out"))}  # fmt: skip
    assert sizes["out"] < sizes["base"] / 2
    again = cloze("export", tmp_path / "out", tmp_path / "whole", "--to", "merged")
    assert again.code == 0 and near(probabilities(tmp_path / "whole", tables), expected)


def test_show_lists_the_changes_of_a_network_and_what_they_train(
    lora: Path, folder: Folder, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    shown = cloze("show", lora).out
    assert re.search(r'\n  changes +lora rank=2 alpha=\S+ on=\["query", "value"\]', shown)
    told = json.loads(cloze("show", lora, "--json").out)
    trained = sum(p.numel() for p in load_checkpoint(lora).network.parameters() if p.requires_grad)
    heads = sum(p.numel() for head in load_checkpoint(lora).heads.values() for p in head.parameters())
    assert told["trained"] == trained + heads < told["parameters"] / 10
    shutil.copytree(folder("bert"), tmp_path / "kept")
    (tmp_path / "kept" / "cloze" / "recipe.yaml").write_text(
        "name: half\nexport: main\nnetworks: {main: {change: [{keep_layers: {layers: [1]}}]}}\n"
    )
    assert re.search(r"\n  changes +keep_layers layers=\[1\]\n", cloze("show", tmp_path / "kept").out)


def test_peft_gets_every_updated_map_and_the_head(lora: Path, tmp_path: Path) -> None:
    write_change(lora, tmp_path / "out", peft=True)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (2, 4.0, False)
    assert config["target_modules"] == [
        f"bert.encoder.layer.{n}.attention.self.{name}" for n in range(2) for name in ("query", "value")
    ]
    assert config["modules_to_save"] == ["bert.pooler.dense", "classifier"]


def test_a_change_is_refused_on_another_network_than_its_own(lora: Path, folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not the network that .* began with: it"):
        write_change(lora, tmp_path / "out", base=folder("gpt2"))
    assert not (tmp_path / "out").exists()
    shutil.copytree(folder("bert"), tmp_path / "base")
    write_change(lora, tmp_path / "out", base=tmp_path / "base")
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="the change belongs to the network in .*base: its weights are others"):
        load_checkpoint(tmp_path / "out")


def test_what_cannot_be_written_alone_is_refused_with_the_way_out(
    lora: Path, folder: Folder, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    for arguments, said in (
        ((folder("bert"), tmp_path / "out", "--to", "peft"), "its network has no change"),
        ((folder("bert"), tmp_path / "out", "--to", "merged"), "its network has no change to merge"),
        ((lora, tmp_path / "out", "--to", "merged", "--base", folder("bert")), "--base is for --to peft and --to change"),
    ):
        refused = cloze("export", *arguments)
        assert refused.code == 2 and said in refused.err


TASKS = ["sentence_classification", "pair_classification", "token_labelling", "regression", "multi_label", "chain_thaw"]


@pytest.mark.parametrize("task", TASKS)
def test_the_language_model_of_the_checkpoint_is_trained_along_with_every_task(folder: Folder, task: str) -> None:
    loaded = load_checkpoint(folder("gpt2"))
    made = recipe_onto(task, loaded, overrides=["length=24"], auxiliary="0.5")
    entry = made.entries["main"]
    assert [(o.part.name, o.weight) for _, o in entry.objectives()][-1] == ("token_prediction", 0.5)
    assert entry.exercise[-1].part.name == "predict"
    check_recipe(made)


def test_the_weight_of_the_language_model_may_fall(
    folder: Folder, tables: Path, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    weight = "exponential: {start: 0.2, end: 0.1, stairs: 2}"
    done = cloze(
        "finetune", folder("gpt2"), "--train", tables / "train.tsv", "--dev", tables / "dev.tsv", "--out", tmp_path / "out",
        "--auxiliary", f"{{{weight}}}", "--set", "training.epochs=1", "--set", "length=24",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert load_checkpoint(folder("gpt2")).heads.keys() < load_checkpoint(tmp_path / "out").heads.keys()
    lines = [json.loads(line) for line in (tmp_path / "out" / "cloze" / "log.jsonl").read_text().splitlines()]
    trained = [line["objectives"] for line in lines if line["event"] == "train"]
    assert trained and all(len(objectives) == 2 for objectives in trained)
