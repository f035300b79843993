"""Fine-tuning with a teacher and of several tasks, killed five times, and by two processes: the same bits, the same losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.runs.finetuning.finetune import finetune
from cloze.training.checkpoints.checkpoint import Checkpoints

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.slow
VALUES = ["training.precision=fp32", "training.keep=0"]
TAUGHT = """
name: taught
corpus: {records: {length: 24}}
networks:
  teacher: {from: teacher, train: none}
  student: {from: start}
exercise: [{frame: reading}, {label: {set: label}}]
passes:
  - {network: teacher, grad: false, objectives: [text_classification: {head: classification, weight: 0}]}
  - network: student
    objectives:
      - text_classification: {head: taught}
      - pooled_classification: {set: label, pool: mean, head: above, read: teacher.hidden}
training:
  {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 16, epochs: 3, held_out: 0.0, evaluate_every: epoch, log_every: 1}
task: {type: sentence_classification}
export: student
"""


@pytest.fixture(scope="module", params=["teacher", "mixture"])
def said(
    request: pytest.FixtureRequest, folder: Callable[[str], Path], tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a run is told."""
    return {"teacher": with_teacher, "mixture": mixture}[request.param](folder("bert"), tables, tmp_path_factory.mktemp("runs"))


def mixture(checkpoint: Path, tables: Path, place: Path) -> dict[str, Any]:
    """Topics of texts and parts of speech of words at once: 7 steps in a round of the deck."""
    tagged = place / "words.conll"
    tagged.write_text("the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\nsaw\tVERB\n\n" * 24, encoding="utf-8")
    files = {"topic": f"sentence_classification:{tables / 'train.tsv'},{tables / 'dev.tsv'}",
             "words": f"token_labelling:{tagged},{tagged}"}  # fmt: skip
    values = [*VALUES, "training.batch=16", "training.epochs=2", "training.evaluate_every=0.4", "training.checkpoint_every=2",
              "training.log_every=1", "length=24", "task.patience=0"]  # fmt: skip
    return {
        "checkpoint": str(checkpoint), "tasks": [f"{name}={one}" for name, one in files.items()], "values": values, "kills": 0,
        "place": str(place), "steps": 14,
    }  # fmt: skip


def with_teacher(checkpoint: Path, tables: Path, place: Path) -> dict[str, Any]:
    """One task, and a teacher that has learned it."""
    (place / "taught.yaml").write_text(TAUGHT)
    files = {name: str(tables / f"{name}.tsv") for name in ("train", "dev")}
    finetune(
        checkpoint, train=[files["train"]], dev=[files["dev"]], out=place / "teacher", report=lambda line: None,
        overrides=["training.epochs=1", "length=24"],
    )
    return {
        "checkpoint": str(checkpoint), "teacher": str(place / "teacher"), "recipe": str(place / "taught.yaml"), **files,
        "values": VALUES, "kills": 0, "place": str(place), "steps": 12,
    }  # fmt: skip


def run(said: dict[str, Any], *launcher: str) -> Path:
    """Run the process and give the folder of its run."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, *launcher, str(HERE / "tuning.py"), json.dumps(said)], env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(said["out"])


def test_a_run_that_is_killed_five_times_ends_with_the_same_bits(said: dict[str, Any]) -> None:
    killed = run({**said, "out": f"{said['place']}/killed", "kills": 5})
    whole = killed.with_name("killed-whole")
    (known, state, *_), (again, other, *_) = (Checkpoints(place).load() for place in (whole, killed))
    assert known["step"] == again["step"] == said["steps"] and len(state) > 10
    assert all(torch.equal(tensor, other[name]) for name, tensor in state.items())
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    told = [json.loads((place / "cloze" / "task.json").read_text()) for place in (killed, whole)]
    assert told[0]["trials"] == told[1]["trials"]


@pytest.mark.distributed
def test_two_processes_and_parts_of_a_batch_give_the_losses_of_one(said: dict[str, Any]) -> None:
    alone = run({**said, "out": f"{said['place']}/alone"})
    parts = run({**said, "out": f"{said['place']}/parts", "values": [*said["values"], "training.micro_batch=4"]})
    two = run({**said, "out": f"{said['place']}/two"}, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    one, other, split = (losses(place) for place in (alone, parts, two))
    assert len(one) >= said["steps"]
    assert other == pytest.approx(one, abs=1e-5) and split == pytest.approx(one, abs=1e-5)


def losses(place: Path) -> list[float]:
    """The training losses in the log."""
    records = map(json.loads, (place / "cloze" / "log.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["event"] == "train"]
