"""The last line of a command: what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.cli.hints import suggest
from cloze.cli.main import main


def test_a_suggested_command_is_quoted_for_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    suggest("cloze", "show", Path("my run"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "Next: cloze show 'my run'\n")


def test_a_store_that_was_built_says_what_reads_it_unless_it_is_to_be_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("rain falls on the roof.\n" * 30)
    build = ["corpus", "build", str(text), "--recipe", "word2vec-cbow", "--workers", "1"]
    assert main([*build, "--out", str(tmp_path / "a store")]) == 0
    expected = f"Next: cloze pretrain word2vec-cbow --corpus '{tmp_path}/a store' --budget 10m --out RUN"
    assert capsys.readouterr().err.splitlines()[-1] == expected
    assert main([*build, "--out", str(tmp_path / "another"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_word_vectors_that_were_written_or_imported_say_how_to_look_at_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors, made = tmp_path / "v.txt", tmp_path / "made"
    vectors.write_text("2 3\nrain 1 2 3\nroof 3 2 1\n")
    assert main(["import", str(vectors), "--out", str(made)]) == 0
    assert capsys.readouterr().err == f"Next: cloze show {made}\n"
    assert main(["export", str(made), str(tmp_path / "back.txt")]) == 0
    assert capsys.readouterr().err == f"Next: cloze neighbours {tmp_path}/back.txt WORD\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compress", "RUN"], "cloze compress: --out is missing: the new folder.\n  All options: cloze compress --help\n"),
        (["compress", "RUN", "--outt", "x"], "cloze compress: No such option: --outt"),
        (["corpus", "build"], "cloze corpus: "),
        (
            ["finetune", "RUN", "--budget", "5m"],
            "cloze finetune: No such option: --budget. The recipe has this value: --set training.epochs=N\n",
        ),
        (
            ["finetune", "RUN", "--lr", "1e-4"],
            "cloze finetune: No such option: --lr. The recipe has this value: --set training.rate.peak=X\n",
        ),
    ],
)
def test_a_missing_or_unknown_option_has_the_form_of_all_errors(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(told) and "Usage:" not in shown
