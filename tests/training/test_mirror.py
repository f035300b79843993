"""Copies of checkpoints elsewhere: whole ones only, tried again, and never a reason to stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_run, weights

from cloze.errors import UserError
from cloze.training import mirror as module
from cloze.training.loop import train
from cloze.training.mirror import Mirror

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
    assert sum("could not be given copies of all checkpoints: TimeoutError: slow down" in one for one in said) == 2


@pytest.mark.parametrize(("url", "error"), [
    ("s3://key:secret@bucket/run", "holds a name or a password"),
    ("nowhere://bucket/run", "--mirror nowhere://bucket/run: .*Expected a URL such as s3://bucket/run"),
])  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, error: str) -> None:
    with pytest.raises(UserError, match=error) as caught:
        Mirror(url)
    assert "secret" not in str(caught.value)
