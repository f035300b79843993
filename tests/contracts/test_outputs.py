"""What a user's file or folder holds is never lost: every verb with `--out` refuses it, and names the way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cloze import atomic
from cloze.cli.commands import COMMANDS, load_command
from cloze.cli.main import describe_error, main
from cloze.errors import CheckpointError

TABLE = "text\tlabel\nthe cat\ta\nthe rain\tb\n"
#: The arguments of each verb that writes a file, which is named last, and what is already in that file.
FILES: dict[str, tuple[list[str], str]] = {
    "augment": (["t.tsv", "--with", "none", "--out", "f.tsv"], "already exists"),
    "corpus sounds": (["a.txt", "--out", "f.npz"], "already exists"),
    "embed": (["none", "a text", "--out", "f.npy"], "already exists"),
    "embed --layers": (["none", "a text", "--layers", "all", "--out", "f.npz"], "already exists"),
    "export": (["none", "f.vec"], "already exists"),
    "features": (["pictures", "--grid", "2", "--out", "f.npz"], "already exists"),
    "link": (["a.txt", "--entities", "e.tsv", "--out", "f.jsonl"], "holds something else than mentions"),
    "look": (["none", "a text", "--out", "f.html"], "holds something else than a page of cloze"),
    "peek": (["quick", "--corpus", "a.txt", "--html", "f.html"], "holds something else than a page of cloze"),
    "predict": (["tuned", "a text", "--out", "f.jsonl"], "holds something else than predictions"),
    "report": (["run", "--out", "f.html"], "holds something else than a page of cloze"),
    "retrieve": (["none", "a query", "--passages", "a.txt", "--out", "f.jsonl"], "already exists"),
    "speed": (["none", "--out", "f.json"], "already exists"),
    "vocab assign": (["none", "none", "--out", "f.npz"], "already exists"),
    "vocab mentions": (["none", "a.txt", "--out", "f.txt"], "already exists"),
    "words classes": (["none", "--out", "f.txt"], "already exists"),
    "words retrofit": (["none", "--lexicon", "a.txt", "--out", "f.vec"], "already exists"),
}
#: The arguments of each verb that writes a folder, which is named last.
FOLDERS: dict[str, list[str]] = {
    "best": ["--corpus", "a.txt", "--train", "t.tsv", "--budget", "2steps", "--out", "d"],
    "compare": ["quick", "bert", "--corpus", "a.txt", "--budget", "2steps", "--task", "m=t.tsv,u.tsv,v.tsv", "--out", "d"],
    "compress": ["none", "--depth", "1", "--out", "d"],
    "corpus build": ["a.txt", "--out", "d"],
    "corpus pages": ["a.txt", "--out", "d"],
    "demo": ["--out", "d"],
    "export --to huggingface": ["none", "d", "--to", "huggingface"],
    "finetune": ["none", "--train", "t.tsv", "--dev", "t.tsv", "--out", "d"],
    "import": ["none", "--out", "d"],
    "pretrain": ["quick", "--corpus", "a.txt", "--budget", "2steps", "--out", "d"],
    "probe": ["geometry", "none", "--text", "a.txt", "--out", "d"],
    "sweep": ["quick", "--corpus", "a.txt", "--budget", "2steps", "--vary", "length=32,64", "--search", "grid", "--out", "d"],
    "vocab candidates": ["base", "--corpus", "a.txt", "--out", "d"],
    "vocab entities": ["none", "--vectors", "a.txt", "--out", "d"],
    "vocab visual": ["none", "--out", "d"],
}
#: Verbs that are tested elsewhere, and where.
ELSEWHERE = {"corpus join": "tests/runs/test_shard_building.py"}


def commands() -> Iterator[str]:
    """Every verb that has an option or an argument which names what is written."""

    def walk(name: str, command: Any) -> Iterator[str]:
        for inner, one in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {inner}", one)
        if any(parameter.name in ("out", "html") for parameter in command.params):
            yield name

    for verb in COMMANDS:
        yield from walk(verb, get_command(load_command(verb)))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("t", TABLE), ("u", TABLE.replace("cat", "dog")), ("v", TABLE.replace("cat", "cow"))):
        Path(f"{name}.tsv").write_text(text.replace("rain", f"rain {name}"))
    Path("a.txt").write_text("The cat sleeps.\n\nIt rains.\n" * 20)
    Path("e.tsv").write_text("e1\tcat\n")
    Path("pictures").mkdir()
    Path("none").mkdir()
    Path("tuned/cloze").mkdir(parents=True)
    task = '{"task": "sentence_classification", "columns": {}, "labels": ["a", "b"], "head": "classification"}'
    Path("tuned/cloze/task.json").write_text(task)
    Path("run/cloze").mkdir(parents=True)
    Path("run/cloze/log.jsonl").write_text("")
    return tmp_path


def test_every_verb_that_writes_is_tested() -> None:
    def verbs(table: Any) -> set[str]:
        return {name.partition(" --")[0] for name in table}

    assert verbs(FILES) | verbs(FOLDERS) | verbs(ELSEWHERE) == set(commands())


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_user_is_refused_and_stays(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, why = FILES[name]
    out = Path(arguments[-1])
    out.write_text("<title>mine</title>")
    assert main([*name.partition(" --")[0].split(), *arguments]) == 2
    assert f": {out}: {why}" in capsys.readouterr().err
    assert out.read_text() == "<title>mine</title>"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_user_is_refused_and_stays(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    held = {"probe": "probe.json", "demo": "packages-labelled.jsonl"}.get(name, "notes.txt")
    Path("d").mkdir()
    Path("d", held).write_text("mine")
    assert main([*name.partition(" --")[0].split(), *FOLDERS[name]]) == 2
    assert capsys.readouterr().err.startswith(f"cloze {name.split()[0]}: d")
    assert {path.name: path.read_text() for path in Path("d").iterdir()} == {held: "mine"}


def test_what_a_verb_has_written_itself_is_replaced_and_overwrite_replaces_the_rest() -> None:
    from cloze.reports.page import is_page

    page = Path("f.html")
    page.write_text("<html><title>a · cloze look</title>")
    atomic.require_output(page, what="a page of cloze", holds=is_page)
    atomic.require_output(page, overwrite=True)
    atomic.require_output(Path("new.npy"))


def test_a_new_folder_that_another_process_has_written_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="d: is not empty. Choose a new or empty folder"), atomic.whole_folder(
        tmp_path / "d", new=True
    ):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "theirs").write_text("theirs")
    assert os.listdir(tmp_path / "d") == ["theirs"] and not [one for one in os.listdir(tmp_path) if one.startswith(".")]


@pytest.mark.parametrize("target", ["f.npy", "deep/f.npy"])
def test_a_failure_to_write_names_what_the_user_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("deep").mkdir()

    def read_only(prefix: str, dir: Path) -> str:
        raise OSError(errno.EROFS, "Read-only file system", f"{dir}/{prefix}7qz1ojzy")

    with pytest.raises(OSError) as inside, atomic.whole_file(Path(target)) as stage:
        raise OSError(errno.ENOSPC, "No space left on device", str(stage))
    monkeypatch.setattr(atomic.tempfile, "mkdtemp", read_only)
    with pytest.raises(OSError) as before, atomic.whole_file(Path(target)):
        pass
    assert describe_error(before.value) == (f"{target}: read-only file system.", 2)
    expected = f"disk full while writing {target}. Free some space and run the same command again."
    assert describe_error(inside.value, "embed") == (expected, 1)
    resumes = "It continues from its last checkpoint, if it has written one."
    assert describe_error(inside.value, "finetune")[0] == f"{expected} {resumes}"
