"""docs/tour.md is run from top to bottom; only its budgets, its text and its batches are made smaller."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cloze.cli.main import main

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
STEPS = "3steps"
#: What is made smaller: the documents and their lengths, batches and rows.
SMALLER = {
    "100, 400": "250, 370", '"text": document.text': '"text": document.text[:1500]',
    "--set training.batch=32": "--set training.batch=4 --set length=48", "--set training.batch=16": "--set training.batch=4",
    "--set corpus.passages.length=128": "--set corpus.passages.length=48",
}


class Block(NamedTuple):
    """A fenced block of the document and the line on which its code begins."""

    language: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


def run_commands(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is a `cloze` command and must succeed."""
    for offset, line in enumerate(block.code.splitlines()):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "cloze", f"tour.md:{block.line + offset}: only cloze commands are run: {line}"
        words = [STEPS if before == "--budget" else word for before, word in zip(["", *words], words, strict=False)]
        code = main(words[1:])
        shown = capsys.readouterr()
        assert code == 0, f"tour.md:{block.line + offset}: {line}\n{shown.err}"


def run_session(block: Block, names: dict[str, Any]) -> None:
    """An interactive session, whose answers must be those of the document."""
    session = doctest.DocTestParser().get_doctest(block.code, names, "tour.md", str(TOUR), block.line)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(session, out=said.append, clear_globs=False)
    names.update(session.globs)
    assert runner.failures == 0, "".join(said)


def test_the_tour_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "tour"}
    ran: set[str] = set()
    text = TOUR.read_text(encoding="utf-8")
    for before, after in SMALLER.items():
        assert before in text, f"tour.md no longer says {before!r}"
        text = text.replace(before, after)
    for block in blocks(text):
        ran.add(block.language)
        if block.language == "sh":
            run_commands(block, capsys)
        elif block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.code, str(TOUR), "exec"), names)
        elif block.language == "pycon":
            run_session(block, names)
        else:
            pytest.fail(f"tour.md:{block.line}: a block of an unknown kind {block.language!r}")
    assert ran == {"sh", "python", "pycon"}
