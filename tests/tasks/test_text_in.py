"""`cloze predict` on texts, files of lines and standard input; what was cut; intervals of `cloze evaluate`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloze.cli.main import main
from cloze.errors import UserError

Tuned = Callable[..., Path]


@pytest.fixture
def cloze(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command line: exit code, records printed, standard error."""

    def run(*arguments: Any) -> Any:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        rows = [json.loads(line) for line in captured.out.splitlines()] if captured.out.startswith('{"line"') else []
        return SimpleNamespace(code=code, out=captured.out, err=captured.err, rows=rows)

    return run


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))


def test_a_text_its_file_its_table_and_standard_input_are_answered_alike(
    cloze: Any, tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the cat sleeps", "rain on the garden"]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "new.tsv").write_text("\n".join(["text", *texts]) + "\n")
    argued = cloze("predict", tuned(), *texts)
    assert argued.code == 0 and [row["text"] for row in argued.rows] == texts and [row["line"] for row in argued.rows] == [1, 2]
    assert cloze("predict", tuned(), tmp_path / "new.txt").rows == argued.rows
    for more in ([], ["-"]):
        typed(monkeypatch, "\n".join(texts))
        assert cloze("predict", tuned(), *more).rows == argued.rows
    typed(monkeypatch, "\n".join(["text", *texts]))
    tables = [cloze("predict", tuned(), "-", "--format", "tsv").rows, cloze("predict", tuned(), tmp_path / "new.tsv").rows]
    assert tables[0] == tables[1] == [{**row, "line": row["line"] + 1} for row in argued.rows]


def test_a_table_from_standard_input_keeps_its_columns_in_csv(
    cloze: Any, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "id,text\n7,the cat sleeps\n8,rain\n")
    shown = cloze("predict", tuned(), "-", "--format", "csv", "--as", "csv")
    assert shown.code == 0 and [line.split(",")[:2] for line in shown.out.splitlines()] == [
        ["id", "text"], ["7", "the cat sleeps"], ["8", "rain"],
    ]  # fmt: skip


def test_json_lines_among_texts_are_refused_unless_they_are_asked_for(
    cloze: Any, tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = '{"text": "the cat sleeps"}\n{"text": "rain"}\n'
    (tmp_path / "rows.txt").write_text(rows)
    for arguments, where in ((["-"], "standard input"), ([tmp_path / "rows.txt"], str(tmp_path / "rows.txt"))):
        typed(monkeypatch, rows)
        refused = cloze("predict", tuned(), *arguments)
        said = f"{where}: its lines are JSON objects with 'text', expected texts.\n  To read them, add --format jsonl.\n"
        assert refused.code == 2 and refused.out == "" and said in refused.err
        typed(monkeypatch, rows)
        asked = cloze("predict", tuned(), *arguments, "--format", "jsonl")
        assert [row["text"] for row in asked.rows] == ["the cat sleeps", "rain"]
    typed(monkeypatch, '{"message": "the cat sleeps"}\n')
    assert cloze("predict", tuned()).rows[0]["text"] == '{"message": "the cat sleeps"}'


def test_lines_keep_their_numbers_where_lines_are_empty(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("\nthe cat\n\n  \nthe rain\n")
    assert [(row["line"], row["text"]) for row in cloze("predict", tuned(), tmp_path / "new.txt").rows] == [
        (2, "the cat"), (5, "the rain"),
    ]  # fmt: skip


def test_texts_in_another_encoding_and_labels_of_fasttext_are_read_as_texts(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("__label__x café\n\nrain __label__y\n".encode("cp1252"))
    done = cloze("predict", tuned(), tmp_path / "a.txt")
    assert done.code == 2 and "a.txt:1: byte 0xe9 is not UTF-8" in done.err
    done = cloze("predict", tuned(), tmp_path / "a.txt", "--encoding", "cp1252")
    assert [(row["line"], row["text"]) for row in done.rows] == [(1, "café"), (3, "rain")]
    assert done.err == (
        f"note: {tmp_path / 'a.txt'}: read as cp1252, as asked for\n"
        "note: 1 of 2 texts have no word that the vocabulary knows: their answers say nothing of them\n"
    )


def test_a_pair_is_typed_with_a_tab_between(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    (row,) = cloze("predict", tuned(pair=True), "the cat\tthe dog").rows
    assert (row["text"], row["text_b"]) == ("the cat", "the dog")
    refused = cloze("predict", tuned(pair=True), "the cat", "the dog")
    assert refused.code == 2 and "0 tabs, expected 1: a line has text and text_b.\n  Write them in one" in refused.err
    assert r"in a shell: $'TEXT\tTEXT_B'. Or give a file" in refused.err
    (tmp_path / "pairs.txt").write_text("the cat\tthe dog\nthe rain\n")
    refused = cloze("predict", tuned(pair=True), tmp_path / "pairs.txt")
    assert refused.code == 2 and "pairs.txt:2: 0 tabs, expected 1: a line has text and text_b" in refused.err


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["missing.tsv"], "missing.tsv: looks like a file's name, and there is no such file."),
        (["A text.", "{here}/empty.txt"], "empty.txt: is a file, among other texts. Give it alone"),
        (["{here}/empty.txt"], "empty.txt: empty, expected one text per line"),
        (["{here}/words.txt"], "words.txt:1: 1 tabs, expected 0: a line has text.\n  If the file is a table"),
        ([" "], "the texts: empty"),
    ],
)
def test_what_is_no_text_is_refused(cloze: Any, tuned: Tuned, tmp_path: Path, inputs: list[str], said: str) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "words.txt").write_text("EU\tB-ORG\n")
    refused = cloze("predict", tuned(), *(one.format(here=tmp_path) for one in inputs))
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err and refused.out == ""


def test_texts_that_lost_their_end_are_told(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    long = "the cat sleeps on the mat and dreams of mice in the garden"
    (tmp_path / "new.tsv").write_text(f"text\tlabel\nthe cat\tanimal\n{long}\tanimal\n")
    shown = cloze("predict", tuned(length=8), tmp_path / "new.tsv")
    assert "cut" not in shown.rows[0] and shown.rows[1]["cut"] > 0
    said = f"1 of 2 texts are longer than 8 tokens and lost their end, {shown.rows[1]['cut']} tokens in all"
    assert said in shown.err and said in cloze("evaluate", tuned(length=8), tmp_path / "new.tsv").out
    short = cloze("predict", tuned(length=8), "the cat")
    assert short.err == "" and "cut" not in short.rows[0]


def test_evaluate_gives_intervals_and_compares_two_folders_on_the_same_draws(
    cloze: Any, tuned: Tuned, tables: Path
) -> None:
    dev = tables / "train.tsv"
    plain = json.loads(cloze("evaluate", tuned(), dev, "--json").out)[str(dev)]
    found = json.loads(cloze("evaluate", tuned(), dev, "--bootstrap", 200, "--json").out)[str(dev)]
    assert "intervals" not in plain and found["metrics"] == plain["metrics"]
    for name, (low, high) in found["intervals"].items():
        assert low < found["metrics"][name] < high
    again = cloze("evaluate", tuned(), dev, "--bootstrap", 200, "--seed", 1, "--json").out
    assert "--seed 1: nothing is drawn at random." in cloze("evaluate", tuned(), dev, "--seed", 1).err
    assert json.loads(again)[str(dev)]["intervals"] != found["intervals"]
    shown = cloze("evaluate", tuned(), dev, "--bootstrap", 200).out
    low, high = found["intervals"]["accuracy"]
    assert f"[{low:.4f}, {high:.4f}]" in shown and "95 % interval" in shown

    itself = cloze("evaluate", tuned(), tuned(), dev, "--bootstrap", 200)
    assert itself.out.count("+0.0000   [+0.0000, +0.0000]  not significant") == 4
    other = json.loads(cloze("evaluate", tuned(), tuned(seed=2), dev, "--bootstrap", 200, "--json").out)
    one, two = other[str(tuned())][str(dev)], other[str(tuned(seed=2))][str(dev)]
    difference = other["difference"][str(dev)]["accuracy"]
    assert difference["value"] == pytest.approx(two["metrics"]["accuracy"] - one["metrics"]["accuracy"])
    assert difference["low"] <= difference["value"] <= difference["high"]


def test_a_third_folder_and_a_missing_file_are_refused(cloze: Any, tuned: Tuned, tables: Path) -> None:
    refused = cloze("evaluate", tuned(), tuned(), tuned(), tables / "dev.tsv")
    assert refused.code == 2 and "3 folders of models: expected one, or two to compare" in refused.err
    assert "no file to evaluate on" in cloze("evaluate", tuned(), tuned()).err
    assert "expected at least 100 draws" in cloze("evaluate", tuned(), tables / "dev.tsv", "--bootstrap", 5).err


def test_a_network_that_answers_scores_no_pairs(folder: Tuned, writer: Tuned) -> None:
    from cloze.checkpoint.build import load_checkpoint
    from cloze.cli.use.score import _score_pairs
    from cloze.decoding.reader_and_head import Ready, to_score
    from cloze.decoding.scores.windows import Windows

    loaded, answering = load_checkpoint(folder("bert")), load_checkpoint(writer("t5"))
    assert to_score(answering).method is None and to_score(loaded).method == "pseudo_log_likelihood"
    with pytest.raises(UserError, match="reads one text and writes"):
        _score_pairs(answering, to_score(answering), [], Windows(), False)
    with pytest.raises(UserError, match="--order source_to_target scores answers to texts"):
        _score_pairs(loaded, Ready(to_score(loaded).reader, None), [], Windows(), False)


def test_texts_that_are_lists_are_told(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"text": ["the", "cat"]}\n{"text": "the cat"}\n')
    shown = cloze("predict", tuned(), tmp_path / "words.jsonl")
    assert shown.code == 0 and [row["text"] for row in shown.rows] == ['["the", "cat"]', "the cat"]
    assert "note: 1 of 2 texts are lists, which are read with their brackets and quotes\n" in shown.err
