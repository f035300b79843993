"""Runs on data sets of the hub: what they record, and that they resume with the same text alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloze.cli.main import main
from tests.hub_datasets import TEXTS, forget_datasets, serving_datasets, write_rows
from tests.hub_server import Hub

pytest.importorskip("datasets")
NAME, FULL = "hf://datasets/org/texts", "hf://datasets/org/texts@{commit}:default/{split}"
RUN = ["pretrain", "gpt2", "--size", "tiny", "--budget", "1steps", "--device", "cpu", "--set", "training.batch=4"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_datasets(tmp_path, monkeypatch) as served:
        yield served


def test_a_run_records_the_commit_and_resumes_with_it_alone(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*RUN, "--corpus", NAME, "--held-out", f"{NAME}:default/test", "--out", "run"]
    assert main([*command, "--measure", f"test={NAME}:default/test"]) == 0, capsys.readouterr().err
    commit = hub.commit("datasets/org/texts")
    inputs = json.loads(Path("run/cloze/run.json").read_text())["inputs"]
    assert inputs["corpus"]["main"]["datasets"] == [FULL.format(commit=commit, split="train")]
    assert inputs["held_out"]["datasets"] == [FULL.format(commit=commit, split="test")]

    forget_datasets()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert main(command) == 0, capsys.readouterr().err
    assert hub.requests == []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    texts = [text.replace("about", "on") for text in TEXTS]
    write_rows(hub.repositories["datasets/org/texts"] / "data" / "train-00000-of-00002.parquet", {"text": texts})
    forget_datasets()
    capsys.readouterr()
    assert main(command) == 2
    error = capsys.readouterr().err
    assert f"was started with different text: then {FULL.format(commit=commit, split='train')}" in error
    assert f"To resume, name the commit: {FULL.format(commit=commit, split='train')}\n" in error
