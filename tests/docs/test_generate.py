"""docs/howto/generate.md: its commands are run from top to bottom with smaller budgets, and its tables name the options."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import cloze
from cloze.cli.use.generate import command
from cloze.decoding.generating.options import WritingOptions

from . import test_tour
from .test_tour import blocks, run_commands

ENGLISH = Path(cloze.__file__).parent / "samples" / "english.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "generate.md"


def test_the_page_on_generation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_tour, "STEPS", "1steps")
    Path("text.txt").write_text(ENGLISH.read_text(encoding="utf-8")[:60_000], encoding="utf-8")
    ran = []
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        ran.append(block.language)
        if block.language == "sh":
            run_commands(block, capsys)
        else:
            exec(compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec"), {"cloze": cloze})
            assert len(capsys.readouterr().out.splitlines()) >= 2
    assert ran.count("sh") == 6 and ran[-1] == "python"


def test_the_page_names_every_option_of_generate() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"--([a-z][a-z-]*)", page))
    wanted = {name.replace("_", "-") for name in WritingOptions.__annotations__} - {"best"} | {"draft", "draft-tokens", "stream"}
    assert wanted <= named
    known = {name.replace("_", "-") for name in inspect.signature(command).parameters} | {"greedy"}
    others = {"size", "set", "corpus", "budget", "out", "tokenizer", "recipe"}
    assert named <= known | others
