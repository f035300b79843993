"""`cloze finetune --out`: what is lost, and what is not, when a run is stopped, fails, or is started twice."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.cli.main import main
from cloze.tasks.tuned_folder import read_task_entries
from cloze.training.checkpoints.lock import LOCK
from cloze.training.session import Session


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(folder: Callable[[str], Path], tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished result, `out`; tests copy it."""
    place = tmp_path_factory.mktemp("finished")
    shutil.copytree(folder("bert"), place / "base")
    for name in ("train", "dev"):
        shutil.copy(tables / f"{name}.tsv", place / f"{name}.tsv")
    assert main(command(place, "training.epochs=1")) == 0
    return place


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return Path()


def command(place: Path, *values: str, train: str = "train.tsv", device: str = "cpu") -> list[str]:
    options = [word for value in ("length=16", "training.batch=16", *values) for word in ("--set", value)]
    given = ["--train", str(place / train), "--dev", str(place / "dev.tsv"), "--out", str(place / "out"), "--device", device]
    return ["finetune", str(place / "base"), *given, *options]


def stop_at(step: int, patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    real = Session.after_update

    def after(session: Session, *given: Any, **named: Any) -> None:
        real(session, *given, **named)
        if session.run_progress.step == step:
            act()

    patch.setattr(Session, "after_update", after)


def steps(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "cloze" / "checkpoints").iterdir())


def test_a_failing_resume_leaves_the_checkpoints_of_a_run_that_replaces(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    again = [*command(place, "training.epochs=3"), "--overwrite"]
    with monkeypatch.context() as patch:
        stop_at(5, patch, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert main(again) == 143
    assert "\n.out.replaced: keeps the previous contents of --out until this run has finished.\n" in capsys.readouterr().err
    before, reached = files(place / "out"), steps(place / "out")
    assert reached[-1] == "step-00000005"
    for wrong in (command(place, "training.epochs=3", train="train.tsvv"), command(place, "training.epochs=3", device="cuda")):
        assert main([*wrong, "--overwrite"]) == 2
        assert files(place / "out") == before
    for error in (OSError(errno.ENOSPC, "No space left on device", "out/x"), MemoryError(), FloatingPointError("nan")):
        def fail(error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            stop_at(6, patch, fail)
            assert main(again) == 1
        assert set(steps(place / "out")) >= set(reached)
    capsys.readouterr()
    assert main(again) == 0
    assert "continues from step 5" in capsys.readouterr().err
    assert len(read_task_entries(place / "out")["trials"]) == 1 and not Path(".out.replaced").exists()


def test_the_same_command_started_twice_is_refused_and_leaves_the_first(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("out", ".out.replaced")  # the first one replaces an older result
    with (place / "out" / LOCK).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = files(place)
        for again in (command(place, "training.epochs=1"), [*command(place, "training.epochs=1"), "--overwrite"]):
            assert main(again) == 2
            assert "cloze finetune: out: another process (pid " in capsys.readouterr().err
        assert files(place) == before


def test_a_run_that_fails_before_its_first_checkpoint_leaves_the_old_result(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(place)

    def fail(session: Session, **how: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out/x")

    monkeypatch.setattr(Session, "checkpoint", fail)
    assert main([*command(place, "training.epochs=2"), "--overwrite"]) == 1
    assert files(place) == before
