"""Checkpoints: what is kept, what damage is told, and what a full disk leaves."""

from __future__ import annotations

import errno
import json
import resource
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny import tiny_run, weights

from cloze.errors import CheckpointError, RunError
from cloze.training.checkpoints import checkpoint as module
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.loop import train
from cloze.training.tensors import read_tensors, sha256, write_tensors

STATE = {"spent": {}, "cursors": {}, "held_out_losses": []}


def save(folder: Path, step: int, **changes: object) -> Checkpoints:
    keeper = Checkpoints(folder, **changes)
    tensors = {"weight": torch.full((3,), float(step))}
    keeper.save(
        {"step": step, **STATE},
        parameters=tensors,
        optimizer={},
        export=lambda f: (f / "config.json").write_text(str(step)),
    )
    return keeper


def test_tensors_are_written_as_safetensors_reads_them(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 4).t(),
        "b": torch.tensor(2**40),
        "c": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 5),
        "flag": torch.tensor([True, False]),
        "half": torch.tensor(1.5, dtype=torch.float16),
    }
    checksum = write_tensors(tmp_path / "t.safetensors", tensors)
    assert checksum == sha256(tmp_path / "t.safetensors")
    for read in (load_file(tmp_path / "t.safetensors"), read_tensors(tmp_path / "t.safetensors")):
        assert read.keys() == tensors.keys()
        assert all(
            torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items()
        )


def test_the_last_two_the_named_and_step_zero_are_kept(tmp_path: Path) -> None:
    for step in (0, 10, 20, 30, 40):
        keeper = save(tmp_path, step, keep=2, keep_steps=(10,))
    assert keeper.steps() == [0, 10, 30, 40]
    assert (tmp_path / "config.json").read_text() == "40"


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    keeper = save(tmp_path, 7)
    state, parameters, optimizer = keeper.load()
    assert state["step"] == 7 and parameters["weight"].tolist() == [7.0] * 3 and optimizer == {}


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_damaged_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("run")
    keeper = save(folder, 3)
    file = keeper.path(3) / "state" / "parameters.safetensors"
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged.*checksum"):
        keeper.load()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda state: (state / "parameters.safetensors").write_bytes(b"short"),
            r"parameters\.safetensors has 5 bytes of",
        ),
        (lambda state: (state / "optimizer.safetensors").unlink(), r"optimizer\.safetensors has no bytes of"),
        (lambda state: (state / "state.json").unlink(), r"state/state\.json is missing"),
        (lambda state: (state / "state.json").write_text("{"), r"state\.json is missing or cannot be read"),
        (lambda state: (state / "state.json").write_text("{}"), r"state\.json lacks entries"),
        (lambda state: shutil.rmtree(state), "missing"),
    ],
)
def test_a_damaged_checkpoint_says_what_and_where_to_go_on(tmp_path: Path, damage: object, message: str) -> None:
    save(tmp_path, 4)
    keeper = save(tmp_path, 8)
    damage(keeper.path(8) / "state")
    with pytest.raises(CheckpointError, match=rf"(?s)step-00000008.*{message}.*continues from step 4"):
        keeper.load()


def test_a_checkpoint_of_another_format_is_refused_with_both_formats(tmp_path: Path) -> None:
    keeper = save(tmp_path, 4)
    (keeper.path(4) / "state" / "state.json").write_text('{"version": 7, "moments": {}}')
    with pytest.raises(CheckpointError, match="checkpoint format 7; this cloze reads format 1. Use the version of cloze that"):
        keeper.load()


def test_a_checkpoint_of_another_shape_names_the_parameter(tmp_path: Path) -> None:
    from cloze.training.checkpoints.state import load_parameters

    with pytest.raises(
        CheckpointError, match=r"'weight' has the shape \(3,\) in the checkpoint and \(1, 2\) in this run"
    ):
        load_parameters(torch.nn.Linear(2, 1, bias=False), {"weight": torch.zeros(3)}, where="here")


def test_half_written_folders_are_ignored_and_removed(tmp_path: Path) -> None:
    keeper = save(tmp_path, 1)
    (keeper.folder / ".step-00000002.partial").mkdir()
    assert keeper.steps() == [1]
    save(tmp_path, 3)
    assert sorted(path.name for path in keeper.folder.iterdir()) == ["step-00000001", "step-00000003"]


def test_publishing_twice_leaves_no_litter(tmp_path: Path) -> None:
    keeper = save(tmp_path, 10)
    (keeper.folder / ".step-00000005.removed").mkdir()  # a process was killed while it removed an old checkpoint
    keeper.publish_last()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["config.json"]
    assert [path.name for path in keeper.folder.iterdir()] == ["step-00000010"]


def test_publishing_copies_where_links_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(module.os, "link", no_links)
    save(tmp_path, 5)
    assert (tmp_path / "config.json").read_text() == "5"


def test_a_full_disk_leaves_the_checkpoint_before_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def full(path: Path, tensors: object) -> str:
        path.write_bytes(b"a part of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_tensors", full)
    with pytest.raises(
        RunError, match=r"(?s)the disk is full.*The checkpoint of step 1 is whole.*run the same command"
    ) as caught:
        save(tmp_path, 2)
    assert caught.value.exit_code == 1
    keeper = Checkpoints(tmp_path)
    assert [path.name for path in keeper.folder.iterdir()] == ["step-00000001"]
    assert keeper.load()[0]["step"] == 1 and (tmp_path / "config.json").read_text() == "1"


def test_a_run_on_a_full_disk_ends_with_a_message_and_goes_on_later(tmp_path: Path) -> None:
    """The kernel itself refuses the write: no file may grow to the size of Adam's moments."""
    train(tiny_run(tmp_path / "whole", budget="8steps"))
    limit = max(path.stat().st_size for path in (tmp_path / "whole").rglob("step-00000004/state/*.safetensors")) - 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(RunError, match=r"(?s)step-00000004.*the disk is full.*The checkpoint of step 0 is whole"):
            train(tiny_run(tmp_path / "run", budget="8steps"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert train(tiny_run(tmp_path / "run", budget="8steps")).finished
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_the_state_is_plain_json(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, budget="2steps"))
    state = json.loads((tmp_path / "cloze/checkpoints/step-00000002/state/state.json").read_text())
    assert state["spent"]["steps"] == 2 and state["budget"] == "2steps" and state["recipe_hash"] == "hash"
