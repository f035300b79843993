"""Questions in SQuAD's JSON: every one with its place, every fault with file and line."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.corpus.readers.questions import AnswerSpan, each_question, read_questions
from cloze.corpus.records import Records
from cloze.corpus.records.spans import UNKNOWN, nearest_place, tokens_of
from cloze.errors import TaskError
from cloze.text import TextSpec, Tokenizer, train

CONTEXT = "The cat sat on the mat. The dog saw the cat."


def document(*questions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"qas": list(questions), "context": CONTEXT, **more}]}]}


def question(text: str = "the dog", start: int = 24, **more: Any) -> dict[str, Any]:
    return {"id": "q", "question": "Who?", "answers": [{"text": text, "answer_start": start}], **more}


def write(path: Path, data: Any, **how: Any) -> Path:
    path.write_text(json.dumps(data, **how), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec.of({"lower": True}, "wordpiece", {"size": 60}), [CONTEXT, "Who? When?"])


def test_lists_of_paragraphs_and_of_questions_are_read(tmp_path: Path) -> None:
    paragraph = {"context": CONTEXT, "qas": [question(), question("The dog")]}
    flat = {**question(), "context": CONTEXT}
    found = read_questions(write(tmp_path / "q.json", [paragraph, flat], indent=1)).each
    assert [one.place for one in found] == ["[0].qas[0]", "[0].qas[1]", "[1]"]
    assert [one.line for one in found] == [5, 15, 27] and {one.context for one in found} == {CONTEXT}
    found = read_questions(write(tmp_path / "q.json", {"version": "0.1", "data": [flat, {"paragraphs": [paragraph]}]})).each
    assert [one.place for one in found] == ["data[0]", "data[1].paragraphs[0].qas[0]", "data[1].paragraphs[0].qas[1]"]
    (tmp_path / "q.jsonl").write_text(json.dumps(paragraph) + "\n" + json.dumps(flat) + "\n")
    assert [one.place for one in read_questions(tmp_path / "q.jsonl").each] == ["qas[0]", "qas[1]", ""]
    with pytest.raises(TaskError, match=r"q.json:1: expected a JSON object, got int"):
        read_questions(write(tmp_path / "q.json", [3]))


def test_every_question_has_its_line_and_its_place_in_the_document(tmp_path: Path) -> None:
    data = document(question("The dog"), {"id": "n", "question": "Why?", "answers": [], "is_impossible": True})
    data["data"].append({"paragraphs": [{"context": "Rain.", "qas": [question("Rain", 0, id=7)]}]})
    path = write(tmp_path / "q.json", data, indent=1)
    found = read_questions(path).each
    assert [one.place for one in found] == [f"data[{a}].paragraphs[0].qas[{q}]" for a, q in ((0, 0), (0, 1), (1, 0))]
    lines = path.read_text().split("\n")
    for one in found:  # the object of a question begins on its line
        assert lines[one.line - 1].strip() == "{"
        assert any(json.dumps(one.question) in line for line in lines[one.line : one.line + 4])
    assert [one.name for one in found] == ["q", "n", "7"]
    assert [one.answers for one in found] == [(AnswerSpan("The dog", 24),), (), (AnswerSpan("Rain", 0),)]
    assert [one.context for one in found] == [CONTEXT, CONTEXT, "Rain."]
    flat = read_questions(write(tmp_path / "flat.json", data)).each
    assert [(one.place, one.answers) for one in flat] == [(one.place, one.answers) for one in found]


def test_json_lines_hold_one_question_each(tmp_path: Path) -> None:
    rows = [{"question": "Who?", "context": CONTEXT, "answers": {"text": ["The dog"], "answer_start": [24]}},
            {"question": "Why?", "context": CONTEXT, "answers": []}]  # fmt: skip
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [(one.line, one.place, one.answers) for one in read_questions(path).each] == [
        (1, "", (AnswerSpan("The dog", 24),)), (2, "", ())
    ]
    asked = write(tmp_path / "new.json", {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]})
    assert read_questions(asked, labelled=False).each[0].answers is None
    with pytest.raises(TaskError, match=r"new\.json:1: data\[0\]\.paragraphs\[0\]\.qas\[0\]: no field 'answers'"):
        read_questions(asked)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"rows": []}, r"q\.json:1: the document: no 'data'; expected questions in SQuAD's format"),
        ({"data": {}}, r"q\.json:2: data: expected a list"),
        (document(), "no questions; expected at least one"),
        (document({"id": 1, "answers": []}), r"q\.json:9: data\[0\]\.paragraphs\[0\]\.qas\[0\]: no field 'question'"),
        (document(question(), context=5), r"q\.json:7: data\[0\]\.paragraphs\[0\]: no text 'context'"),
        (document(question() | {"answers": [{"text": "x"}]}), r"q\.json:9: .*is no answer; expected a text and a whole number"),
        (document(question() | {"answers": {"text": ["a"]}}), "expected as many texts as starts"),
        (document(question() | {"question": 3}), "the field 'question' is int; expected a text"),
        (document(question(), "x"), r"qas\[1\]: expected an object, got str"),
        ({"data": [{"paragraphs": ["x"]}]}, r"q\.json:\d: data\[0\]\.paragraphs\[0\]: no text 'context'"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, data: Any, told: str) -> None:
    with pytest.raises(TaskError, match=told):
        read_questions(write(tmp_path / "q.json", data, indent=1))


def test_a_document_in_a_line_of_json_lines_is_told_with_that_line(tmp_path: Path) -> None:
    first = {"question": "Who?", "context": CONTEXT, "answers": []}
    rows = [first, {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(TaskError, match=r"q\.jsonl:2: data\[0\]\.paragraphs\[0\]\.qas\[0\]: no field 'answers'"):
        read_questions(tmp_path / "q.jsonl")


@pytest.mark.parametrize(("text", "told"), [
    ('{"data": [\n{"x": }', r"q\.json:2: not JSON: Expecting value at column 7"),
    ('{"data":\n []} {', "more text after the document"),
    ("[" * 100_000, r"q\.json:1: not JSON"),
])  # fmt: skip
def test_a_document_that_is_no_json_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(TaskError, match=told):
        read_questions(tmp_path / "q.json")


def test_a_table_of_cells_is_refused_with_a_row_as_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question,context,answer\nWho?,Anna slept.,Anna\n")
    with pytest.raises(TaskError, match=r'q\.csv: such rows are read from JSON lines .*, not from csv\..*\n  {"question": '):
        read_questions(tmp_path / "q.csv")
    row = {"question": "Who?", "context": CONTEXT, "answers": []}
    (tmp_path / "q.tsv").write_text(json.dumps(row) + "\n")  # the content counts
    assert len(read_questions(tmp_path / "q.tsv")) == 1


def source(**how: Any) -> Records:
    return Records(text="question", text_b="context", label="answers", answer=how.pop("answer", "span"), **how)


def test_a_wrong_offset_is_an_error_with_its_place_and_all_of_them_can_be_listed(tmp_path: Path) -> None:
    both = question() | {"answers": [{"text": "The dog", "answer_start": 3}, {"text": "The dog", "answer_start": 24}]}
    data = document(question("The cat", 0), question("the cat", -1), both, question("a cow", 3))
    path = write(tmp_path / "q.json", data)
    strict = source()
    with pytest.raises(TaskError, match=(
        r"q\.json:1: data\[0\]\.paragraphs\[0\]\.qas\[1\]: the answer 'the cat' has no place in the context: answer_start "
        r"is -1; it starts at 36\.\n.*--set corpus\.answer\.span\.offsets=find"
    )):  # fmt: skip
        list(strict.answer.read(path, strict.columns))
    faults: list[str] = []
    records = list(strict.answer.read(path, strict.columns, lambda line, why: faults.append(why)))
    assert [record.answer for record in records] == [AnswerSpan("The cat", 0), AnswerSpan("The dog", 24)]
    assert [why.split(":")[0].rpartition(".")[2] for why in faults] == ["qas[1]", "qas[2]", "qas[3]"]
    assert "the context has ' cat sa'; it starts at 24" in faults[1] and "the context does not have it" in faults[2]


def test_offsets_can_be_found(tmp_path: Path, tokenizer: Tokenizer) -> None:
    from cloze.corpus.records.spans import SpanAnswer

    path = write(tmp_path / "q.json", document(question("cat", 38), question("cat", 5), question("a cow", 3)))
    finding = source(answer=SpanAnswer(offsets="find"))
    answers = [record.answer for record in finding.answer.read(path, finding.columns)]
    assert answers == [AnswerSpan("cat", 40), AnswerSpan("cat", 4), UNKNOWN]
    told: list[str] = []
    store = finding.build_store([path], tokenizer, tmp_path / "store", base=None, report=told.append)
    assert told[1:] == ["1 questions are left out: their context contains none of their answers"]
    assert store.about["constant_answer"] == "cat" and store.columns["first"][2] == UNKNOWN


@settings(deadline=None, max_examples=60)
@given(st.text("ab ", min_size=1, max_size=12), st.text("ab ", min_size=1, max_size=3), st.integers(-3, 14))
def test_the_nearest_place_is_the_nearest(context: str, text: str, start: int) -> None:
    places = [place for place in range(len(context)) if context.startswith(text, place)]
    found = nearest_place(AnswerSpan(text, start), context)
    assert (found is None) == (not places)
    if found is not None:
        assert found.start in places and abs(found.start - start) == min(abs(place - start) for place in places)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_tokens_of_a_stretch_are_those_that_share_a_character_with_it(tokenizer: Tokenizer, data: Any) -> None:
    start = data.draw(st.integers(0, len(CONTEXT) - 1))
    stop = data.draw(st.integers(start + 1, len(CONTEXT)))
    spelled = tokenizer.encode_spelled(["the", CONTEXT])
    begin, end = (part[spelled.offsets[1] :].tolist() for part in (spelled.begin, spelled.end))
    inside = [n for n, (a, b) in enumerate(zip(begin, end, strict=True)) if set(range(a, b)) & set(range(start, stop))]
    assert tokens_of(spelled, 1, start, stop) == ((inside[0], inside[-1]) if inside else None)


def test_windows_ask_for_the_answer_where_all_of_it_is_shown(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = document(question("The dog", 24), {"id": "n", "question": "Why?", "answers": []})
    path = write(tmp_path / "q.json", data)
    store = source().build_store([path], tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    bound = source(stride=2).bind(store, seed=1, entry="main")
    plan = bound.plan(0, 10)
    rows = bound.read(plan, np.arange(len(plan)), frozenset())
    answer = tokenizer.encode("The dog").ids.tolist()
    asked = rows["column/label"] == 1
    for row in range(rows.count):
        whole = rows["tokens"][row, : rows["length"][row]].tolist()
        first, last = rows["spans"][row]
        context = whole[rows["parts"][row, 1, 0] :]
        shown = rows["document"][row] == 0 and any(context[n : n + len(answer)] == answer for n in range(len(context)))
        assert asked[row] == shown
        assert whole[first : last + 1] == answer if asked[row] else (first, last) == (-1, -1)
    assert 1 <= asked.sum() < (rows["document"] == 0).sum()


@pytest.mark.parametrize(("name", "wrong", "rows"), [("dev", 200, 3219), ("trial", 5, 1002)])
def test_the_wrong_offsets_of_cmrc_are_all_found(name: str, wrong: int, rows: int, shared_data: Path) -> None:
    path = shared_data / "qa_zh_cmrc2018" / f"cmrc2018_{name}.json.xz"
    assert sum(1 for _ in each_question(path)) == rows
    faults: list[int] = []
    list(source().answer.read(path, source().columns, lambda line, why: faults.append(line)))
    assert len(faults) == wrong
    lines = lzma.decompress(path.read_bytes()).decode("utf-8").split("\n")
    assert all(lines[line - 1].strip() == "{" for line in faults)
