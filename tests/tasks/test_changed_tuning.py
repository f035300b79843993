"""`cloze finetune --change`: a network that is changed while it learns a task, and the folder that is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.assembly.finetune import finetune, recipe_onto
from cloze.assembly.load import read_tree
from cloze.assembly.origins import add_changes
from cloze.networks.blocks.computed import is_added

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
    made = recipe_onto("sentence_classification", loaded, changes=["adapters=4", "magnitude=0.1"], report=told.append)
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
