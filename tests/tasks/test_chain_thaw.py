"""`--recipe chain_thaw`: which tensors each stage changes, when it ends, and that a broken run resumes with identical bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks.kinds.classification import Classifier
from cloze.training.interrupt import Interrupt
from cloze.training.schedule.freezing import parameters_by_depth

Folder = Callable[[str], Path]
FEW = ["training.epochs=2", "length=24"]


def tune(start: Path, tables: Path, out: Path, *values: str) -> bool:
    done = finetune(
        start, recipe="chain_thaw", train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out,
        overrides=[*FEW, *values], report=lambda line: None,
    )
    return done.outcomes[1].finished


def stages(out: Path) -> list[Path]:
    """The folders of the stages, in order."""
    found = (out / "cloze" / "stages").iterdir()
    return [*sorted(found, key=lambda folder: (folder / "cloze" / "run.json").stat().st_mtime_ns), out]


def groups(folder: Path) -> list[list[Tensor]]:
    """The parameters by depth, the heads last."""
    loaded = load_checkpoint(folder)
    heads = [p for name in sorted(loaded.heads) for p in loaded.heads[name].parameters()]  # type: ignore[attr-defined]
    return [*parameters_by_depth(loaded.network), heads]


def changed(before: list[list[Tensor]], after: list[list[Tensor]]) -> list[int]:
    """The numbers of the groups that differ."""
    return [
        number for number, (a, b) in enumerate(zip(before, after, strict=True))
        if len(a) != len(b) or any(not torch.equal(x, y) for x, y in zip(a, b, strict=True))
    ]


@pytest.fixture(scope="module")
def whole(folder: Folder, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chain") / "whole"
    assert tune(folder("bert"), tables, out)
    return out


def test_every_stage_changes_its_own_depth_group_and_nothing_else(folder: Folder, whole: Path) -> None:
    made = stages(whole)
    assert [one.name for one in made[:-1]] == ["head", "layers_embeddings", "layers_0", "layers_1"]
    network = groups(folder("bert"))[:-1]
    states = [[*network, []], *map(groups, made)]
    found = [changed(before, after) for before, after in zip(states, states[1:], strict=False)]
    assert found == [[3], [0], [1], [2], [0, 1, 2, 3]]


def test_a_stage_ends_when_the_dev_metric_has_stopped_improving(
    folder: Folder, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classifier, "measure", lambda *given, **named: {"accuracy": 0.8, "macro_f1": 0.8, "matthews": 0.6})
    tune(folder("bert"), tables, tmp_path / "out", "training.epochs=9", "training.rate.constant.peak=0", "task.patience=2")
    for one in stages(tmp_path / "out"):
        lines = [json.loads(line) for line in (one / "cloze" / "log.jsonl").read_text().splitlines()]
        assert sum(line["event"] == "dev" for line in lines) == 3, one


def test_a_broken_run_resumes_in_its_stage_with_identical_bits(
    folder: Folder, tables: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "broken"
    for steps in (3, 5):  # in the stage of the head, and in a later one
        asked = iter([False] * steps)
        with monkeypatch.context() as patched:
            patched.setattr(Interrupt, "__bool__", lambda self, asked=asked: next(asked, True))
            assert not tune(folder("bert"), tables, out)
    assert tune(folder("bert"), tables, out)
    assert [one.name for one in stages(out)[:-1]] == [one.name for one in stages(whole)[:-1]]
    assert all(changed(groups(a), groups(b)) == [] for a, b in zip(stages(out), stages(whole), strict=True))
