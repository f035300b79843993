"""Labelled text in Parquet and Arrow files and in folders of datasets: the same records as in JSON lines."""

from __future__ import annotations

import builtins
import json
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from cloze.corpus.readers.labelled import read_rows, read_table
from cloze.corpus.readers.marked_texts import TextFields, each_marked
from cloze.corpus.readers.questions import each_question
from cloze.corpus.readers.tagged import each_tagged
from cloze.corpus.records import check_records
from cloze.corpus.records.answer import Columns
from cloze.corpus.records.choice import ChoiceAnswer
from cloze.corpus.records.classes import ClassAnswer
from cloze.errors import MissingExtra, Parameter, TaskError
from cloze.tasks import task

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

WANTED = {"text": Parameter("corpus.text", "NAME"), "label": Parameter("corpus.label", "NAME")}


def declared(table: Any, features: dict[str, Any]) -> Any:
    """The table with what datasets writes of its columns."""
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def test_rows_are_read_from_every_row_group_with_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text {n}" for n in range(2500)], "id": range(2500), "label": [n % 2 for n in range(2500)]})
    parquet.write_table(table, file, row_group_size=700)
    assert list(read_rows(file, WANTED)) == [(n + 1, (f"text {n}", str(n % 2))) for n in range(2500)]
    read = read_table(file)
    assert (read.columns, read.lines[-1], read.rows[-1]) == (("text", "id", "label"), 2500, ("text 2499", "2499", "1"))


def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    texts = [random.Random(number).randbytes(10_000).hex() for number in range(400)]
    parquet.write_table(pa.table({"text": texts, "label": ["a"] * 400}), tmp_path / "a.parquet", row_group_size=20)
    held, before = 0, pa.total_allocated_bytes()
    for _ in read_rows(tmp_path / "a.parquet", WANTED):
        held = max(held, pa.total_allocated_bytes() - before)
    assert held < 2_500_000 < (tmp_path / "a.parquet").stat().st_size  # five groups of 20 rows


def test_parquet_and_arrow_give_what_json_lines_give(tmp_path: Path) -> None:
    rows = [
        {"text": "One.", "label": True, "score": 1.0, "list": ["a", None], "on": None},
        {"text": "Two.", "label": False, "score": 2.5, "list": [], "on": "2020-01-02"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({
        "text": pa.array(["One.", "Two."]).dictionary_encode(), "label": [True, False], "score": [1.0, 2.5],
        "list": [["a", None], []], "on": [None, date(2020, 1, 2)],
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "a.parquet")
    for name, new in (("stream.arrow", pa.ipc.new_stream), ("file.feather", pa.ipc.new_file)):
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    expected = read_table(tmp_path / "a.jsonl")
    for name in ("a.parquet", "stream.arrow", "file.feather"):
        found = read_table(tmp_path / name)
        assert (found.columns, found.rows, found.lines) == (expected.columns, expected.rows, expected.lines)
        assert found.rows[0][3].items == ("a", None)  # type: ignore[union-attr]


def test_classes_of_datasets_are_their_names(tmp_path: Path) -> None:
    kind, truth = ({"names": names, "_type": "ClassLabel"} for names in (["O", "B-PER"], ["no", "yes"]))
    table = pa.table({
        "tokens": [["Anna", "ran"], ["It", "rains"]], "tags": [[1, 0], [0, 0]], "label": [1, -1], "plain": [[1, 0], [0, 0]],
    })  # fmt: skip
    table = declared(table, {"tags": {"feature": kind, "_type": "List"}, "label": truth})
    file = tmp_path / "a.parquet"
    parquet.write_table(table, file)

    def labels(column: str) -> list[Any]:
        return [text.labels for text in each_tagged(file, text="tokens", label=column, columns=None, format=None)]

    assert labels("tags") == [("B-PER", "O"), ("O", "O")]
    assert labels("plain") == [("1", "0"), ("0", "0")]
    with pytest.raises(TaskError, match=r"a\.parquet:2: no value for 'label'"):
        list(read_rows(file, {"label": "--label NAME"}))
    faults: list[tuple[int, str]] = []
    assert list(read_rows(file, {"label": "--label NAME"}, fault=lambda *one: faults.append(one))) == [(1, ("yes",))]
    assert [line for line, _ in faults] == [2]


def test_classes_with_names_are_choices_by_their_numbers(tmp_path: Path) -> None:
    named = {"names": ["choice1", "choice2", "choice3"], "_type": "ClassLabel"}
    table = pa.table({"text": ["I fell", "I ran"], "choices": [["ice", "sun"], ["late", "early"]], "label": [1, 2]})
    parquet.write_table(declared(table, {"label": named}), tmp_path / "a.parquet")
    columns, faults = Columns("text", "choices", "label", None, None, "auto"), list[tuple[int, str]]()
    (record,) = ChoiceAnswer().read(tmp_path / "a.parquet", columns, lambda *one: faults.append(one))
    assert (record.line, record.answer) == (1, 1)
    assert faults == [(2, "'label' is 'choice3', the class 2; expected a class from 0 to 1.")]
    with pytest.raises(TaskError, match=r"a\.parquet:2: 'label' is 'choice3', the class 2"):
        task("multiple_choice").read(tmp_path / "a.parquet")
    parquet.write_table(declared(table.slice(0, 1), {"label": named}), tmp_path / "b.parquet")
    assert task("multiple_choice").read(tmp_path / "b.parquet").labels == [1]


def test_questions_and_marked_spans_are_columns_too(tmp_path: Path) -> None:
    questions = pa.table({
        "id": ["a", "b"], "question": ["Who?", "When?"], "context": ["Anna ran.", "Anna ran."],
        "answers": [{"text": ["Anna"], "answer_start": [0]}, {"text": [], "answer_start": []}],
    })  # fmt: skip
    parquet.write_table(questions, tmp_path / "questions.parquet")
    found = list(each_question(tmp_path / "questions.parquet"))
    assert [(one.line, one.name, [tuple(own) for own in one.answers or ()]) for one in found] == [
        (1, "a", [("Anna", 0)]), (2, "b", []),
    ]  # fmt: skip
    marked = pa.table({"text": ["Anna ran"], "spans": [[[0, 4]]], "label": ["person"], "picture": [b"\x00"]})
    parquet.write_table(marked, tmp_path / "marked.parquet")
    (one,) = each_marked(tmp_path / "marked.parquet", TextFields())
    assert (one.text, one.spans, one.label) == ("Anna ran", ((0, 4),), "person")
    with pytest.raises(TaskError, match="the column 'picture' holds bytes"):
        list(read_rows(tmp_path / "marked.parquet", {"picture": "--text NAME"}))


def test_a_folder_that_datasets_wrote_is_read_through_all_of_its_files(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"text": ["a", "b", "c", "d", "e"], "label": [0, 1, 0, 1, 1]}
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
    split = datasets.Dataset.from_dict(rows, features=features)
    split.save_to_disk(tmp_path / "one", num_shards=2)
    folder = tmp_path / "all"
    datasets.DatasetDict(train=split).save_to_disk(folder)
    expected = [(n + 1, (text, "yes" if label else "no")) for n, (text, label) in enumerate(zip(*rows.values(), strict=True))]
    assert list(read_rows(tmp_path / "one", WANTED)) == list(read_rows(folder / "train", WANTED)) == expected
    with pytest.raises(TaskError, match=r"several splits \(train\)\. Name one of them, such as .*all/train"):
        list(read_rows(folder, WANTED))


def written(folder: Path, name: str) -> Path:
    """A file that cannot be read, or lacks something."""
    file = folder / f"{name}.parquet"
    if name == "damaged":
        file.write_bytes(b"PAR1 and then nothing")
    else:
        texts = [] if name == "empty" else ["a"]
        parquet.write_table(pa.table({"text": pa.array(texts, pa.string()), "labels": pa.array(texts, pa.string())}), file)
    return file


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("damaged", WANTED, r"damaged\.parquet: a damaged Parquet or Arrow file \(.+\)\. Copy or write it again\."),
        ("empty", {"text": WANTED["text"]}, r"empty\.parquet: no examples; expected at least one row"),
        ("missing", WANTED, r"missing\.parquet: no column 'label'; it has: text, labels\.\n  Did you mean 'labels'\?"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str, wanted: dict[str, Parameter], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        list(read_rows(written(tmp_path, name), wanted))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "damaged")
    usual: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return usual(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'needs the package pyarrow.*\n.*pip install "cloze-lm\[parquet\]"'):
        list(read_rows(file, WANTED))


def test_the_check_names_rows_of_parquet_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "label": ["x", None, " "]}), file)
    found = check_records([file], ClassAnswer(), Columns("text", None, "label", None, None, "auto"))
    assert [(one.line, one.why) for one in found.unusable] == [
        (2, "no value for 'label'; expected one in every row."),
        (3, "an empty 'label'; expected a label in every row."),
    ]
    assert dict(found.rows) == {str(file): 1}
