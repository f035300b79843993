from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.corpus.readers import Document, python_docs, python_docs_records, read_documents
from cloze.corpus.readers.blocks import read_blocks
from cloze.corpus.readers.detect import find_layout
from cloze.corpus.readers.files import absolute
from cloze.corpus.readers.formats import wanted
from cloze.corpus.readers.parse import parse_block
from cloze.corpus.readers.report import CorpusReport
from cloze.corpus.readers.text_files import lines
from cloze.errors import CorpusError, MissingExtra

BLANK = "The cat sleeps. It dreams of fish.\nDr. Smith wakes it.\n\n\nA second text. It has two lines.\nHere.\n"
SENTENCES = "The cat sleeps.\nIt dreams of fish.\n\nA second text.\nIt goes on.\nIt ends here.\n"
LINES = "The cat sleeps. It dreams.\nA second text. It is here.\n"
WIKI = (
    '<doc id="1" url="?curid=1" title="Tom &amp; Cat">\nTom &amp; Cat\n\nTom is a cat. He sleeps.\nLife.\n'
    'He &lt;3 fish.\n\n</doc>\n<doc id="2" url="?curid=2" title="Fish">\nFish\n\nFish swim.\n\n</doc>\n'
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def sentences(path: Path | str, **options: object) -> list[list[str]]:
    documents = list(read_documents([path], **options))  # type: ignore[arg-type]
    return [[s.strip() for s in document.sentences] for document in documents]


TWO_BLANK = [
    ["The cat sleeps.", "It dreams of fish.", "Dr. Smith wakes it."], ["A second text.", "It has two lines.", "Here."]
]
TWO_WIKI = [["Tom & Cat", "Tom is a cat.", "He sleeps.", "Life.", "He <3 fish."], ["Fish", "Fish swim."]]


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        (BLANK, "blank", TWO_BLANK),
        (SENTENCES, "sentence", [["The cat sleeps.", "It dreams of fish."],
                                 ["A second text.", "It goes on.", "It ends here."]]),
        (LINES, "line", [["The cat sleeps.", "It dreams."], ["A second text.", "It is here."]]),
        (WIKI, "wiki", TWO_WIKI),
        ('{"text": "One. Two.\\n\\nThree."}\n\n{"id": 2, "text": "Four."}\n', "jsonl",
         [["One.", "Two.", "Three."], ["Four."]]),
        ("猫在睡觉。它梦见鱼。\n\n第二篇文章。“真的？”他问。\n", "blank",
         [["猫在睡觉。", "它梦见鱼。"], ["第二篇文章。", "“真的？”", "他问。"]]),
    ],
    ids=["blank", "sentence", "line", "wiki", "jsonl", "chinese"],
)
def test_formats_are_found_out_reported_and_read(text: str, format: str, expected: list[list[str]], tmp_path: Path) -> None:
    report = CorpusReport()
    file = write(tmp_path / "corpus.txt", text)
    found = sentences(file, report=report)
    assert report.formats == {format: 1}
    assert found == expected
    assert sum(map(len, found)) == report.sentences
    assert len(found) == report.documents == len(expected)


def test_a_hard_wrapped_book_is_one_document_of_whole_sentences(tmp_path: Path) -> None:
    words = [f"word{i}" + ("." if i % 13 == 12 else "") for i in range(260)]
    words = [w.capitalize() if i % 13 == 0 else w for i, w in enumerate(words)]
    lines = [" ".join(words[i : i + 10]) for i in range(0, 260, 10)]
    text = "\r\n".join(lines[:13]) + "\r\n\r\n" + "\r\n".join(lines[13:]) + "\r\n"
    report = CorpusReport()
    found = sentences(write(tmp_path / "novel.txt", "\ufeff" + text), report=report)
    assert report.formats == {"book": 1}
    assert found == [[" ".join(words[i : i + 13]) for i in range(0, 260, 13)]]


def test_a_format_can_be_forced_and_an_unknown_one_names_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", BLANK)
    assert len(sentences(file, format="line")) == 4
    assert len(sentences(file, format="book")) == 1
    with pytest.raises(CorpusError, match="'blank'"):
        sentences(file, format="blanks")


@pytest.mark.parametrize("size", [1, 7, 16, 40, 64, 1000])
@pytest.mark.parametrize(
    ("text", "format"),
    [(BLANK, "blank"), (SENTENCES, "sentence"), (LINES, "line"), (WIKI, "wiki"), (BLANK.replace("\n", "\r\n"), "blank"),
     ("\n \n" + BLANK + " \t\n", "blank"), ('{"text": "One. Two."}\n{"text": "Three."}', "jsonl"), (BLANK, "book")],
)
def test_small_blocks_give_the_documents_of_large_ones(text: str, format: str, size: int, tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", text)
    whole, cut = CorpusReport(), CorpusReport()
    expected = [(d.text.split("\n"), d.line) for d in read_documents([file], format=format, report=whole)]
    found = [(d.text.split("\n"), d.line) for d in read_documents([file], format=format, report=cut, block_bytes=size)]
    if size >= 40:  # smaller blocks cut within lines: the words stay, a sentence may come in two pieces
        assert found == expected
    assert ["".join(s).replace(" ", "") for s, _ in found] == ["".join(s).replace(" ", "") for s, _ in expected]
    assert len(found) == len(expected)
    assert cut.bytes == whole.bytes


def pack_zst(data: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(data))


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zst", pack_zst)]
)
def test_packed_files_are_read_and_damaged_ones_named(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = pack(BLANK.encode())
    assert sentences(write(tmp_path / f"a.txt.{ending}", data)) == TWO_BLANK
    with pytest.raises(CorpusError, match=rf"b\.txt\.{ending}: damaged"):
        sentences(write(tmp_path / f"b.txt.{ending}", data[:-8] if ending != "zst" else data[:4] + b"nonsense"))


def test_parquet_is_read_by_its_text_column(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["One. Two.", None, "Three."], "id": [1, 2, 3]}), tmp_path / "a.parquet")
    report = CorpusReport()
    assert sentences(tmp_path / "a.parquet", report=report) == [["One.", "Two."], ["Three."]]
    assert report.odd.counts == {"empty_document": 1}
    parquet.write_table(pyarrow.table({"body": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match="no column 'text'; it has: body"):
        sentences(tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match="damaged Parquet"):
        sentences(write(tmp_path / "c.parquet", b"PAR1 and then nothing"))


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("a.parquet", "pyarrow", "parquet"), ("a.txt.zst", "zstandard", "zstd")]
)
def test_a_missing_package_names_its_extra(
    name: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"cloze-lm\[{extra}\]"):
        sentences(write(tmp_path / name, b"PAR1"))


def test_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(BLANK.encode())

    monkeypatch.setattr(sys, "stdin", Input)
    assert sentences("-") == sentences("-") == TWO_BLANK


def test_a_pipe_of_the_shell_can_be_read_several_times_at_once() -> None:
    end, other_end = os.pipe()
    with os.fdopen(other_end, "wb") as stream:
        stream.write(BLANK.encode())
    path = f"/dev/fd/{end}"
    assert sentences(path) == sentences(path) == TWO_BLANK
    for first, second in zip(lines(path), lines(path), strict=True):
        assert first == second
    os.close(end)


def test_folders_leave_out_what_is_no_training_text_and_say_so(tmp_path: Path) -> None:
    for name in ("README.md", "LICENSE", "train.txt", "valid.txt", "test.txt.gz", ".hidden.txt", "notes.pdf"):
        write(tmp_path / name, gzip.compress(LINES.encode()) if name.endswith("gz") else LINES)
    (tmp_path / "AA").mkdir()
    write(tmp_path / "AA" / "wiki_00", WIKI)
    write(tmp_path / "AA" / "empty.txt", "\n")
    report = CorpusReport()
    documents = list(read_documents([tmp_path], report=report))
    assert {Path(d.file).name for d in documents} == {"train.txt", "wiki_00"}
    assert report.odd.counts == {"left_out": 5, "empty_file": 1}
    assert any("valid.txt: not training text, by its name" in place for place in report.odd.places["left_out"])
    assert [Path(d.file).name for d in read_documents([tmp_path / "valid.txt"])] == ["valid.txt"] * 2
    assert len(list(read_documents([str(tmp_path / "t*.txt"), tmp_path / "train.txt"]))) == 2  # no file twice


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "the file is empty"),
        ("blank.txt", b" \n\n", "the file is empty"),
        ("image.txt", bytes(range(256)) * 40, "binary file"),
        ("late.txt", (b"x" * 99 + b"\n") * 700 + b"\xe9\xe8" * 3000, "looks like another encoding"),
        ("a.tar.gz", b"", "is an archive"),
        ("packed.txt", gzip.compress(bytes(range(256))), r"a compressed file without the ending \.gz"),
        ("plain.txt.gz", b"The cat sleeps.\n", r"not compressed as its ending says\. Remove \.gz from its name"),
    ],
)
def test_what_is_no_text_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        sentences(write(tmp_path / name, content))
    assert name in str(caught.value)


def test_missing_paths_name_the_nearest_file(tmp_path: Path) -> None:
    write(tmp_path / "corpus.txt", LINES)
    with pytest.raises(CorpusError, match=r"Did you mean 'corpus\.txt'"):
        sentences(tmp_path / "corpsu.txt")
    with pytest.raises(CorpusError, match="no file matches"):
        sentences(str(tmp_path / "*.jsonl"))
    (tmp_path / "only").mkdir()
    write(tmp_path / "only" / "README.md", "x")
    with pytest.raises(CorpusError, match="holds no text file"):
        sentences(tmp_path / "only")


def test_a_report_says_nothing_of_the_file_that_texts_in_memory_become(tmp_path: Path) -> None:
    for name, layouts in (("given-corpus.jsonl", 0), ("texts.jsonl", 1)):
        report = CorpusReport()
        report.documents = sum(1 for _ in read_documents([write(tmp_path / name, b'{"text": "Rain falls."}\n')], report=report))
        counts, *rest = report.lines()
        assert counts.startswith("1 document, ") and len(rest) == layouts


def test_a_column_for_running_text_is_refused_with_the_way_to_read_both(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no column 'body'.*\n  To read it together with tables, call their column 'text'\."):
        list(read_documents([write(tmp_path / "a.txt", b"Rain falls.\n" * 9)], format="auto:body"))


def test_odd_things_are_counted_with_file_and_line(tmp_path: Path) -> None:
    long = b"word " * 210_000
    data = b"Fine here.\nBad \xff byte, and \xe4\xb8 more.\n\nNUL \0 here.\n" + long + b"\nEnd.\n" + b"Filler line.\n" * 200
    report = CorpusReport()
    text = "\n".join(d.text for d in read_documents([write(tmp_path / "a.txt", data)], report=report, format="blank"))
    assert report.odd.counts == {"undecodable": 3, "nul": 1, "long_line": 1, "long_sentence": 1}
    assert report.odd.places["undecodable"] == [f"{tmp_path}/a.txt:2", f"{tmp_path}/a.txt:2"]
    assert report.odd.places["nul"] == [f"{tmp_path}/a.txt:4"]
    assert report.odd.places["long_line"] == [f"{tmp_path}/a.txt:5 (1.1 MB)"]
    assert "Bad \ufffd byte, and \ufffd more." in text
    assert "NUL  here." in text
    assert text.count("word") == 210_000  # never truncated
    assert any("bytes that are not UTF-8" in line for line in report.lines())


def test_a_very_long_document_comes_in_parts_and_loses_nothing(tmp_path: Path) -> None:
    text = "".join(f"Line {number} is here.\n" for number in range(9000)) + "\nThe next.\n"
    file, report = write(tmp_path / "a.txt", text), CorpusReport()
    parts = list(read_documents([file], format="blank", report=report, block_bytes=1000, longest=20_000))
    assert [part.goes_on for part in parts] == [False] + [True] * (len(parts) - 2) + [False]
    assert 6 <= len(parts) <= 9 and max(len(part.text) for part in parts[1:]) < 20_000 + 3000  # the first block is the sample
    assert "\n".join(part.text for part in parts[:-1]) == text[: text.index("\n\n")]
    assert (parts[-1].text, {part.line for part in parts[:-1]}) == ("The next.", {1})
    assert (report.documents, report.sentences) == (2, 9001)


def test_a_line_of_many_megabytes_takes_no_more_memory_than_its_blocks(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for _ in range(16):
            packed.write(b"a" * 1_000_000 + b" " + b"word " * 200_000)
    report = CorpusReport()
    tracemalloc.start()
    try:
        found = read_documents([file], format="line", report=report, block_bytes=1 << 19, longest=1 << 21)
        letters = sum(len(sentence.replace(" ", "")) for document in found for sentence in document.sentences)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert letters == 16 * 1_800_000
    assert peak < 16_000_000  # the text has 32 MB
    assert report.odd.counts["long_line"] == 1 and report.odd.places["long_line"][0].endswith("MB and more)")


@pytest.mark.parametrize("format", ["book", "blank", "sentence"])
def test_a_large_file_that_ends_with_a_line_end_ends_its_document(tmp_path: Path, format: str) -> None:
    text = "".join(f"Line {number} of NAME.\n" for number in range(8000))
    for name in ("a.txt", "b.txt"):
        write(tmp_path / name, text.replace("NAME", name))
    found = list(read_documents([tmp_path], format=format))
    assert [(Path(d.file).name, d.line, d.sentences[0].strip()) for d in found] == [
        ("a.txt", 1, "Line 0 of a.txt."), ("b.txt", 1, "Line 0 of b.txt.")
    ]


def test_a_word_of_megabytes_reaches_no_tokenizer_in_one_piece(tmp_path: Path) -> None:
    long = "x" * 150_000 + " " + "word " * 20_000
    report = CorpusReport()
    for format in ("line", "sentence", "blank", "book"):
        (found,) = read_documents([write(tmp_path / "a.txt", f"{long}End.\n")], format=format, report=report)
        assert max(map(len, found.sentences)) <= 1 << 16
        assert "".join(found.sentences).replace(" ", "") == long.replace(" ", "") + "End."
    assert report.odd.counts["long_sentence"] == 4
    assert any("sentences over 65,536 characters, cut into pieces" in line for line in report.lines())


def test_a_record_of_many_megabytes_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloze.corpus.readers.blocks._LONGEST_RECORD", 1 << 20)
    file = write(tmp_path / "a.jsonl", json.dumps({"text": "First."}) + "\n" + json.dumps({"text": "word " * 1_000_000}))
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: a record of more than 1 MB; .* a document each\.\n  Split it"):
        list(read_documents([file], block_bytes=1 << 18))


def test_records_without_text_are_counted_and_many_of_them_refused(tmp_path: Path) -> None:
    good = '{"text": "Fine."}\n'
    report = CorpusReport()
    found = sentences(write(tmp_path / "a.jsonl", good * 300 + '{"text": 3}\n{"te'), report=report)
    assert len(found) == 300
    assert report.odd.counts == {"bad_record": 2}
    assert report.odd.places["bad_record"] == [f"{tmp_path}/a.jsonl:301", f"{tmp_path}/a.jsonl:302"]
    with pytest.raises(CorpusError, match=r'9 of 9 lines are not JSON objects with a text called "text"'):
        sentences(write(tmp_path / "b.jsonl", '{"body": "x"}\n' * 9), format="jsonl")


def test_white_space_between_sentences_stays_with_the_later_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "One is here.  Two is there. Three.\nFour。五。\n")
    documents = list(read_documents([file], format="blank"))
    assert documents[0].sentences == ["One is here.", "  Two is there.", " Three.", "Four。", "五。"]


def test_blocks_of_a_long_file_know_their_lines_and_line_ends_may_lie_across_them(tmp_path: Path) -> None:
    lines = [f"Line {number} of a long text{'.' * (number % 7)}" for number in range(9000)]
    path = write(tmp_path / "long.txt", "\r\n".join(lines))
    for size in range(70_000, 70_020):  # some end between a carriage return and its line feed
        first = 1
        texts = []
        for block in read_blocks([path], "line", CorpusReport(), size=size):
            assert isinstance(block.data, bytes) and block.line == first
            first += block.data.count(b"\n")
            texts.append(block.data)
        assert len(texts) > 3 and b"".join(texts).decode() == "\n".join(lines)


@pytest.mark.parametrize("before", ["", "A line.\n"])
def test_a_line_that_is_longer_than_a_block_gets_no_line_end_inside(before: str, tmp_path: Path) -> None:
    text = f"{before}{'one two three. ' * 20_000}end.\nA last line."
    blocks = list(read_blocks([write(tmp_path / "a.txt", text)], "blank", CorpusReport(), size=70_000))
    parsed = [parse_block(block, line_ends=True) for block in blocks]
    sentences = [sentence for one in parsed for document in one.documents for sentence in document]
    assert sum(block.within for block in blocks) >= 1
    assert "".join(sentences) == text
    plain = [one for block in blocks for document in parse_block(block).documents for one in document]
    assert "".join(plain) == text.replace("\n", "")


def test_layouts_of_tricky_beginnings() -> None:
    auto = wanted("auto")
    assert find_layout(b'{"body" x}\n', "a", auto).format == "line"
    assert find_layout(b"<p>not a doc</p>\n\nx\n", "a", auto).format == "blank"
    record = json.dumps({"text": "x" * 100_000}).encode()
    assert find_layout(record[: 1 << 16], "a", auto).format == "jsonl"


def test_documents_know_where_they_begin(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", WIKI)
    assert [(d.file, d.line) for d in read_documents([file])] == [(str(file), 1), (str(file), 9)]
    assert Document(["a", " b"], "x", 1).text == "a\nb"


def test_the_documentation_of_python_is_a_corpus_and_a_task() -> None:
    documents = list(python_docs())
    assert sum(len(d.text) for d in documents) > 1_000_000
    assert {"json", "email", "pydoc_data"} <= {d.package for d in documents}
    records = python_docs_records()
    assert len({r.package for r in records}) == 10
    modules = {part: {r.module for r in records if r.part == part} for part in ("train", "dev", "test")}
    assert not modules["train"] & modules["dev"] and not modules["dev"] & modules["test"]
    for part in ("dev", "test"):
        assert len({r.package for r in records if r.part == part}) == 10
        assert 0.07 < sum(r.part == part for r in records) / len(records) < 0.16
    assert len({r.text for r in records}) == len(records)


def test_an_input_is_the_same_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = ["a.txt", "texts/*.txt", "/texts", "-", "python-docs", "s3://bucket/store"]
    assert [absolute(path) for path in inputs] == [
        f"{tmp_path}/a.txt", f"{tmp_path}/texts/*.txt", "/texts", "-", "python-docs", "s3://bucket/store"
    ]
    (tmp_path / "python-docs").mkdir()
    assert absolute("python-docs") == f"{tmp_path}/python-docs"
