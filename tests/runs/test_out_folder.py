"""Taking the folder that --out names: one process at a time, and a result is never lost."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cloze.errors import CheckpointError, RunError
from cloze.runs import out_folder
from cloze.runs.out_folder import claimed, require_usable
from cloze.training.checkpoints.lock import LOCK

COMMAND = ("cloze", "finetune", "BASE", "--train", "a.tsv", "--out", "out")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder as another process does."""
    (folder / LOCK).parent.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w+") as file:
        file.write("pid 1")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(folder: Path, what: str, *, finished: bool = True, command: tuple[str, ...] = COMMAND) -> None:
    """A result of fine-tuning, or an unfinished run with a checkpoint."""
    (folder / "cloze" / "checkpoints" / "step-00000000").mkdir(parents=True)
    (folder / "weights").write_text(what)
    (folder / "cloze" / "task.json").write_text(json.dumps({"trials": []} if finished else {}))
    record = {"recipe_hash": "", "seed": 1, "budget": "1steps", "command": command}
    (folder / "cloze" / "run.json").write_text(json.dumps(record))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=[True, False], ids=["exchange", "two-renames"])
def out(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a result, where names can be exchanged and where they cannot."""
    if not request.param:
        monkeypatch.setattr(out_folder, "exchange", lambda one, other: False)
    write(tmp_path / "out", "old")
    return tmp_path / "out"


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckpointError, MemoryError])
def test_a_result_comes_back_if_the_run_that_replaces_it_wrote_no_checkpoint(out: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), claimed(out, overwrite=True, command=COMMAND):
        assert names(out) == (["cloze"]) and names(out / "cloze") == ["lock"]
        (out / "cloze" / "run.json").write_text("{}")
        raise error
    assert (out / "weights").read_text() == "old" and names(out.parent) == ["out"]


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(out: Path) -> None:
    aside = out.with_name(".out.replaced")
    out.rename(aside)
    (out / "cloze").mkdir(parents=True)
    (out / "cloze" / "run.json").write_text("{}")
    require_usable(out, overwrite=True, command=COMMAND)
    with claimed(out, overwrite=True, command=COMMAND):
        assert names(out) == ["cloze"] and (aside / "weights").read_text() == "old"
        (out / "cloze" / "task.json").write_text('{"trials": []}')
    assert names(out.parent) == ["out"] and names(out) == ["cloze"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckpointError, MemoryError])
def test_a_run_that_fails_keeps_its_checkpoints_and_the_result_that_it_replaces(out: Path, error: type[BaseException]) -> None:
    said: list[str] = []
    aside = out.with_name(".out.replaced")
    for attempt in ("first", "resumed"):
        with pytest.raises(error), claimed(out, overwrite=True, command=COMMAND, say=said.append):
            if attempt == "first":
                write(out, "new", finished=False)
            raise error
        assert (out / "weights").read_text() == "new" and (aside / "weights").read_text() == "old"
    assert said == [f"{aside}: keeps the previous contents of --out until this run has finished."] * 2
    with pytest.raises(CheckpointError, match="holds an unfinished run of another command. That run replaces a result, which is"):
        require_usable(out, overwrite=True, command=(*COMMAND, "--set", "training.epochs=9"))
    with claimed(out, command=COMMAND):
        (out / "cloze" / "task.json").write_text('{"trials": []}')
    assert (out / "weights").read_text() == "new" and names(out.parent) == ["out"]


@pytest.mark.parametrize("wrote", [False, True])
def test_a_process_that_was_killed_is_followed_by_one_that_finds_old_or_new(out: Path, tmp_path: Path, wrote: bool) -> None:
    killed = tmp_path / "killed"
    with suppress(MemoryError), claimed(out, overwrite=True, command=COMMAND):
        if wrote:
            write(out, "new", finished=False)
        shutil.copytree(tmp_path, killed, ignore=shutil.ignore_patterns("killed"))  # what a kill would leave now
        raise MemoryError
    with pytest.raises(CheckpointError, match="no") if wrote else pytest.raises(MemoryError), claimed(killed / "out"):
        raise CheckpointError("no") if wrote else MemoryError
    assert (killed / "out" / "weights").read_text() == ("new" if wrote else "old")
    assert names(killed) == ([".out.replaced", "out"] if wrote else ["out"])


def test_a_kill_between_two_renames_loses_nothing(out: Path) -> None:
    out.rename(out.with_name(".out.replaced"))
    with claimed(out):
        assert (out / "weights").read_text() == "old"
    assert names(out.parent) == ["out"]


def test_an_unfinished_run_of_the_same_command_resumes_and_of_another_is_replaced(tmp_path: Path) -> None:
    for command, seen in ((COMMAND, ["cloze", "weights"]), (("cloze", "finetune", "OTHER"), ["cloze"])):
        out = tmp_path / f"{len(command)}" / "out"
        write(out, "half", finished=False, command=(*COMMAND[:-2], "--test", "t.tsv", "--keep-checkpoints", *COMMAND[-2:]))
        with claimed(out, overwrite=True, command=command):
            assert names(out) == seen
        assert (out / "weights").read_text() == "half"


def test_a_folder_in_which_another_process_trains_is_refused_and_untouched(out: Path) -> None:
    with held(out):
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        for take in (lambda: require_usable(out, overwrite=True), lambda: claimed(out, overwrite=True).__enter__()):
            with pytest.raises(CheckpointError, match=r"another process \(pid 1\) is training in this folder"):
                take()
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before and names(out.parent) == ["out"]


@pytest.mark.parametrize("found", [
    (["notes.txt"], False, "holds notes.txt, which no run of cloze wrote"),
    (["notes.txt"], True, "already exists, and cloze finetune did not write it; --overwrite does not delete it"),
    (["cloze/checkpoints/step-00000004/x"], True, "already exists, and cloze finetune did not write it"),
    (["cloze/task.json", "config.json"], False, "already holds a fine-tuned model. Choose another --out, or replace it with"),
])  # fmt: skip
def test_only_what_was_fine_tuned_is_ever_overwritten(tmp_path: Path, found: tuple[list[str], bool, str]) -> None:
    files, overwrite, message = found
    for name in files:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("{}")
    with pytest.raises(CheckpointError, match=message):
        require_usable(tmp_path / "out", overwrite=overwrite)
    assert all((tmp_path / "out" / name).read_text() == "{}" for name in files)


@pytest.mark.parametrize("overwrite", [False, True])
def test_text_that_an_interrupted_run_has_read_is_kept(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "out" / "cloze" / "corpus").mkdir(parents=True)
    with claimed(tmp_path / "out", overwrite=overwrite):
        assert (tmp_path / "out" / "cloze" / "corpus").is_dir()
    assert names(tmp_path) == ["out"]


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="file/out: cannot be created: not a directory. Choose another --out"):
        require_usable(tmp_path / "file" / "out")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(CheckpointError, match=r"you cannot write to .*\. Choose another --out"):
        require_usable(tmp_path / "new" / "out", overwrite=False)


def test_of_several_processes_the_first_alone_replaces(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(out_folder, "WAIT", 0.0)
    with pytest.raises(RunError, match="rank 0 has not taken this folder after 0 s"), claimed(out, overwrite=True):
        pass
    with claimed(out):
        pass
    assert (out / "weights").read_text() == "old" and names(out.parent) == ["out"]
