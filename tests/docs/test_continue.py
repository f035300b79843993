"""docs/howto/continue.md: its commands are run from top to bottom with smaller budgets, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint

from . import test_tour
from .test_tour import blocks, run_commands

ENGLISH = Path(cloze.__file__).parent / "samples" / "english.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "continue.md"


def test_the_page_on_domains_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_tour, "STEPS", "2steps")
    text = ENGLISH.read_text(encoding="utf-8")
    half = text[len(text) // 2 :]
    for name, part in (("general", text[: len(text) // 2]), ("domain", half), ("later", half[: len(half) // 2]),
                       ("news", text[:400])):
        Path(f"{name}.txt").write_text(part, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    for name, recipe in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", page, re.DOTALL):
        Path(name).write_text(recipe, encoding="utf-8")
    for block in blocks(page):
        if block.language == "sh":
            run_commands(block, capsys)
    first, *rest = [load_checkpoint(name) for name in ("my-bert", "my-domain-bert", "my-newer-bert")]
    begun = load_checkpoint("my-domain-bert/cloze/checkpoints/step-00000000")
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(begun.network.state_dict()[name], tensor), name
    assert {loaded.tokenizer.hash for loaded in rest} == {first.tokenizer.hash}
    words, table = load_checkpoint("my-word-bert/cloze/checkpoints/step-00000000"), first.network.token_tables["tokens"].weight
    assert words.tokenizer.size > first.tokenizer.size
    found = words.network.token_tables["tokens"].weight
    assert torch.equal(found[: len(table)], table)
    for number in range(len(table), words.tokenizer.size):
        pieces = first.tokenizer.encode(words.tokenizer.piece(number)).ids.tolist()
        torch.testing.assert_close(found[number], table[pieces].mean(0))
