"""What trains a run is decided before anything of it is written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.errors import ClozeError, MissingExtra, RecipeError

COMPILED = "training.engine=compiled"
Pretrain = Callable[..., Any]


@pytest.fixture
def pretrain(tmp_path: Path) -> Pretrain:
    """Two steps of skip-gram on a few lines, in `tmp_path/run`."""
    from cloze.assembly.run import pretrain as run

    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the cat\n\n" * 30)
    quick = ["text.tokenizer.words.min_count=1", "network.width=8", "training.batch=4"]

    def start(*values: str, **given: Any) -> Any:
        return run("word2vec-skipgram", corpus=text, out=tmp_path / "run", budget="2steps", device="cpu",
                   overrides=[*quick, *values], **given)

    return start


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)


def test_without_numba_a_compiled_run_is_refused_and_leaves_no_folder(
    pretrain: Pretrain, without_numba: None, tmp_path: Path
) -> None:
    with pytest.raises(MissingExtra, match=r"cloze\[fast\]"):
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
    assert any("the loop trains this recipe, slowly" in line for line in said)
    first = json.loads((tmp_path / "run" / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["event"] == "start"


def test_a_first_run_says_that_it_compiles_and_a_later_one_does_not(
    pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    kept = tmp_path / "compiled"
    kept.mkdir()
    monkeypatch.setattr("cloze.training.engine._COMPILED", kept)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    first: list[str] = []
    pretrain(report=first.append)
    (kept / "exact.train.nbi").touch()
    later: list[str] = []
    shutil.rmtree(tmp_path / "run")
    pretrain(report=later.append)
    assert [any("is compiled now" in line for line in lines) for lines in (first, later)] == [True, False]


def test_engines_are_for_one_process(pretrain: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.assembly import run as assembly
    from cloze.training.engine import choose

    runs: list[Any] = []
    monkeypatch.setattr(assembly, "train", lambda run: (runs.append(run), _done(run))[1])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    pretrain()
    (run,) = runs
    assert choose(run, 1).engine is not None and choose(run, 2).engine is None


def _done(run: Any) -> Any:
    from cloze.training.run import Outcome

    return Outcome(run.folder, 2, True, "budget", None, compiled=True)
