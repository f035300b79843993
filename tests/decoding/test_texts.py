"""Reading texts for the verbs."""

from __future__ import annotations

import gzip
import io
import lzma
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloze.corpus.readers.text_files import lines, read_all
from cloze.decoding.progress import DecodingProgress
from cloze.decoding.texts import gather
from cloze.display import duration
from cloze.errors import TaskError


def test_lines_keep_empty_ones_and_lose_carriage_returns_and_marks(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeffeins\r\n\r\nzwei\u2028drei\n".encode())
    assert gather([], str(path)) == ["eins", "", "zwei\u2028drei"]
    assert [line.number for line in lines(path)] == [1, 2, 3]


def test_packed_files_and_json_lines_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n\n{"text": "y"}\n'))
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress("猫\n".encode()))
    assert gather([], str(tmp_path / "a.jsonl.gz")) == ["x", "y"]
    assert gather([], str(tmp_path / "b.txt.xz")) == ["猫"]


def test_standard_input_is_read_when_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(raw: bytes) -> SimpleNamespace:
        return SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: False)

    monkeypatch.setattr("sys.stdin", pipe(b"one\ntwo\n"))
    assert gather([], None) == ["one", "two"]
    monkeypatch.setattr("sys.stdin", pipe(b'{"words": "one"}\n'))
    assert gather([], "-", field="words", json_input=True) == ["one"]
    monkeypatch.setattr("sys.stdin", pipe(b""))
    with pytest.raises(TaskError, match="standard input: empty"):
        gather([], None)
    assert gather(["given"], None) == ["given"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"fine\nna\xefve\n", r":2: byte 0xef is not UTF-8"),
        (b"\x00\x01", ":1: a NUL character"),
        (b"", "empty, expected one text per line"),
    ],
)
def test_bad_files_say_what_is_wrong_and_where(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(raw)
    with pytest.raises(TaskError, match=message):
        gather([], str(path))


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "sentences.txt").write_text("x")
    with pytest.raises(TaskError, match="Did you mean 'sentences.txt'"):
        read_all(tmp_path / "sentence.txt")
    (tmp_path / "t.gz").write_bytes(b"no gzip")
    with pytest.raises(TaskError, match="damaged, or not the format that its name says"):
        read_all(tmp_path / "t.gz")


def test_json_lines_name_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for content, message in (
        ('{"text": "x"}\n{"txt": "y"}\n', r":2: no field 'text'. Did you mean 'txt'"),
        ('{"text": 3}\n', ":1: field 'text' is int, expected text"),
        ("[1]\n", ":1: expected a JSON object, got int"),
        ("{\n", ":1: not JSON"),
    ):
        path.write_text(content)
        with pytest.raises(TaskError, match=message):
            gather([], str(path))


def test_progress_writes_few_lines_to_a_file_and_durations_read_well(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), iter([0.0, 29.0, 30.0, 45.0, 60.0, 600.0, 650.0, 660.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with DecodingProgress(1200, "texts", stream) as progress:
        for _ in range(7):
            progress(60)
    assert stream.getvalue().splitlines() == [
        "120 of 1,200 texts, 4/s, 4 min 30 s left",  # at 30 s, 60 s and 600 s; at 660 s a tenth of them has not passed
        "240 of 1,200 texts, 4/s, 4 min 00 s left",
        "300 of 1,200 texts, 0/s, 30 min 00 s left",
    ]
    assert [duration(s) for s in (4.4, 185, 7805)] == ["4 s", "3 min 05 s", "2 h 10 min"]
