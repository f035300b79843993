"""The frame of the command line: overview, unknown commands, errors, exit codes, speed."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.main import get_command

from cloze.cli import commands
from cloze.cli import main as frame
from cloze.cli.commands import load_command
from cloze.errors import CorpusError, MissingExtra, RunError


def verb(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
    """Replace the module behind `cloze check` by one whose command raises `error`."""

    def command(name: str = "x") -> None:
        """A verb for this test."""
        if error is not None:
            raise error
        print(f"hello {name}")

    monkeypatch.setattr(commands, "import_module", lambda _: SimpleNamespace(command=command))


def test_the_overview_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in frame.COMMANDS)
    assert len(shown.splitlines()) <= 48 and max(map(len, shown.splitlines())) <= 100


def test_the_overview_is_fast_and_loads_neither_torch_nor_typer() -> None:
    code = (
        "import sys; from cloze.cli.main import main; main(['--help']); "
        "sys.exit(bool({'torch', 'typer', 'numpy'} & set(sys.modules)))"
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5


def test_the_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    from cloze import __version__

    assert frame.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cloze {__version__}\n"


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["finetun"]) == 2
    assert capsys.readouterr().err == (
        "cloze: unknown command 'finetun'. Did you mean 'finetune'?\n  cloze --help lists every command.\n"
    )


def test_an_unknown_command_of_a_command_is_answered_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["corpus", "buidl", "text"]) == 2
    assert capsys.readouterr().err == (
        "cloze corpus: unknown command 'buidl'. Did you mean 'build'?\n  More: cloze corpus --help\n"
    )


def test_a_verb_gets_its_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    verb(monkeypatch)
    assert frame.main(["check", "--name", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"


def test_a_wrong_option_is_wrong_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    verb(monkeypatch)
    assert frame.main(["check", "--nam", "you"]) == 2
    assert "--nam" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CorpusError("a.txt: empty."), 2, "cloze check: a.txt: empty.\n"),
        (RunError("the loss is not finite."), 1, "cloze check: the loss is not finite.\n"),
        (MissingExtra("pyarrow", "parquet", "reading Parquet"), 2, "pip install \"cloze-lm[parquet]\""),
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), 1, "disk full while writing runs/a."),
        (ValueError("I/O error: No space left on device (os error 28)"), 1, "cloze check: disk full."),
        (FileNotFoundError(errno.ENOENT, "No such file", "nowhere.tsv"), 2, "cloze check: nowhere.tsv: no such file."),
        (PermissionError(errno.EACCES, "Permission denied", "locked"), 2, "cloze check: locked: permission denied."),
        (MemoryError(), 1, "out of memory. Read fewer or shorter texts at once"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), 1, "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), 1, "out of memory"),
        (ModuleNotFoundError("No module named 'typer'", name="typer"), 2, "the package typer is not installed in this Python"),
        (ModuleNotFoundError("No module named 'cloze.x'", name="cloze.x"), 1, "This is a bug in cloze."),
        (ZeroDivisionError("by zero"), 1, "unexpected ZeroDivisionError: by zero\n  This is a bug in cloze."),
    ],
)  # fmt: skip
def test_errors_become_a_message_and_an_exit_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CLOZE_DEBUG", raising=False)
    verb(monkeypatch, error)
    assert frame.main(["check"]) == code
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown


@pytest.mark.parametrize("name", sorted(frame.LESS_MEMORY))
def test_what_helps_when_memory_is_short_are_options_that_the_verb_has(name: str) -> None:
    said = frame.describe_error(MemoryError(), name)[0].partition("or --tune")[0]
    known = {option for one in get_command(load_command(name)).params for option in one.opts}
    assert {word.rstrip(".,") for word in said.split() if word.startswith("--")} <= known


def test_an_interruption_leaves_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    verb(monkeypatch, KeyboardInterrupt())
    assert frame.main(["check"]) == 130


@pytest.mark.parametrize(
    ("leave", "code"), [(KeyboardInterrupt(), 130), (SystemExit("words"), 1), (SystemExit(3), 3), (SystemExit(), 0)]
)
def test_leaving_before_a_verb_begins_has_an_exit_code(
    leave: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        raise leave

    monkeypatch.setattr(frame, "load_command", load)
    assert frame.main(["check"]) == code


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLOZE_DEBUG", "1")
    verb(monkeypatch, CorpusError("a.txt: empty."))
    assert frame.main(["check"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_not_an_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m cloze --help | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("cloze:") and done.stderr == ""


def test_reporting_a_folder_that_is_no_run_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["report", str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err


def test_help_texts_name_what_an_option_does(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, said in (
        ("finetune", ["Continue a finished run with more training.epochs.", "Labelled text that selects the best epoch."]),
        ("score", ["With --pointer: the weight in the mixture, usually 0.1.", "With --memory: the largest distance."]),
    ):
        assert frame.main([verb, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert [text for text in said if text not in shown] == []
