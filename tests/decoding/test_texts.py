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


TEXTS = ['a "good" film', "two\nlines, one text", "", "the end"]


@pytest.mark.parametrize(("name", "raw"), [
    ("t.csv", '\ufefftext,label\r\n"a ""good"" film",x\r\n\r\n"two\nlines, one text",y\r\n,x\r\nthe end,y\r\n'),
    ("T.CSV", 'label;text\nx;"a ""good"" film"\ny;"two\nlines, one text"\nx;\ny;the end\n'),
    ("t.tab", 'text\tlabel\n"a ""good"" film"\tx\n"two\nlines, one text"\ty\n\tx\nthe end\ty\n'),
])  # fmt: skip
def test_a_table_gives_a_text_for_each_row_as_predict_reads_it(tmp_path: Path, name: str, raw: str) -> None:
    from cloze.tasks.kinds.classification import sentence_classification

    (tmp_path / name).write_bytes(raw.encode())
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(raw.encode()))
    for file in (tmp_path / name, tmp_path / f"{name}.gz"):
        assert gather([], str(file)) == TEXTS
        assert gather([], str(file), field="label") == ["x", "y", "x", "y"]
        assert sentence_classification().read(file, labelled=False).texts == TEXTS


def test_a_plain_text_file_with_tabs_and_commas_is_read_by_lines(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text('text,label\na\t"b\nc"\n')
    assert gather([], str(tmp_path / "t.txt"), field="text") == ["text,label", 'a\t"b', 'c"']


def test_a_table_without_the_column_lists_its_columns_and_says_what_the_verb_can_do(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a fine film\tquote\nits hero\tplot\n")
    with pytest.raises(TaskError) as chosen:
        gather([], str(path), field="text")
    assert str(chosen.value) == (
        f"{path}: no column 'text'; it has: a fine film, quote.\n"
        "  Choose a column with --field NAME; to read every line as a text, pipe the file in."
    )
    with pytest.raises(TaskError) as fixed:
        gather([], str(path))
    assert str(fixed.value).endswith("Rename the column, or write one text per line to a .txt file.")
    path.write_text("text\tlabel\nmore\tcells\tthan\n")
    with pytest.raises(TaskError, match="t.tsv:2: 3 cells, expected 2") as uneven:
        gather([], str(path), field="text")
    assert "--quoting" not in str(uneven.value)


def test_a_table_or_labelled_words_among_the_arguments_are_refused_with_the_option_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\na film,x\n")
    (tmp_path / "t.conll").write_text("a O\n")
    with pytest.raises(TaskError) as table:
        gather([str(path)], None)
    assert str(table.value) == (
        f"{path}: is a table, not a text.\n  To read the texts of a column: --file {path} --field NAME"
    )
    assert gather([], str(path), field="text") == ["a film"]
    with pytest.raises(TaskError, match="holds labelled words, not a text.\n  To read each of its lines as a text: --file"):
        gather([str(tmp_path / "t.conll")], None)


def test_a_path_that_exists_is_read_whatever_its_ending_and_a_word_is_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    for name in ("notes.md", "war", "notes/war"):
        (tmp_path / name).write_text("a film\na war\n")
    for name in ("notes.md", "./war", "notes/war", str(tmp_path / "war")):
        assert gather([name], None) == ["a film", "a war"]
    for text in ("war", "notes", "/", ".", "other.md", "and/or"):
        assert gather([text], None) == [text]
    with pytest.raises(TaskError, match=r"notes\.md: is a file, among other texts\."):
        gather(["a film", "notes.md"], None)
    with pytest.raises(TaskError, match=r"\./notes: is a folder, expected a file with texts\."):
        gather(["./notes"], None)


def test_standard_input_is_read_when_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(raw: bytes) -> SimpleNamespace:
        return SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: False)

    monkeypatch.setattr("sys.stdin", pipe(b"one\ntwo\n"))
    assert gather([], None) == ["one", "two"]
    monkeypatch.setattr("sys.stdin", pipe(b'{"words": "one"}\n'))
    assert gather([], "-", field="words", json_input=True) == ["one"]
    monkeypatch.setattr("sys.stdin", pipe(b'{"text": "one"}\n'))
    with pytest.raises(TaskError, match="standard input: its lines are JSON objects with 'text', expected texts.\n  Write"):
        gather([], None)
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
