"""What `cloze predict --out` writes: a format by the file's ending, with every column of the input, as other programs read it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.corpus.readers.labelled import TextTable, read_table
from cloze.errors import TaskError
from cloze.tasks.kinds.classification import PredictedClass, sentence_classification
from cloze.tasks.kinds.dependency_parsing import ParsedSentence
from cloze.tasks.kinds.multi_label import LabelSet
from cloze.tasks.kinds.question_answering import ExtractedAnswer
from cloze.tasks.kinds.text_to_text import GeneratedAnswer
from cloze.tasks.kinds.token_labelling import LabelsOfWords, token_labelling
from cloze.tasks.task import task

Tuned = Callable[..., Path]
ODD = ['the "cat", it\nsleeps', "=SUM(A1:A9)", "@rain\r", "a\ttab", " spaces ", "été 河"]
INPUT = "id,text,label,note\n" + "".join(
    f'{number},"{text.replace(chr(34), chr(34) * 2)}",animal,{"x" * number}\n' for number, text in enumerate(ODD)
)


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "new.csv"
    path.write_bytes(INPUT.encode())
    return path


def test_csv_keeps_the_columns_of_the_input_and_has_a_probability_for_every_class(
    cloze: Any, tuned: Tuned, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "predictions.csv"
    done = cloze("predict", tuned(), rows, "--out", out)
    assert done.code == 0 and done.out == f"{out}: 6 rows\n"
    answers = [json.loads(line) for line in cloze("predict", tuned(), rows).out.splitlines()]
    made = read_csv(out)
    assert list(made[0]) == [
        "id", "text", "label", "note", "predicted_label", "probability", "probabilities.animal", "probabilities.weather",
    ]
    assert [row["text"] for row in made] == ODD and {row["label"] for row in made} == {"animal"}
    assert [row["predicted_label"] for row in made] == [one["label"] for one in answers]
    assert [float(row["probabilities.weather"]) for row in made] == [one["probabilities"]["weather"] for one in answers]
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(out)
    assert list(frame["text"]) == ODD and list(frame["id"]) == list(range(6))


def test_the_other_formats_hold_the_same(cloze: Any, tuned: Tuned, rows: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for ending in ("csv", "tsv", "parquet", "jsonl", "json"):
        assert cloze("predict", tuned(), rows, "--out", tmp_path / f"p.{ending}").code == 0
    expected = read_csv(tmp_path / "p.csv")
    assert read_csv(tmp_path / "p.tsv", "\t") == expected
    columnar = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [{name: str(value) for name, value in row.items()} for row in columnar] == expected
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "p.json").read_text()) == lines and lines[0]["line"] == 2
    printed = cloze("predict", tuned(), rows, "--as", "csv").out
    assert printed.encode() == (tmp_path / "p.csv").read_bytes()


def test_texts_that_are_no_table_have_their_text_in_the_first_columns(cloze: Any, tuned: Tuned) -> None:
    made = cloze("predict", tuned(), "the cat", "a river", "--as", "tsv").out.splitlines()
    assert made[0].split("\t") == ["line", "text", "label", "probability", "probabilities.animal", "probabilities.weather"]
    assert [line.split("\t")[:2] for line in made[1:]] == [["1", "the cat"], ["2", "a river"]]


@pytest.mark.parametrize(("options", "message"), [
    (["--out", "p.xlsx"], "the predictions of sentence_classification have no format with the ending .xlsx. "
     "Known: .jsonl, .json, .csv, .tsv, .parquet."),
    (["--out", "p.conll"], "no format with the ending .conll."),
    (["--out", "p.csv", "--as", "tsv"], "a name that ends in .csv does not fit --as tsv. Leave one of them out."),
    (["--as", "conll"], "--as conll: sentence_classification has no predictions of this format."),
    (["--as", "parquet"], "--as parquet: needs a file. Name it: --out predictions.parquet"),
    (["--scores", "--out", "p.csv"], "--scores writes soft labels as JSON lines, not as csv."),
    (["--scores", "--threshold", "0.9"], "--threshold decides on labels, and --scores writes probabilities."),
])  # fmt: skip
def test_a_format_that_does_not_fit_is_refused_before_the_network_is_opened(
    cloze: Any, tuned: Tuned, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.checkpoint.build.load_checkpoint", None)
    refused = cloze("predict", tuned(), rows, *options)
    assert refused.code == 2 and message in refused.err and refused.out == "" and list(tmp_path.iterdir()) == []


def test_a_table_that_exists_is_replaced_on_demand_and_the_input_never(
    cloze: Any, tuned: Tuned, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.csv"
    out.write_text("mine\n")
    refused = cloze("predict", tuned(), rows, "--out", out)
    assert refused.code == 2 and "already exists. Choose another name, or replace it with --overwrite." in refused.err
    assert out.read_text() == "mine\n"
    assert cloze("predict", tuned(), rows, "--out", out, "--overwrite").code == 0 and len(read_csv(out)) == 6
    refused = cloze("predict", tuned(), rows, "--out", rows, "--overwrite")
    assert refused.code == 2 and "which would be lost" in refused.err and rows.read_bytes() == INPUT.encode()


def written(predictions: list[Any], path: Path) -> str:
    from cloze.tasks.prediction_files import write_predictions

    write_predictions(predictions, path, path.suffix[1:])
    return path.read_text()


def test_every_kind_of_prediction_has_a_flat_form(tmp_path: Path) -> None:
    words = LabelsOfWords(3, ("New", "York"), ("B-LOC", "I-LOC"), (0.9, 0.8), "New York", ((0, 3), (4, 8)), ())
    assert written([words, words], tmp_path / "a.csv").splitlines() == [
        "sentence,line,word,label,probability,start,end", "1,3,New,B-LOC,0.9,0,3", "1,3,York,I-LOC,0.8,4,8",
        "2,3,New,B-LOC,0.9,0,3", "2,3,York,I-LOC,0.8,4,8",
    ]
    assert written([words], tmp_path / "a.conll") == "New\tB-LOC\nYork\tI-LOC\n\n"
    tree = ParsedSentence(1, ("He", "sleeps"), (2, 0), ("nsubj", "root"), (0.7, 0.6), "# generator = cloze\n1\tHe\n\n")
    assert written([tree], tmp_path / "b.csv").splitlines() == [
        "sentence,line,id,word,head,relation,probability", "1,1,1,He,2,nsubj,0.7", "1,1,2,sleeps,0,root,0.6",
    ]
    assert written([tree], tmp_path / "b.conllu") == tree.written
    answer, none = ExtractedAnswer(1, "q1", "Who?", "Ada", 0, 3, 1.5), ExtractedAnswer(2, "q2", "Why?", "", None, None, 0.5)
    assert written([answer, none], tmp_path / "c.csv").splitlines() == [
        "line,id,question,answer,start,end,score", "1,q1,Who?,Ada,0,3,1.5", "2,q2,Why?,,,,0.5",
    ]
    output = GeneratedAnswer(1, "a", "b, c", True)
    assert written([output], tmp_path / "d.csv").splitlines() == ["line,text,output,ended", '1,a,"b, c",True']
    several = LabelSet(1, "a", None, ["x", "y"], {"x": 0.9, "y": 0.8})
    assert read_csv_text(written([several], tmp_path / "e.csv"))[0]["labels"] == '["x", "y"]'


def read_csv_text(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_predicted_columns_get_names_that_the_table_does_not_have() -> None:
    from cloze.tasks.prediction_files import joined

    table = TextTable("a.tsv", ("text", "label", "predicted_label", "line"), (("x", "1", "2", "3"),), (2,))
    row = {"line": 2, "text": "x", "label": "new"}
    assert joined(table, [row], sentence_classification()) == [
        {"text": "x", "label": "1", "predicted_label": "2", "line": "3", "predicted_predicted_label": "new"}
    ]


def test_choices_are_not_repeated_as_predictions() -> None:
    from cloze.tasks.prediction_files import joined

    table = TextTable("a.tsv", ("text", "choices"), (("x", '["a", "b"]'),), (2,))
    row = {"line": 2, "text": "x", "choices": ["a", "b"], "label": 1}
    assert joined(table, [row], task("multiple_choice")) == [{"text": "x", "choices": '["a", "b"]', "label": 1}]


def test_words_have_conll_and_no_other_task_has() -> None:
    from cloze.tasks.prediction_files import format_of

    assert format_of(Path("a.conll"), None, token_labelling()) == "conll" == format_of(None, "conll", token_labelling())
    assert format_of(Path("predictions"), None, token_labelling()) is None
    with pytest.raises(TaskError, match=r"Did you mean 'csv'\?"):
        format_of(None, "cvs", sentence_classification())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), min_size=1, max_size=5))
def test_any_text_comes_back_from_csv_and_tsv(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    from cloze.tasks.prediction_files import write_predictions

    place = tmp_path_factory.mktemp("any")
    made: list[Any] = [PredictedClass(number, text, None, "a", 1.0, {"a": 1.0}) for number, text in enumerate(texts)]
    for ending, delimiter in (("csv", ","), ("tsv", "\t")):
        write_predictions(made, place / f"p.{ending}", ending)
        assert [row["text"] for row in read_csv(place / f"p.{ending}", delimiter)] == texts


def test_cloze_reads_back_the_tables_that_it_writes(tmp_path: Path) -> None:
    from cloze.tasks.prediction_files import write_predictions

    made: list[Any] = [PredictedClass(number, text, None, "a", 1.0, {"a": 1.0}) for number, text in enumerate(ODD)]
    for ending in ("csv", "tsv"):
        write_predictions(made, tmp_path / f"p.{ending}", ending)
        assert read_table(tmp_path / f"p.{ending}", quoting="standard").column("text") == ODD
