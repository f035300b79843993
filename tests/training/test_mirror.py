"""Copies of checkpoints elsewhere: whole ones only, tried again, and never a reason to stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_run, weights

from cloze.errors import CheckpointError, UserError
from cloze.training.checkpoints import mirror as module
from cloze.training.checkpoints.mirror import Mirror, join_url
from cloze.training.loop import train

fsspec = pytest.importorskip("fsspec", reason="the extra cloud is not installed")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty file system in memory; nothing waits."""
    monkeypatch.setattr(module, "_WAIT", 0.0)
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    return files


def test_a_run_continues_from_the_copy_of_its_checkpoints(place: Any, tmp_path: Path) -> None:
    train(tiny_run(tmp_path / "whole", budget="8steps"))
    train(tiny_run(tmp_path / "run", budget="8steps", mirror="memory://bucket/run", until=0.5))
    assert Mirror("memory://bucket/run").whole() == {"step-00000000", "step-00000004"}
    place.get("/bucket/run", str(tmp_path / "copy"), recursive=True)
    train(tiny_run(tmp_path / "copy", budget="8steps", mirror="memory://bucket/run"))
    assert weights(tmp_path / "copy") == weights(tmp_path / "whole")
    assert Mirror("memory://bucket/run").whole() == {"step-00000000", "step-00000004", "step-00000008"}
    last = "cloze/checkpoints/step-00000008/state/parameters.safetensors"
    assert place.cat(f"/bucket/run/{last}") == (tmp_path / "copy" / last).read_bytes()
    assert json.loads(place.cat("/bucket/run/cloze/run.json"))["budget"] == "8steps"
    assert "bucket" not in (tmp_path / "run" / "cloze" / "run.json").read_text()


def test_old_copies_are_removed_and_the_record_comes_last(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, order = place.put_file, list[str]()
    monkeypatch.setattr(type(place), "put_file", lambda files, one, target, **_: (order.append(target), put(one, target))[1])
    train(tiny_run(tmp_path, budget="12steps", mirror="memory://m", training={"checkpoint_every": 3, "keep": 1}))
    assert Mirror("memory://m").whole() == {"step-00000000", "step-00000012"}
    of_step = [target for target in order if "step-00000003" in target]
    assert of_step[-1].endswith("state/state.json") and len(of_step) == len(set(of_step)) > 3


def test_a_fault_is_tried_again_and_one_that_stays_is_told_and_stops_nothing(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, faults, said = place.put_file, iter([True, True]), list[str]()

    def faulty(files: Any, one: str, target: str, **_: Any) -> None:
        if next(faults, False) or "step-00000004" in target:
            raise TimeoutError("slow down")
        put(one, target)

    monkeypatch.setattr(type(place), "put_file", faulty)
    run = tiny_run(tmp_path, budget="8steps", mirror="memory://m")
    run.say = said.append
    assert train(run).finished and Mirror("memory://m").whole() == {"step-00000000", "step-00000008"}
    assert sum("checkpoints could not be copied: TimeoutError: slow down" in one for one in said) == 2


def test_copies_of_a_run_that_lost_its_files_and_of_other_runs_are_kept(place: Any, tmp_path: Path) -> None:
    train(tiny_run(tmp_path / "run", budget="8steps", mirror="memory://m", until=0.5))
    with pytest.raises(CheckpointError, match=r"step 4 of a run, which .*lost does not have.\n.*copy everything from the mirror"):
        train(tiny_run(tmp_path / "lost", budget="8steps", mirror="memory://m"))
    train(tiny_run(tmp_path / "other", budget="8steps", seed=1))
    with pytest.raises(CheckpointError, match="step 4 of a run, which .*other does not have"):
        train(tiny_run(tmp_path / "other", budget="8steps", seed=1, mirror="memory://m"))
    assert Mirror("memory://m").whole() == {"step-00000000", "step-00000004"}


def test_a_place_that_answers_late_is_looked_at_before_anything_is_copied(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_run(tmp_path / "run", budget="8steps", mirror="memory://m", until=0.5))
    exists, faults, said = type(place).exists, iter([True]), list[str]()

    def late(files: Any, path: str, **_: Any) -> bool:
        if next(faults, False):
            raise TimeoutError("asleep")
        return bool(exists(files, path))

    monkeypatch.setattr(type(place), "exists", late)
    run = tiny_run(tmp_path / "lost", budget="2steps", mirror="memory://m")
    run.say = said.append
    assert train(run).finished and "TimeoutError: asleep" in said[0]
    assert any("CheckpointError: --mirror memory://m: holds the checkpoint of step 4" in one for one in said)
    assert Mirror("memory://m").whole() == {"step-00000000", "step-00000004"}


def test_the_run_folder_is_no_mirror_of_itself_and_stages_have_places_of_their_own(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}"):
        with pytest.raises(UserError, match="is the folder of the run itself"):
            Mirror(url).require_usable(tmp_path)
    Mirror(str(tmp_path / "copy")).require_usable(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be used: (File exists|Not a directory)"):
        Mirror(str(tmp_path / "file")).require_usable(tmp_path)
    assert join_url("s3://bucket/run/", Path("cloze/stages/general")) == "s3://bucket/run/cloze/stages/general"


@pytest.mark.parametrize(("url", "error"), [
    ("s3://key:secret@bucket/run", "holds a name or a password"),
    ("S3://key:secret@bucket/run", "holds a name or a password"),
    ("simplecache::s3://key:secret@bucket/run", "holds a name or a password"),
    ("", "--mirror: is empty"),
    ("nowhere://bucket/run", "--mirror nowhere://bucket/run: .*Expected a URL such as s3://bucket/run"),
])  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, error: str) -> None:
    with pytest.raises(UserError, match=error) as caught:
        Mirror(url)
    assert "secret" not in str(caught.value)
