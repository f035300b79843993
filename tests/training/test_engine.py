"""What trains a run is decided before anything of it is written."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.errors import ClozeError, MissingExtra, RecipeError
from cloze.kernels import has_numba

COMPILED = "training.engine=compiled"
Pretrain = Callable[..., Any]


@pytest.fixture
def pretrain(tmp_path: Path) -> Pretrain:
    """Two steps of skip-gram on a few lines, in `tmp_path/run`."""
    from cloze.runs.run import pretrain as run

    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the cat\n\n" * 30)
    quick = ["text.tokenizer.words.min_count=1", "network.width=8", "training.batch=4"]

    def start(*values: str, **given: Any) -> Any:
        given = {"device": "cpu", **given}
        return run("word2vec-skipgram", corpus=text, out=tmp_path / "run", budget="2steps", overrides=[*quick, *values], **given)

    return start


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    has_numba.cache_clear()
    yield
    monkeypatch.undo()
    has_numba.cache_clear()


def test_without_numba_a_compiled_run_is_refused_and_leaves_no_folder(
    pretrain: Pretrain, without_numba: None, tmp_path: Path
) -> None:
    with pytest.raises(MissingExtra, match=r"cloze-lm\[fast\]"):
        pretrain(COMPILED)
    assert not (tmp_path / "run").exists()


def test_a_run_that_no_engine_fits_is_refused_and_leaves_no_folder(pretrain: Pretrain, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Write `engine: auto`"):
        pretrain(COMPILED, "training.clip=1.0")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_there_stays(pretrain: Pretrain, without_numba: None, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(ClozeError):
        pretrain(COMPILED)
    assert (tmp_path / "run" / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "run" / "cloze" / "run.json").exists() and not (tmp_path / "run" / "cloze" / "lock").exists()


def test_left_to_itself_a_run_without_numba_is_trained_by_the_loop_and_says_so(
    pretrain: Pretrain, without_numba: None, tmp_path: Path
) -> None:
    said: list[str] = []
    outcome = pretrain(report=said.append)
    assert outcome.finished and not outcome.compiled
    assert any("this recipe trains in the ordinary loop, which is slow" in line for line in said)
    first = json.loads((tmp_path / "run" / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["event"] == "start"


def test_a_first_run_says_that_it_compiles_and_a_later_one_does_not(
    pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    from cloze import kernels
    from cloze.kernels.vectors import shared

    said: list[str] = []
    asked: list[Any] = []
    monkeypatch.setattr(kernels, "are_compiled", lambda *made: asked.extend(made))
    pretrain("objectives.0.share=true", report=said.append)
    assert asked[0] is shared.train_lines and any("compiles this engine" in line for line in said)
    monkeypatch.setattr(kernels, "are_compiled", lambda *made: True)
    later: list[str] = []
    shutil.rmtree(tmp_path / "run")
    pretrain(report=later.append)
    assert not any("compiles this engine" in line for line in later)


def test_word_vectors_train_on_the_cpu_of_a_machine_with_a_gpu_and_say_so(
    pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    said: list[str] = []
    outcome = pretrain(device="auto", report=said.append)
    assert outcome.compiled
    assert any("trains this recipe on the CPU" in line and "--device cuda" in line for line in said)


@pytest.mark.parametrize(
    ("value", "reason"),
    [("training.clip=1.0", "training.clip is set"), ("training.optimizer.momentum=0.9", "the optimizer is not sgd")],
)
def test_a_hint_names_why_the_loop_trains_what_a_compiled_engine_could(value: str, reason: str, pretrain: Pretrain) -> None:
    said: list[str] = []
    assert not pretrain(value, report=said.append).compiled
    assert any(line.startswith("hint: this recipe trains in the ordinary loop,") and reason in line for line in said)


def test_the_device_that_was_asked_for_is_a_reason(pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.recipe.parts import engines
    from cloze.training.engine import choose

    run = _run_of(pretrain, monkeypatch)
    asked = dataclasses.replace(run, device="cuda")
    monkeypatch.setattr("cloze.training.engine.choose_device", torch.device)
    choice = choose(asked, engines(), 1)
    assert choice.engine is None and choice.device == "cuda" and "does not fit: the device is not the CPU" in choice.hint


def test_engines_are_for_one_process(pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    from cloze.recipe.parts import engines
    from cloze.training.engine import choose

    run = _run_of(pretrain, monkeypatch)
    assert choose(run, engines(), 1).engine is not None
    choice = choose(run, engines(), 2)
    assert choice.engine is None and "does not fit: several processes train" in choice.hint


def _run_of(pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The run that `pretrain` would train."""
    from cloze.runs import run as runs_module

    runs: list[Any] = []
    monkeypatch.setattr(runs_module, "train", lambda run, engines: (runs.append(run), _done(run))[1])
    pretrain()
    return runs[0]


def _done(run: Any) -> Any:
    from cloze.training.run import Outcome

    return Outcome(run.folder, 2, True, "budget", None, compiled=True)
