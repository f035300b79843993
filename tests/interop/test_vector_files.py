"""word2vec's and GloVe's files: what is read is what was written, and every fault has a message of its own."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.cli.main import main
from cloze.errors import ClozeError, UserError
from cloze.interop.vectors import Vectors, alike, open_vectors, write_vectors
from cloze.interop.vectors.binary import read_binary, write_binary
from cloze.interop.vectors.fasttext import as_fasttext, write_fasttext
from cloze.interop.vectors.text import read_text, write_text
from cloze.text.encodings import reading_as

WORDS = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8), min_size=2, max_size=6, unique=True
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def some_vectors(draw: st.DrawFn) -> Vectors:
    words = draw(WORDS)
    width = draw(st.integers(2, 5))
    numbers = draw(st.lists(FLOATS, min_size=len(words) * width, max_size=len(words) * width))
    return Vectors(words, np.array(numbers, np.float32).reshape(-1, width), "here")


def same(one: Vectors, two: Vectors) -> bool:
    return list(one.words) == list(two.words) and np.array_equal(one.own, two.own)


@given(some_vectors())
@settings(deadline=None, max_examples=60)
def test_every_format_keeps_every_bit(vectors: Vectors) -> None:
    for header in (True, False):
        file = io.BytesIO()
        assert write_text(file, vectors, header=header) == []
        assert same(read_text(io.BytesIO(file.getvalue()), "f"), vectors)
    file = io.BytesIO()
    assert write_binary(file, vectors) == []
    assert same(read_binary(file.getvalue(), "f"), vectors)


def test_rows_are_read_in_many_blocks() -> None:
    rows = b"".join(b"w%d %d 0.5\n" % (i, i) for i in range(10_000))
    found = read_text(io.BytesIO(b"10000 2\n" + rows), "f")
    assert found.own.shape == (10_000, 2) and found.own[9_999].tolist() == [9999.0, 0.5]
    assert same(read_text(io.BytesIO(rows + b"\n\n"), "f"), found)


def test_words_with_spaces_tabs_and_stray_bytes_are_read() -> None:
    rows = b". . . 1 2\nat name@x.com 3 4\ntab\t5 6\nbad\xff 7 8 \r\nb\xc3\xa9 9  1\n"
    found = read_text(io.BytesIO(b"the 0 0\n" + rows), "f")
    assert list(found.words) == ["the", ". . .", "at name@x.com", "tab", "bad\\xff", "bé"]
    assert found.own[1:].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 1]]


FRENCH = ["été", "élève", "père", "forêt", "garçon", "hôtel", "là", "où", "Noël", "français", "même", "très"]


def test_a_file_in_latin_1_is_read_in_the_encoding_that_its_words_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes("".join(f"{word} {row} 1\n" for row, word in enumerate(["the", *FRENCH], 1)).encode("latin-1"))
    assert list(open_vectors(path).words) == ["the", *FRENCH]
    assert main(["neighbours", str(path), "été", "--count", "1"]) == 0
    said = capsys.readouterr()
    assert said.out.split()[:2] == ["été", "élève"]
    assert said.err == f"note: {path}: read as cp1252, guessed from its words; --encoding NAME overrides it\n"


def test_the_encoding_of_words_that_is_not_certain_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "v.txt"
    words = ["the", "ŕ", "ŕŕ", "ŕŕŕ", "ŕŕŕŕ"]
    path.write_bytes("".join(f"{word} {row} 1\n" for row, word in enumerate(words, 1)).encode("iso8859-2"))
    assert main(["neighbours", str(path), "the"]) == 2
    said = capsys.readouterr().err
    assert f"{path}:2: byte 0xe0 is not UTF-8, and the encoding is not certain." in said
    assert f"Name it: --encoding NAME, or convert it: iconv -f cp1251 -t UTF-8 {path} > NEW" in said
    assert main(["neighbours", str(path), "the", "--count", "1", "--encoding", "iso8859-2"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["the", "ŕ"]


@pytest.mark.parametrize(("encoding", "words"), [("latin-1", FRENCH), ("iso8859-2", ["ŕ", "ŕŕ", "ŕŕŕ", "ŕŕŕŕ"])])
def test_binary_files_in_another_encoding_are_read_in_it_or_keep_bytes_until_it_is_named(
    tmp_path: Path, encoding: str, words: list[str]
) -> None:
    rows = np.arange(1, 2 * len(words) + 1, dtype=np.float32).reshape(-1, 2)
    escaped = [word.encode(encoding).decode("ascii", "backslashreplace") for word in words]
    spelled = [word.encode(encoding) for word in words]
    binary = b"".join(word + b" " + row.tobytes() + b"\n" for word, row in zip(spelled, rows, strict=True))
    (tmp_path / "word2vec.bin").write_bytes(b"%d 2\n" % len(words) + binary)
    file = io.BytesIO()
    placeholders = [f"word{row:02}" for row in range(len(words))]
    write_fasttext(file, as_fasttext(Vectors(placeholders, rows, "v"))[0])
    data = file.getvalue()
    for placeholder, word in zip(placeholders, spelled, strict=True):
        data = data.replace(placeholder.encode(), word)
    (tmp_path / "fasttext.bin").write_bytes(data)
    for name in ("word2vec.bin", "fasttext.bin"):
        assert list(open_vectors(tmp_path / name).words) == (words if encoding == "latin-1" else escaped)
        with reading_as(encoding):
            assert list(open_vectors(tmp_path / name).words) == words


def test_words_that_are_left_out_because_their_vectors_are_zero_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "v.txt"
    path.write_text("cat 1 0\nsat 0 0\ndog 1 1\nmat 0 1\n")
    assert main(["neighbours", str(path), "cat"]) == 0
    said = capsys.readouterr()
    assert said.out == "cat\n  dog  0.7071\n  mat  0.0000\n"
    assert said.err == "note: left out because the vector is zero: 1 word: 'sat'\n"


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert same(read_text(io.BytesIO(b"\xef\xbb\xbf" + GOOD), "f"), read_text(io.BytesIO(GOOD), "f"))


def test_a_binary_file_may_lack_line_feeds() -> None:
    rows = b"".join(word + b" " + np.float32([1, 2]).tobytes() for word in (b"a", b"b"))
    assert read_binary(b"2 2\n" + rows, "f").own.tolist() == [[1, 2], [1, 2]]


def test_words_that_a_format_cannot_hold_are_left_out_and_told() -> None:
    vectors = Vectors(["a b", "c"], np.float32([[1, 2], [3, 4]]), "here")
    for write in (write_text, write_binary):
        file = io.BytesIO()
        (remark,) = write(file, vectors)  # type: ignore[operator]
        assert "1 words with white space" in remark and file.getvalue().startswith(b"1 2\nc ")


GOOD = b"3 2\na 1 2\nb 3 4\nc 5 6\n"
BINARY = b"2 2\na " + np.float32([1, 2]).tobytes() + b"\nb " + np.float32([3, 4]).tobytes() + b"\n"
FAULTS: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["empty; expected vectors"]),
    "one number too few promised": (GOOD.replace(b"3 2", b"2 2", 1), [":1: the first line says 2 words, 3 follow", "`3 2`"]),
    "cut off": (GOOD[:-6], [":1: the first line says 3 words, 2 follow", "copy it again"]),
    "no sizes": (b"0 2\n", ["says 0 words of 2 numbers; expected two numbers above 0"]),
    "a width that nothing has": (b"3 %d\na 1 2\n" % (1 << 62), ["says 3 words of 4611686018427387904 numbers; expected"]),
    "a width of more digits than Python reads": (
        b"3 %s\na 1 2\n" % (b"9" * 5000), [":2: 'a' with 2 numbers; expected a word and 1 numbers, as in the first line"]
    ),
    "negative sizes": (b"-3 2\na 1 2\n", ["says -3 words"]),
    "another width": (GOOD.replace(b"3 2", b"3 4", 1), [":2: 'a' with 2 numbers; the first line says 4", "second number"]),
    "a short row": (GOOD.replace(b"b 3 4", b"b 3"), [":3: 'b' with 1 numbers; expected a word and 2 numbers"]),
    "a long row": (GOOD.replace(b"b 3 4", b"b 3 4 5"), [":3: 'b' with 3 numbers"]),
    "rows that cancel out": (b"a 1 2\nb 3\nc 4 5 6\n", [":2: 'b' with 1 numbers", "as in the first line"]),
    "no word": (GOOD.replace(b"b 3 4", b" 3 4"), [":3: no word"]),
    "an empty line": (GOOD.replace(b"b 3 4", b""), [":3: an empty line"]),
    "no number": (GOOD.replace(b"b 3 4", b"b 3 x4"), [":3: 'x4' is not a number"]),
    "not finite": (GOOD.replace(b"b 3 4", b"b 3 nan"), ["number 2 of 'b' (row 2) is nan; expected finite"]),
    "infinite": (GOOD.replace(b"b 3 4", b"b -inf 4"), ["number 1 of 'b' (row 2) is -inf"]),
    "a word twice": (GOOD.replace(b"c 5", b"a 5"), ["a word comes twice: 'a' (lines 2 and 4)", "--repeated first"]),
    "words twice": (b"a 1 2\na 1 2\na 3 4\n", ["2 words come again, the first is 'a' (lines 1 and 2)"]),
    "prose": (b"Chapter one\nIt was a dark night.\n", [":1: 'Chapter one' does not begin a file of vectors"]),
    "zip": (b"PK\x03\x04....", ["zip archive", "Unpack it"]),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0", ["binary file of another kind"]),
    "a pickle": (b"\x80\x04\x95\0\0", ["a pickle, which can run any code", "save_word2vec_format"]),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", ["git lfs pull"]),
    "sparse": ("2 9\n的 1:0.5 9:-2e-5\n是 2:1\n".encode(), [":2: '1:0.5' is an index and a value", "all its 9 numbers"]),
    "binary, cut off": (BINARY[:-4], ["2 words of 2 numbers, but the file ends inside row 2 after 22 bytes"]),
    "binary, far too short": (BINARY.replace(b"2 2", b"9 9"), ["9 words of 9 numbers, but the file ends after"]),
    "binary, more rows": (BINARY.replace(b"2 2", b"1 2"), ["1 words of 2 numbers, and 12 bytes follow"]),
    "binary, another width": (BINARY.replace(b"2 2", b"2 1"), ["no word where row 2 of 2 should begin"]),
    "binary, not finite": (BINARY[:-5] + np.float32(np.nan).tobytes(), ["number 2 of 'b' (row 2) is nan"]),
    "binary, a word twice": (BINARY.replace(b"\nb ", b"\na "), ["'a' (rows 1 and 2)"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_a_file_is_told(fault: str, tmp_path: Path) -> None:
    content, expected = FAULTS[fault]
    path = tmp_path / "vectors.x"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        open_vectors(path)
    message = str(error.value)
    assert message.startswith(str(path)) and all(part in message for part in expected), message


def test_a_word_that_comes_twice_can_be_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"a 1 2\nb 3 4\na 5 6\n")
    found = open_vectors(path, repeated="first")
    assert list(found.words) == ["a", "b"] and found.own.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(UserError, match="Did you mean 'first'"):
        open_vectors(path, repeated="frist")


@pytest.mark.parametrize("content", [GOOD, GOOD[4:], BINARY])
def test_packed_files_are_read_and_kinds_told_by_content(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "v.gz"
    path.write_bytes(gzip.compress(content))
    plain = tmp_path / "v.any"
    plain.write_bytes(content)
    assert same(open_vectors(path), open_vectors(plain))
    path.write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(ClozeError, match="damaged or truncated"):
        open_vectors(path)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_bytes(GOOD)
    with pytest.raises(UserError, match="no such file or folder.*Did you mean 'vectors.txt'"):
        open_vectors(tmp_path / "vector.txt")


@pytest.mark.parametrize("to", ["word2vec", "word2vec-binary", "glove"])
@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_formats_convert_into_each_other(to: str, name: str, tmp_path: Path) -> None:
    source = tmp_path / "v.txt"
    source.write_bytes(GOOD)
    assert write_vectors(source, to, tmp_path / name) == (3, 2, [])
    assert same(open_vectors(tmp_path / name), open_vectors(source))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "v.txt"])


@pytest.mark.parametrize("to", ["word2vec", "word2vec-binary", "glove"])
def test_words_with_white_space_are_not_counted_among_those_that_are_written(to: str, tmp_path: Path) -> None:
    source = tmp_path / "v.txt"
    source.write_text("3 2\nthe 1 2\nNew\u00a0York 3 4\ncat 5 6\n", encoding="utf-8")
    assert len(open_vectors(source)) == 3
    count, width, remarks = write_vectors(source, to, tmp_path / "out")
    assert (count, width) == (2, 2) and remarks[0].startswith("1 words with white space in them were left out")
    assert len(open_vectors(tmp_path / "out")) == 2


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    source = tmp_path / "v.txt"
    source.write_bytes(GOOD.replace(b"3 4", b"3"))
    with pytest.raises(UserError):
        write_vectors(source, "word2vec", tmp_path / "out")
    with pytest.raises(UserError, match="its folder does not exist"):
        write_vectors(_good(tmp_path), "word2vec", tmp_path / "no" / "out")
    with pytest.raises(UserError, match="unknown format 'glov'. Did you mean 'glove'"):
        write_vectors(source, "glov", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.txt", "v.txt"]


def test_a_file_that_is_there_already_is_replaced_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    with pytest.raises(UserError, match="already exists. Choose another name, or replace it with --overwrite"):
        write_vectors(_good(tmp_path), "word2vec", out)
    assert out.read_text() == "mine"
    write_vectors(_good(tmp_path), "word2vec", out, overwrite=True)
    assert same(open_vectors(out), open_vectors(_good(tmp_path)))


def test_an_unknown_word_names_the_nearest_by_spelling() -> None:
    vectors = Vectors(["queen", "king", "London", "kings"], np.eye(4, dtype=np.float32), "v.txt")
    with pytest.raises(UserError, match="'quen' is not among the 4 words of v.txt. Did you mean 'queen'"):
        vectors.vector("quen")
    assert alike("london", vectors.words) == " Did you mean 'London'?"
    assert alike("zzzz", vectors.words) == ""
    assert alike("k", ["k1", "a"]) in ("", " Did you mean 'k1'?")
    assert alike("girl", ["girls", "/c/en/girl"]) == " Did you mean '/c/en/girl'?"
    assert vectors.find("quen") is None


def _good(folder: Path) -> Path:
    path = folder / "good.txt"
    path.write_bytes(GOOD)
    return path
