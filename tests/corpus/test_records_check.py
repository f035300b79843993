"""Labelled text is looked over: every row that cannot be used, to the end of the file, and texts that two splits share."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus.records import ClassAnswer, ClassesAnswer, ClassOfSpans, Records, SpanAnswer, WordAnswers, check_records
from cloze.corpus.records.answer import Columns
from cloze.text import TextSpec, train

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


def test_classes_that_differ_in_case_or_spaces_are_told(tmp_path: Path) -> None:
    names = ("pos", "Pos", "pos", "neg", "p os", "\ufeffneg")
    path = written(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"a\t{name}\n" for name in names))
    told, pasted = check_records([path], ClassAnswer(), ONE).remarks
    assert pasted.endswith(r": 'neg' (1 row), '\ufeffneg' (1 row).")  # files with a byte order mark, one behind the other
    assert told.startswith("these classes differ only in case, spaces or invisible characters")
    assert told.endswith(": 'Pos' (1 row), 'p os' (1 row), 'pos' (2 rows).")


@pytest.mark.parametrize(("names", "said"), [
    (["x", "y", "-", "y", "-"], "2 of 5 rows have the class '-'; the first is in line 4. If it marks rows without a class"),
    (["0", "2", "1", "-1"], "1 of 4 rows have the class '-1'; the first is in line 5. If it marks rows without a class"),
    (["x", "nan", "y", "NULL", "nan"], "3 of 5 rows have the class 'NULL' or 'nan'; the first is in line 3. If that"),
    (["a,", "b,"], "all classes end with ',', such as 'a,'. If it separates classes, take it out."),
    (["-1", "0", "1"], None), (["none", "all"], None), (["+", "-"], None), (["a,", "b"], None),
])  # fmt: skip
def test_names_that_may_mean_no_class_are_told(tmp_path: Path, names: list[str], said: str | None) -> None:
    path = written(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"a\t{name}\n" for name in names))
    remarks = check_records([path], ClassAnswer(), ONE).remarks
    assert [remark.startswith(f"{path}: {said}") for remark in remarks] == ([] if said is None else [True])


def test_labels_of_fasttext_that_are_read_as_text_are_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "__label__x, __label__y, a\n__label__x, __label__y, __labelB__z a\n")
    told = check_records([path], ClassesAnswer(), ONE).remarks
    assert told[0].startswith(f"{path}: 1 of 2 rows have a word that begins with '__label' in their text")
    assert told[1].startswith(f"{path}: all classes end with ',', such as 'x,'")


def test_spans_that_are_cut_out_of_words_are_told(tmp_path: Path) -> None:
    rows = [
        {"text": "Anna lives in Rome", "spans": [[0, 3], [14, 17]], "label": "x"},
        {"text": "安娜在罗马", "spans": [[0, 1], [3, 4]], "label": "y"},
    ]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (told,) = check_records([path], ClassOfSpans(), ONE).remarks
    assert told.startswith(f"{path}: 2 of 4 spans begin or end inside a word, such as line 1: [0, 3] is 'Ann'. A span is the")


def test_empty_texts_and_numbers_are_counted_in_the_check_and_in_training(tmp_path: Path) -> None:
    rows = [{"text": "", "label": 1}, {"text": 5, "label": 2}, {"text": ["a", "b"], "label": 1}, {"text": " ", "label": 2}]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    told = (
        f"{path}: 2 of 4 rows have an empty text; the first is in line 1.",
        f"{path}: 1 of 4 rows have a number as their text, which is read as it is written; the first is in line 2.",
        f"{path}: 1 of 4 rows have a list as their text, which is read with its brackets and quotes; the first is in line 3.",
    )
    assert check_records([path], ClassAnswer(), ONE).remarks == told
    said: list[str] = []
    spec = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 40}), ["a b 5"] * 5)
    Records().build_store([path], spec, tmp_path / "s", base=None, report=said.append)
    assert tuple(said[1:]) == told


def test_targets_that_the_vocabulary_cannot_write_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = train(TextSpec.of({}, "unigram", {"size": 60}), ["total of order 5 is here", "the other one"] * 20)
    known.save(tmp_path / "t", length=512, frame_single="{A}", frame_pair="{A} {B}")
    rows = [{"text": "a", "target": "{total}"}, {"text": "a", "target": "the order"}, {"text": "a", "target": ["one", "~one"]}]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    told = f"{path}: 2 of 3 targets (67%) hold what the vocabulary lacks, so they cannot be written exactly: "
    assert main(["corpus", "check", path, "--task", "text_to_text", "--tokenizer", str(tmp_path / "t")]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith(told) and set(line.removeprefix(told).split()) == {"{", "}", "~"}


def test_the_check_shows_what_training_would_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "c.conll", "Ada NNP B-NP B-PER\nlives VBZ B-VP O\n\n")
    assert main(["corpus", "check", path, "--task", "token_labelling"]) == 2
    shown = capsys.readouterr().err
    assert f"{path}:1: 4 cells, expected 2 (text, label).\n  Name all columns in order, such as " in shown
    assert "--set corpus.columns=[text,x,y,label]\n" in shown
    path = written(tmp_path / "c.jsonl", '["a"]\n["b"]\n')
    assert main(["corpus", "check", path, "--task", "sentence_classification"]) == 2
    assert f"{path}:1: expected a JSON object, got str." in capsys.readouterr().out


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
    assert all("does not start at character" in one.why or "has no place in the context" in one.why for one in found.unusable)
    assert sum("answer_start is -1;" in one.why for one in found.unusable) == 193


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
