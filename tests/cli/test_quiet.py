"""`--quiet` and `--verbose`: what they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.cli import main as frame

TEXT = "The cat sleeps here.\nA dog runs there.\n\nFish swim in the sea.\nBirds fly over it.\n\n" * 40


def pretrain(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[str, str]:
    (folder / "text.txt").write_text(TEXT)
    given = ["pretrain", "bert", "--size", "tiny", "--corpus", str(folder / "text.txt"), "--budget", "2steps", "--device", "cpu"]
    assert frame.main([*given, "--out", str(folder / "run"), *more]) == 0
    return capsys.readouterr()


def test_a_quiet_run_prints_nothing_and_a_verbose_one_its_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert pretrain(tmp_path / "one", capsys, "--quiet") == ("", "")
    assert (tmp_path / "one" / "run" / "model.safetensors").is_file()
    assert frame.main(["embed", str(tmp_path / "one" / "run"), "the cat sleeps here", "a", "--length", "4", "--json"]) == 0
    assert "note: 1 of 2 texts are longer than 4 tokens and lost their end" in capsys.readouterr().err  # none does so in silence
    said = pretrain(tmp_path / "two", capsys, "--verbose").err  # type: ignore[attr-defined]
    assert "  rate " in said and "  gradient " in said and "held-out loss of main: " in said


def test_a_quiet_command_still_tells_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["pretrain", "bert", "--corpus", str(tmp_path / "no.txt"), "--out", str(tmp_path / "run"), "-q"]) == 2
    assert "no.txt" in capsys.readouterr().err


def test_a_quiet_build_of_a_corpus_prints_nothing_and_a_verbose_one_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(TEXT)
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    given = ["corpus", "build", *files, "--size", "100", "--workers", "1", "--out"]
    assert frame.main([*given, str(tmp_path / "one"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert frame.main([*given, str(tmp_path / "two"), "--verbose"]) == 0
    said = capsys.readouterr().out
    assert all(f"{file}: read as sentence: nearly every line is one sentence" in said for file in files)
