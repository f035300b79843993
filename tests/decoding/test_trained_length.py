"""The length of the rows of training, and the note about scores of longer texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloze
from cloze.cli.main import main
from cloze.decoding.lengths import trained_length
from cloze.runs.run import pretrain
from tests.small_recipe import MINE

SMALL = (("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4"))


def test_the_longest_rows_are_those_of_a_phase_or_of_a_source() -> None:
    assert trained_length(None) is None
    published = [trained_length(cloze.load_recipe(name).canonical()) for name in ("bert", "gpt2")]
    assert published == [512, 1024]
    fitted = cloze.load_recipe("bert", overrides=["schedule[0].set.length=64", "schedule[1].set.length=96"])
    assert trained_length(fitted.canonical()) == 96


def test_scores_of_texts_longer_than_the_rows_of_training_have_a_note(
    little_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MINE
    for old, new in SMALL:
        text = text.replace(old, new)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    pretrain(tmp_path / "mine.yaml", corpus=little_text, out=tmp_path / "run", budget="1steps", report=lambda line: None)
    (tmp_path / "long.txt").write_text("the old cat sleeps in " * 5, encoding="utf-8")

    def note(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["score", str(tmp_path / "run"), *arguments]) == 0
        return capsys.readouterr().err

    for texts in (["the old cat sleeps in " * 5], ["--corpus", str(tmp_path / "long.txt")]):
        assert "this run was trained on at most 16" in note(*texts) and "--max-length 16" in note(*texts)
        assert note(*texts, "--max-length", "16") == ""
    assert note("the old cat") == ""
