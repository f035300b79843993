"""LSTMs by task recipes: the plain one with concat pooling, ULMFiT's and SiATL's classifiers, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.assembly.finetune import finetune
from cloze.interop import Card, Head, Model, Reading, export_folder
from cloze.networks import Clock
from cloze.networks.lstm import LSTM
from cloze.objectives import token_prediction
from cloze.tasks.evaluation import evaluate
from cloze.tasks.result import load_tuned

Folder = Callable[[str], Path]
SHAPE: dict[str, Any] = {"layers": 2, "width": 16, "inner": 24}
QUICK = ["training.batch=8", "training.epochs=3", "length=24", "task.patience=0"]


@pytest.fixture(scope="session")
def lstm(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LSTM language model with GPT-2's pieces, exported."""
    pieces = load_checkpoint(folder("gpt2")).tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = LSTM(**SHAPE, vocab_size=pieces.size, clock=Clock())
        head = token_prediction(tie=True, width=16, vocab_size=pieces.size, table=network.tables["tokens"])
    heads = {"token_prediction": Head("token_prediction", {"tie": True}, head.state_dict())}
    place = tmp_path_factory.mktemp("checkpoints") / "lstm"
    export_folder(
        place, model=Model(SHAPE, "left_to_right", network.state_dict(), heads, "lstm"), tokenizer=pieces,
        reading=Reading("{A}", None, "last"), card=Card("lstm"),
    )
    return place


def tune(folder: Path, tables: Path, out: Path, recipe: str, *values: str) -> Any:
    return finetune(
        folder, recipe=recipe, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out, overrides=values,
        report=lambda line: None,
    )


@pytest.mark.parametrize("recipe", ["sentence_classification", "ulmfit_classification", "siatl_classification"])
def test_every_manner_learns_an_easy_task_and_its_folder_says_the_same(
    lstm: Path, tables: Path, tmp_path: Path, recipe: str
) -> None:
    made = tune(lstm, tables, tmp_path / "out", recipe, *QUICK, "training.epochs=8")
    standing = made.outcomes[1].standing
    print(standing)
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    measured = evaluate(learner, learner.task.read(tables / "dev.tsv"), always=told["usual"])
    assert measured.metrics == pytest.approx(standing.metrics)
