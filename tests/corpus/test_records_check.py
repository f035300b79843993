"""Labelled text is looked over: every row that cannot be used, to the end of the file, and texts that two splits share."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus.records import ClassAnswer, SpanAnswer, WordAnswers, check_records
from cloze.corpus.records.answer import Columns

ONE = Columns("text", None, "label", None, None, "auto")


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_row_that_cannot_be_used_is_listed_to_the_end_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "text\tlabel\ngood\tyes\nshort\nempty\t\nfine\tno\na\tb\tc\n"
    path = written(tmp_path / "dev.tsv", rows)
    assert main(["corpus", "check", path, "--task", "sentence_classification"]) == 2
    shown = capsys.readouterr().out.splitlines()
    assert f"{path}:3: 1 cell, expected 2 (text, label)." in shown
    assert f"{path}:4: an empty 'label'; expected a label in every row." in shown
    assert f"{path}:6: 3 cells, expected 2 (text, label)." in shown
    assert shown[-1] == f"{path}: 2 usable rows, 3 faults"
    assert sum("stray separator" in line for line in shown) == 1  # the way out, once
    assert main(["corpus", "check", path, "--task", "sentence_classification", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["line"] for one in found["unusable"]] == [3, 4, 6] and found["rows"] == {path: 2}


def test_the_check_of_labelled_text_needs_no_torch(tmp_path: Path) -> None:
    path = written(tmp_path / "dev.tsv", "text\tclass\ngood\tyes\nfine\tno\n")
    code = (
        "import sys; from cloze.cli.main import main\n"
        f"asked = ['corpus', 'check', {path!r}, '--task', 'sentence_classification', '--set', 'corpus.label=class']\n"
        "assert main(asked) == 0 and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_texts_of_two_splits_and_answers_that_training_lacks_are_counted(tmp_path: Path) -> None:
    train = written(tmp_path / "train.tsv", "text\tlabel\na b\t1\nc\t0\nc\t0\nd\t1\n")
    dev = written(tmp_path / "dev.tsv", "text\tlabel\na  b\t1\nc\t1\nc\t0\ne\t2\n")
    found = check_records([dev], ClassAnswer(), ONE, against=[train])
    (shared,) = found.shared
    assert (shared.rows, shared.of, shared.texts, shared.contrary) == (3, 4, 2, 1)
    assert shared.places == ((2, train, 2), (3, train, 3), (4, train, 3))
    assert str(shared).startswith(f"{dev}: 3 of 4 rows have texts that also occur in {train} (75.0%; 2 different texts); 1")
    assert [str(one) for one in found.unusable] == [f"{dev}:5: the label '2' does not occur in {train}."]


def test_labelled_words_are_checked_line_by_line(tmp_path: Path) -> None:
    train = written(tmp_path / "train.conll", "a\tX\nb\tY\n\nc\tX\n")
    dev = written(tmp_path / "dev.conll", "a\tX\nb\tX\n\nd\tZ\ne\t\n\nc\tQ\n")
    found = check_records([dev], WordAnswers(), ONE, against=[train])
    assert [(one.line, one.why.split(";")[0]) for one in found.unusable] == [
        (5, "an empty 'label'"), (7, f"the label 'Q' does not occur in {train}."),
    ]  # fmt: skip
    assert (found.shared[0].rows, found.shared[0].contrary) == (2, 2)


def test_a_sound_file_ends_with_success_and_a_wrong_use_with_a_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.csv", "said,mood\nyes,good\nno,bad\n")
    values = ["--text", "said", "--set", "corpus.label=mood"]
    assert main(["corpus", "check", path, "--task", "sentence_classification", *values]) == 0
    assert capsys.readouterr().out == f"{path}: 2 usable rows\n"
    assert main(["corpus", "check", path, "--task", "sentence_classification"]) == 2
    assert "no column 'text'; it has: said, mood." in capsys.readouterr().err
    assert main(["corpus", "check", path, "--task", "sentences"]) == 2
    assert "--task sentences: unknown task." in capsys.readouterr().err
    assert main(["corpus", "check", path, "--against", path]) == 2
    said = "--against is for facts of a knowledge graph (--format triples) or labelled text (--task NAME)."
    assert said in capsys.readouterr().err


def test_the_wrong_offsets_of_a_real_set_are_counted_exactly(shared_data: Path) -> None:
    files = [str(shared_data / "qa_zh_cmrc2018" / f"cmrc2018_{part}.json.xz") for part in ("dev", "trial")]
    columns = Columns("question", "context", "answers", None, None, "auto")
    found = check_records(files, SpanAnswer(), columns)
    assert [sum(one.path == file for one in found.unusable) for file in files] == [200, 5]
    assert all("does not start at character" in one.why for one in found.unusable)


def test_the_leaks_of_real_sets_are_counted_exactly(shared_data: Path, tmp_path: Path) -> None:
    place = shared_data / "care_cls_zh_chnsenticorp"
    files = [str(place / f"{part}.tsv.xz") for part in ("dev", "test", "train")]
    reviews = Columns("text_a", None, "label", None, None, "auto")
    dev, test = check_records(files[:2], ClassAnswer(), reviews, against=files[2:]).shared
    assert (dev.texts, test.texts, dev.of, test.of) == (335, 330, 1200, 1200)
    assert 0.275 < dev.rows / dev.of < 0.285 and 0.275 < test.rows / test.of < 0.285
    for part in ("train", "dev", "test"):  # every character of Weibo's words has its place in the word behind it
        with lzma.open(shared_data / "ner_zh_weibo" / f"weiboNER_2nd_conll.{part}.xz", "rt", encoding="utf-8") as lines:
            cells = (line.rstrip("\n").split("\t") for line in lines)
            written(tmp_path / f"{part}.conll", "\n".join("\t".join([one[0][:-1], *one[1:]]) for one in cells) + "\n")
    parts = [str(tmp_path / f"{part}.conll") for part in ("dev", "test")]
    found = check_records(parts, WordAnswers(), ONE, against=[str(tmp_path / "train.conll")])
    assert [one.texts for one in found.shared] == [40, 38]
