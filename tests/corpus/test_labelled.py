"""Tables of labelled text, as files really are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus.readers.labelled import read_rows, read_table
from cloze.corpus.readers.tables import RowText, column_of
from cloze.corpus.records import Records
from cloze.corpus.records.answer import label_names
from cloze.errors import CorpusError, TaskError
from cloze.tasks.task import task
from cloze.tasks.texts import label_ids
from cloze.tasks.tuned_folder import task_in_folder


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_tsv_csv_and_json_lines_give_the_same_examples(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "a.tsv", "label\ttext\n1\tfine, good\n0\tbad\n"),
        write(tmp_path, "a.csv", 'label,text\r\n1,"fine, good"\r\n0,bad\r\n'),
        write(tmp_path, "b.csv", "\ufefflabel;text\n1;fine, good\n0;bad\n".replace("label;text", "label;text")),
        write(tmp_path, "a.jsonl", '{"label": 1, "text": "fine, good"}\n\n{"text": "bad", "label": 0}\n'),
        write(tmp_path, "a.tsv.gz", gzip.compress(b"label\ttext\n1\tfine, good\n0\tbad\n")),
        write(tmp_path, "a.csv.xz", lzma.compress(b'\xef\xbb\xbflabel,text\n1,"fine, good"\n0,bad\n')),
    ]
    for path in files:
        examples = task("sentence_classification").read(path)
        assert (examples.texts, examples.labels) == (["fine, good", "bad"], ["1", "0"]), path.name


@pytest.mark.parametrize(("name", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_table_from_standard_input_has_all_its_rows(name: Any, separator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a" * 100, str(number)) for number in range(2000)]  # more than a reader takes at once
    text = "".join(f"{separator.join(row)}\n" for row in rows)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(text.encode()))))
    assert read_table("-", format=name, columns=("text", "label")).rows == tuple(rows)


@pytest.mark.parametrize("separator", [";", ",", "|", "\t"])
def test_the_first_line_for_excel_names_the_separator(tmp_path: Path, separator: str) -> None:
    content = f'sep={separator}\r\nlabel{separator}text\r\n1{separator}"fine,\r\ngood; very"\r\n0{separator}bad\r\n'
    path = write(tmp_path, "a.csv", "\ufeff" + content)
    table = read_table(path)
    assert table.rows == (("1", "fine,\r\ngood; very"), ("0", "bad")) and table.lines == (3, 5)
    with open(path, "rb") as stream:
        cells = list(column_of(stream, str(path), "csv", "text"))
    assert cells == [RowText(3, "fine,\r\ngood; very"), RowText(5, "bad")]
    plain = write(tmp_path, "b.csv", f"sep={separator}\nlabel{separator}text\n1{separator}a\n")
    assert read_table(plain, quoting="none").lines == (3,)
    with open(plain, "rb") as stream, pytest.raises(CorpusError, match=r"b\.csv:2: no column 'body'"):
        list(column_of(stream, str(plain), "csv", "body"))


def test_lines_are_those_of_the_file_even_across_quoted_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"one\ntwo",1\n\nthree,0\n')
    table = read_table(path)
    assert table.rows == (("one\ntwo", "1"), ("three", "0")) and table.lines == (2, 5)


def test_quotes_in_tsv_are_letters_as_in_glue(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'text\tlabel\n"Stop\t1\nhe said "no"\t0\n"all of it"\t0\n')
    assert [row[0] for row in read_table(path).rows] == ['"Stop', 'he said "no"', '"all of it"']


def test_tsv_written_by_a_spreadsheet_is_unquoted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'text\tlabel\n"he said ""no"""\t1\n')
    assert read_table(path).rows == (('he said "no"', "1"),)
    path = write(tmp_path, "b.tsv", 'text\tlabel\n"two\nlines"\t1\n"a\ttab"\t0\n')
    assert read_table(path).rows == (("two\nlines", "1"), ("a\ttab", "0"))


def test_the_fields_of_json_lines_are_looked_for_once_however_many_rows_lack_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.corpus.readers import labelled

    path = write(tmp_path, "a.jsonl", '{"text": "a"}\n' * 50 + '{"text": "b", "label": "1"}\n')
    looked: list[str] = []
    fields_of = labelled.fields_of
    monkeypatch.setattr(labelled, "fields_of", lambda path, **how: looked.append(str(path)) or fields_of(path, **how))
    faults: list[int] = []
    wanted = {"text": "--text NAME", "label": "--label NAME"}
    found = list(labelled.read_rows(path, wanted, fault=lambda line, why: faults.append(line)))
    assert (found, faults, looked) == ([(51, ("b", "1"))], list(range(1, 51)), [str(path)])


BINARY = "\r" + "".join(map(chr, [*range(9), *range(14, 24)]))  # control characters: a file with many of them is refused
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=BINARY), max_size=12)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_csv_writer_wrote_is_read_back(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "h.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("text", "label"), *rows])
    assert read_table(path).rows == tuple(rows)


def test_files_without_a_header_name_their_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "cola.tsv", "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tSailors the.\n")
    kind = task("sentence_classification", text="sentence")
    kind = kind.for_files(columns=["source", "label", "mark", "sentence"], format=None, quoting="auto")
    examples = kind.read(path)
    assert examples.texts == ["The sailors rode.", "Sailors the."] and examples.lines == (1, 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", "a.tsv: empty; expected a header line"),
        ("a.tsv", "text\tlabel\n", "a.tsv: no examples"),
        ("a.jsonl", "\n", "a.jsonl: no examples"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", r"a.tsv:3: 1 cell, expected 2 \(text, label\)"),
        ("a.csv", 'text,label\n"open,1\n', "a.csv:2: unexpected end of data. An unclosed quote"),
        ("a.csv", "a,a,1\nb,c,2\n", "two columns are named 'a'; expected different names; if .* no header, .*: --columns A,B"),
        ("a.csv", "sentence,label\na,1\n", "no column 'text'; it has: sentence, label"),
        ("a.csv", f"{'x' * 60},label\na,1\n", f"no column 'text'; it has: {'x' * 40}…, label.\n  Choose a column with --text"),
        ("a.conll", "a\tX\n", "(?s)cannot tell the format.*are for --task token_labelling"),
        ("a.csv", "text,labels\na,1\n", "(?s)no column 'label'; .*Did you mean 'labels'. Choose a column with --label NAME"),
        ("a.csv", "text,label\na,1\nb, \n", "a.csv:3: an empty 'label'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "a.jsonl:2: no value for 'label'"),
        ("a.csv", b"text,label\nna\xefve,1\n", "a.csv:2: byte 0xef is not UTF-8"),
        ("a.tsv", "text,label\na,1\n", "it has: text,label.\n  If commas separate its columns, name it a.csv; if .*A,B$"),
        ("a.tsv", "text;label\na;1\n", "it has: text;label.\n  If semicolons separate its columns, name it a.csv; if the file"),
        ("a.csv", "text\tlabel\na\t1\n", "it has: text\tlabel.\n  If tabs separate its columns, name it a.tsv; if the file has"),
        ("a.txt", "text\tlabel\na\t1\n", "cannot tell the format from the name 'a.txt'"),
    ],
)
def test_every_fault_names_the_place_and_the_way_out(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(TaskError, match=message):
        task("sentence_classification").read(path)


def test_a_first_row_of_one_cell_with_another_separator_says_how_to_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a,1\nb,2\n")
    with pytest.raises(TaskError, match=r"a.tsv:1: 1 cell, expected 2 \(text, label\).\n  If commas .*, name it a.csv.$"):
        read_table(path, columns=("text", "label"))
    write(tmp_path, "a.tsv", "a\t1\nb, c\n")
    with pytest.raises(TaskError, match=r"a.tsv:2: 1 cell, expected 2 \(text, label\).\n  A stray separator"):
        read_table(path, columns=("text", "label"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '[{"text": "a", "label": 1},\n {"text": "b", "label": "x"}]\n'),
        ("a.json", '[\n  {\n    "text": "a",\n    "label": 1\n  },\n  {"text": "b",\n "label": ["x"]}\n]'),
        ("a.json", '{\n "text": "a",\n "label": 1\n}\n{\n "text": "b",\n "label": "x"\n}\n'),
        ("a.train", "__label__1 a\n\n__label__x\tb\n"),
        ("a.csv", "sep=;\ntext;label\na;1\nb;x\n"),
        ("a.txt", "__label__1 a\nb __label__x\n"),
    ],
)
def test_arrays_of_json_lines_of_fasttext_and_the_first_line_for_excel_are_read(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path, name, content)
    wanted = {"text": "--text NAME", "label": "--label NAME"}
    found = task("sentence_classification").read(path)
    assert (found.texts, found.labels) == (["a", "b"], ["1", "x"])
    assert [cells[0] for _, cells in read_rows(path, wanted)] == ["a", "b"]
    assert tuple(line for line, _ in read_rows(path, wanted)) == found.lines


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '[{"text": "a", "label": 1},\n 3]', r"a.json:2: expected a JSON object, got int"),
        ("a.json", '[{"text": "a"},\n {"text": }]', r"a.json:2: not JSON: Expecting value at column 11"),
        ("a.json", '[{"text": "a"},\n', "a.json:1: not JSON: the array has no end. Is the file cut off"),
        ("a.json", '{"text": ["a", "b"], "label": [1, 2]}', r"one object with lists of 2 values each: .*\n.*orient='records'"),
        ("a.jsonl", '{"text": "a", "label": NaN}\n', "a.jsonl:1: no value for 'label'; expected one in every row"),
        ("a.jsonl", '{"text": "a", "label": ["x", "y"]}\n', "a.jsonl:1: 'label' holds 2 classes; .*--task multi_label"),
        ("a.train", "__label__x __label__y a\n", "a.train:1: 'label' holds 2 classes; expected one"),
        ("a.train", "__label__x a\nb\n", "a.train:2: an empty 'label'"),
    ],
)
def test_rows_without_one_class_and_columns_in_place_of_rows_are_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(TaskError, match=message):
        task("sentence_classification").read(path)
    source = Records()
    with pytest.raises(TaskError, match=message):
        list(source.answer.read(path, source.columns))


def test_a_file_without_a_header_is_read_as_those_of_training(tmp_path: Path) -> None:
    (tmp_path / "cloze").mkdir()
    described = {
        "task": "sentence_classification", "columns": {"text": "text", "label": "label"}, "labels": ["x"],
        "head": "classification", "files": {"columns": ["id", "label", "text"], "format": "tsv"},
    }
    (tmp_path / "cloze" / "task.json").write_text(json.dumps(described))
    trained = task_in_folder(tmp_path).for_files(columns=None, format=None, quoting="auto")
    for name, content in (
        ("a.tsv", "1\tx\ta b\n"), ("a.dat", "1\tx\ta b\n"), ("b.tsv", "text\ta\tlabel\na b\t1\tx\n"),
        ("c.csv", "text,label\na b,x\n"),
    ):
        found = trained.read(write(tmp_path, name, content))
        assert (found.texts, found.labels) == (["a b"], ["x"]), name
    explicit = trained.for_files(columns=["text", "label"], format=None, quoting="auto")
    for content in ("a b\tx\n", "text\tlabel\na b\tx\n"):
        assert explicit.read(write(tmp_path, "d.tsv", content)).texts == ["a b"]


def test_an_unseen_label_names_file_line_and_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, "dev.csv", "text,label\na,good\nb,goood\n")
    with pytest.raises(TaskError, match=r"dev\.csv:3: the label 'goood' does not occur .* Did you mean 'good'"):
        label_ids(task("sentence_classification").read(path), ["bad", "good"])
    with pytest.raises(TaskError, match=r"dev\.csv:2: .* Known: no, yes"):
        label_ids(task("sentence_classification").read(path), ["no", "yes"])


def test_labels_are_ordered_by_number_or_alphabet() -> None:
    assert label_names(["10", "2", "2", "-1"]) == ("-1", "2", "10")
    assert label_names(["b", "a", "1"]) == ("1", "a", "b")
    assert label_names(["1", "--1"]) == ("--1", "1") and label_names(["2", "1" * 5000]) == ("1" * 5000, "2")


def test_tasks_are_found_by_name() -> None:
    assert task("pair_classification", text="s1", text_b="s2").text_b == "s2"
    with pytest.raises(TaskError, match="unknown task 'pair_clasification'. Did you mean 'pair_classification'"):
        task("pair_clasification")
    with pytest.raises(TaskError, match="--text-b is for the task .*pair_classification.*Omit --text-b"):
        task("sentence_classification", text_b="x")


def test_real_files_are_read_whole(shared_data: Path) -> None:
    kind = task("pair_classification", text="sentence1", text_b="sentence2")
    assert len(kind.read(shared_data / "care_pair_en_rte" / "train.tsv.xz")) == 2490
    assert len(kind.read(shared_data / "care_pair_en_rte" / "dev.tsv.xz")) == 277
    headless = task("pair_classification").for_files(columns=["text", "text_b", "label"], format=None, quoting="auto")
    for part in ("dev-en", "test-en", "dev-zh", "test-zh"):
        assert len(headless.read(shared_data / "pair_pawsx" / f"{part}.tsv.xz")) == 2000
    cola = task("sentence_classification", text="sentence").for_files(
        columns=["source", "label", "mark", "sentence"], format=None, quoting="auto"
    )
    assert len(cola.read(shared_data / "care_cls_en_cola" / "train.tsv.xz")) == 7250
    chinese = task("sentence_classification", text="text_a")
    assert len(chinese.read(shared_data / "care_cls_zh_chnsenticorp" / "train.tsv.xz")) == 9600
