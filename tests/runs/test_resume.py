"""A run resumes only with what shaped it. Each option of `pretrain` and `finetune` is listed here: it is compared, or not."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from cloze.api import train as notebook
from cloze.cli.main import main
from cloze.cli.train import finetune, pretrain
from cloze.errors import UserError
from cloze.interop import Card, export_folder
from cloze.runs.options import FinetuneOptions, PretrainOptions
from tests.small_recipe import Train
from tests.tasks.conftest import load_systems

COMPARED, SAME = "compared", "changes nothing of what is trained"
PRETRAIN: Mapping[str, str] = {
    "recipe": COMPARED, "corpus": COMPARED, "budget": COMPARED, "size": COMPARED, "overrides": COMPARED, "tokenizer": COMPARED,
    "held_out": COMPARED, "init": COMPARED, "text_format": COMPARED, "column": COMPARED, "encoding": COMPARED, "binds": COMPARED,
    "seed": COMPARED, "text": COMPARED, "fit": COMPARED,
    "with_files": "a note says that a file has changed", "extend": "the way to a larger budget", "until": "where the run pauses",
    "measure": "texts that are measured", "cache": SAME, "device": SAME, "strategy": SAME, "shard": SAME, "track": SAME,
    "track_model": SAME,
    "mirror": SAME, "verbose": SAME, "quiet": SAME, "report": SAME, "plan": "trains nothing", "out": "the folder itself",
    "stage": "set by cloze", "drop_stage_origins": "set by cloze",
}  # fmt: skip
FINETUNE: Mapping[str, str] = {
    "checkpoint": COMPARED, "model": COMPARED, "train": COMPARED, "dev": COMPARED, "task": COMPARED, "tasks": COMPARED,
    "first": COMPARED, "recipe": COMPARED, "init": COMPARED, "overrides": COMPARED, "binds": COMPARED, "changes": COMPARED,
    "auxiliary": COMPARED, "fit": COMPARED, "annotate": COMPARED, "items": COMPARED, "picture": COMPARED, "columns": COMPARED,
    "seeds": COMPARED, "encoding": COMPARED, "from_scratch": COMPARED,
    "with_files": "a note says that a file has changed", "extend": "the way to more epochs", "keep_checkpoints": SAME,
    "test": "measured after training", "baselines": "fitted after training", "no_baselines": "fitted after training",
    "mix_ngrams": "chosen after training; refused for a finished run without it",
    "tune": "begins again", "within": "begins again", "overwrite": "replaces a result", "print_recipe": "trains nothing",
    "print_plan": "trains nothing",
    "device": SAME, "as_json": SAME, "report": SAME, "track": SAME, "track_model": SAME, "out": "the folder itself",
}  # fmt: skip


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"options"}


def test_every_option_is_compared_by_a_run_that_resumes_or_it_is_said_why_not() -> None:
    every = parameters(pretrain.command) | parameters(notebook.pretrain) | {field.name for field in fields(PretrainOptions)}
    assert every == set(PRETRAIN)
    of_tasks = {field.name for field in fields(FinetuneOptions)}
    assert parameters(finetune.command) | parameters(notebook.finetune) | of_tasks == set(FINETUNE)


CHANGES: Mapping[str, tuple[dict[str, Any], str]] = {
    "text_format": ({"text_format": "line"}, "text that is read with --format auto; now with --format line"),
    "column": ({"text_format": "auto:body"}, "text that is read with --format auto; now with --format auto --text body"),
    "encoding": ({"text_format": "auto@cp1252"}, "with --format auto; now with --format auto --encoding cp1252"),
    "seed": ({"seed": 3}, "holds a run with the seed 0, not 3"),
    "budget": ({"budget": "1steps"}, "was started with --budget 2steps, not 1steps"),
    "overrides": ({"overrides": ["exercise.mask.rate=0.3"]}, "holds a run of a different recipe"),
    "overrides: longer": (
        {"overrides": ["training.steps=9"]}, r"started with training.steps=null, now 9.\n  .* To train longer, add --extend"
    ),
    "size": ({"size": "mini"}, "holds a run of a different recipe"),
    "fit": ({"fit": True, "overrides": ["training.batch=8"]}, "holds a run of a different recipe"),
}


@pytest.mark.parametrize("option", CHANGES)
def test_a_run_does_not_resume_with_another_value(place: Path, train: Train, option: str) -> None:
    changes, message = CHANGES[option]
    with pytest.raises(UserError, match=message):
        train(place / "run", **changes)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small checkpoint, labelled rows, and a fine-tuning run of two epochs, `out`."""
    place = tmp_path_factory.mktemp("tuned")
    system = load_systems().system("bert", **{"positions.max_length": 40})
    export_folder(
        place / "base", model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card("base")
    )
    for name, rows in (("train", range(12)), ("dev", range(12, 16)), ("other", range(16, 28))):
        lines = [f"the {'rain' if row % 2 else 'cat'} saw {row}\t{'b' if row % 2 else 'a'}" for row in rows]
        (place / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main([*command(), "--keep-checkpoints"]) == 0
    return place


def command(*values: str, train: str = "train.tsv", dev: str = "dev.tsv") -> list[str]:
    every = ("length=16", "training.batch=4", *(values or ("training.epochs=2",)))
    given = [word for value in every for word in ("--set", value)]
    return ["finetune", "base", "--train", train, "--dev", dev, "--out", "out", "--device", "cpu", *given]


@pytest.mark.parametrize(("changed", "message"), [
    (command("training.epochs=1"), "out: was started with training.epochs=2.0, now 1.0.\n  To resume it, leave the value as it"),
    (command("training.epochs=3"), "out: was started with training.epochs=2.0, now 3.0.\n  .* To train longer, add --extend."),
    (command("training.epochs=2", "length=20"), "out: holds a run of a different recipe"),
    (command(train="other.tsv"), "out: was started with different text: then train.tsv"),
    (command(dev="other.tsv"), "out: was started with different text: then dev.tsv"),
    ([*command(), "--seeds", "2"], "out: holds a run with the seed 1, not 2"),
    ([*command(), "--seeds", "1,2"], "out: was started with the seed 1; now --seeds 1,2 is given"),
    ([*command(), "--change", "lora=2"], "out: holds a run of a different recipe"),
    ([*command(), "--encoding", "cp1252"], "out: .* text that is read with encoding auto; now with encoding cp1252"),
])  # fmt: skip
def test_fine_tuning_does_not_resume_with_another_value(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changed: list[str],
    message: str,
) -> None:
    shutil.copytree(tuned, tmp_path / "tuned")
    monkeypatch.chdir(tmp_path / "tuned")
    assert main(changed) == 2
    assert re.search(message, capsys.readouterr().err)
