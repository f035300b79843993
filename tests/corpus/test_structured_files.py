"""Tables and records: their text is read, their syntax never is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus.readers import read_documents
from cloze.corpus.readers.report import CorpusReport
from cloze.errors import CorpusError

CSV = 'id,review,label\n1,"Good, and cheap.\nI like it.",pos\n\n2,Bad.,neg\n'


def texts(path: Path, content: str | bytes, format: str = "auto", report: CorpusReport | None = None) -> list[tuple[str, int]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_documents([path], format=format, report=report, block_bytes=40)
    return [(" ".join(s.strip() for s in document.sentences), document.line) for document in found]


@pytest.mark.parametrize(
    ("name", "content", "format", "expected"),
    [
        ("a.csv", CSV, "auto:review", [("Good, and cheap. I like it.", 2), ("Bad.", 5)]),
        ("piped", CSV, "csv:review", [("Good, and cheap. I like it.", 2), ("Bad.", 5)]),
        ("a.csv", "\ufeffid;text\r\n1;Eén, twee.\r\n", "auto", [("Eén, twee.", 2)]),
        ("a.tsv", 'id\ttext\n1\tHe said "no.\n2\t"Yes."\n', "auto", [('He said "no.', 2), ('"Yes."', 3)]),
        ("leipzig.txt", "1\tOne here.\n2\tTwo here.\n3\tThree.\n", "auto:2", [("One here.", 1), ("Two here.", 2), ("Three.", 3)]),
        ("a.txt", '{"id": 1, "content": "One."}\n{"id": 2, "content": "Two."}\n', "auto:content", [("One.", 1), ("Two.", 2)]),
    ],
)
def test_the_named_column_is_the_text(
    name: str, content: str, format: str, expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    assert texts(tmp_path / name, content, format) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", '{"id": 1, "content": "One."}\n' * 3, r"a\.txt:1: no column 'text'; it has: content\.\n.*--text NAME"),
        ("a.csv", CSV, r"a\.csv:1: no column 'text'; it has: id, review, label\."),
        ("a", CSV.replace("\n\n", "\n").replace("\nI", " I"), r"a:1: no column 'text'; it has: id, review, label\."),
        ("a.txt", "id\treview\n1\tGood.\n2\tBad.\n", r"it has: id, review\.\n.*\n  To read the lines as .*: --format line"),
        ("a.json", json.dumps([{"text": "One."}]), r"a\.json:1: expected JSON lines.*\n.*jq -c"),
        ("a.txt", json.dumps([{"text": "One."}], indent=1), "expected JSON lines"),
        ("a.txt", json.dumps({"text": "One."}, indent=1), "expected JSON lines"),
        ("a.jsonl", "One.\nTwo.\n", "expected JSON lines"),
        ("a.txt", "<!DOCTYPE html>\n<html><p>One.</p></html>\n", "HTML or XML"),
        ("a.csv", "text,label\nOne.,a\nTwo, and more.,b\n", r"a\.csv:3: 3 cells, expected 2"),
        ("a.csv", 'text\nOne.\n"Two.\nThree.\n', r"a\.csv:3: not CSV: .*quote"),
        ("a.csv", b"text\nOne.\nTw\xf3.\n", r"a\.csv:[123]: not UTF-8"),
        ("a.tsv", "id,text\n1,Two.\n", r"it has: id,text\.\n  If commas separate its columns, it is CSV: --format csv$"),
        ("a.csv", "id\ttext\n1\tTwo.\n", r"it has: id\ttext\.\n  If tabs separate its columns, it is TSV: --format tsv$"),
        ("a.csv", "", "empty"),
        ("a.conll", "Ada B-PER\n\n", r"a\.conll:1: words with their labels, which would be learned as text\.\n.*--format blank"),
        ("a.txt", "__label__x One.\n", r"a\.txt:1: texts with labels \(__label__\), which would be learned as text"),
    ],
)
def test_structure_that_would_become_text_is_refused(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message):
        texts(tmp_path / name, content)


def test_a_column_is_refused_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="--text body: a file read as line has no columns"):
        texts(tmp_path / "a.txt", "One.\n", "line:body")
    with pytest.raises(CorpusError, match="running text, which has no column 'body'"):
        texts(tmp_path / "a.txt", "One.\nTwo.\n", "auto:body")


def test_prose_with_commas_tabs_and_brackets_stays_prose(tmp_path: Path) -> None:
    for number, prose in enumerate(["One, two.\nThree, four.\nFive, six.\n", "\tOne.\nTwo.\nThree.\n", "[1]\n[Notes] One.\n"]):
        report = CorpusReport()
        assert len(texts(tmp_path / f"{number}.txt", prose, report=report)) == prose.count("\n")
        assert report.formats == {"line": 1}
    assert len(texts(tmp_path / "a.txt", "a,b\n1,2\n3,4\n", "line")) == 3


def test_a_column_of_parquet_must_hold_text(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": [1, 2], "body": ["One.", "Two."]}), file)
    assert [d.text for d in read_documents([file], format="auto:body")] == ["One.", "Two."]
    with pytest.raises(CorpusError, match=r"no column 'text'; it has: id, body"):
        list(read_documents([file]))
    with pytest.raises(CorpusError, match="the column 'id' holds int64, expected text"):
        list(read_documents([file], format="auto:id"))


def test_corpus_check_and_build_take_the_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "a.csv", tmp_path / "store"
    file.write_text("id,review\n" + "".join(f"{n},The cat sleeps. It dreams of fish {n}.\n" for n in range(40)))
    assert main(["corpus", "check", str(file)]) == 2
    assert "no column 'text'; it has: id, review" in capsys.readouterr().err
    assert main(["corpus", "check", str(file), "--text", "review"]) == 0
    assert "read as csv: 1 file: by its ending; the text is in the column 'review'" in capsys.readouterr().out
    assert main(["corpus", "build", str(file), "--text", "review", "--size", "90", "--out", str(out)]) == 0
    assert "40 documents, 80 sentences" in capsys.readouterr().out
