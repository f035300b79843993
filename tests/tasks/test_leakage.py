"""Rows of a dev or test file that are also training rows, and a test file that a resumed run still knows."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import cloze
from cloze.cli.main import main
from cloze.training.run_progress import RunProgress

ROWS = [("the cat saw 2", "a"), ("the rain saw 3", "b"), ("the mice saw 2", "a")]


def rows(*numbers: int) -> str:
    lines = [f"the {'rain' if number % 2 else 'cat'} saw {number}\t{'b' if number % 2 else 'a'}" for number in numbers]
    return "\n".join(["text\tlabel", *lines]) + "\n"


def test_shared_rows_are_counted_and_a_resumed_run_measures_the_test_file(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder("bert"), "base")
    texts = {"train": rows(*range(12)), "dev": rows(1, 2, 3, 20).replace("saw 3", "saw  3"), "test": rows(11, 30, 31)}
    for name, text in {**texts, "clean": rows(40, 41)}.items():
        Path(f"{name}.tsv").write_text(text)
    real = RunProgress.advance

    def stop(run_progress: RunProgress, *given: object, **named: object) -> object:
        if run_progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(run_progress, *given, **named)  # type: ignore[arg-type]

    files = "--train train.tsv --dev dev.tsv"
    command = f"finetune base --task sentence_classification {files} --set length=16 --set training.batch=4"
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "advance", stop)
        options = ["--set", "training.epochs=2", "--test", "test.tsv", "--out", "out", "--device", "cpu"]
        assert main([*command.split(), *options]) == 143
    said = capsys.readouterr().err
    high = "that the model is trained on: scores on this file are too high\n"
    notes = [f"note: 3 of 4 rows of dev.tsv (75%) have texts {high}", f"note: 1 of 3 rows of test.tsv (33%) has a text {high}"]
    assert all(note in said for note in notes)
    resume = said.splitlines()[-1].removeprefix("To resume: ")
    assert resume == f"cloze {command} --set training.epochs=2 --test test.tsv --out out"
    assert main(["show", "out"]) == 0
    assert f"next:\n  {resume}\n" in capsys.readouterr().out
    assert main([*shlex.split(resume)[1:], "--device", "cpu"]) == 0
    result = capsys.readouterr().out
    assert "\ntest accuracy: " in result and all(f"\n{note}" in result for note in notes)
    described = json.loads(Path("out/cloze/task.json").read_text())
    assert {note.removeprefix("note: ").rstrip() for note in notes} <= set(described["remarks"])
    assert not Path("out/cloze/checkpoints").exists()

    assert main(["evaluate", "out", "test.tsv", "--device", "cpu"]) == 0
    assert notes[1] in capsys.readouterr().err
    Path("test.data").write_bytes(Path("test.tsv").read_bytes())  # a name that does not tell the format
    assert main(["evaluate", "out", "test.data", "--format", "tsv", "--device", "cpu"]) == 0
    assert notes[1].replace("test.tsv", "test.data") in capsys.readouterr().err
    assert main(["evaluate", "out", "clean.tsv", "--device", "cpu"]) == 0
    assert "note: " not in capsys.readouterr().err
    model = cloze.load("out", device="cpu")
    told = [(Path("test.tsv"), "1 of 3 rows of test.tsv (33%) has a text"), (ROWS, "2 of 3 rows (67%) have texts")]
    for given, words in told:
        with pytest.warns(UserWarning, match=f"^{re.escape(words)} that the model is trained on: scores on th"):
            model.evaluate(given)
    model.evaluate([("a text that is new", "a")])
