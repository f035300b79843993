"""Text files that are not UTF-8: guessed and told, named, or refused with the byte."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.cli import main as frame
from cloze.corpus.readers import read_documents
from cloze.corpus.readers.labelled import read_rows, read_table
from cloze.corpus.readers.report import CorpusReport
from cloze.corpus.readers.text_files import lines
from cloze.errors import CorpusError, TaskError, UserError
from cloze.knowledge.fact_table import read_triples
from cloze.knowledge.senses import read_senses
from cloze.text.encodings import reading_as
from cloze.text.matching import read_list

CHINESE = "猫在睡觉。它梦见鱼。\n第二篇文章很短。\n" * 20
FRENCH = "Le café était fermé à midi. Où est l’hôtel ?\nÇa va très bien, déjà prêt.\n" * 20
RUSSIAN = "Кошка спит. Ей снится рыба.\nВторой текст здесь.\n" * 20
JAPANESE = "猫が寝ている。魚の夢を見ている。\n二番目の文は短いです。\n" * 20
UNKNOWN = "ᚠᚢᚦ".encode("utf-16-be").replace(b"\x16", b"\xf1\x98\xf8") * 9 + b"\n"  # likely in no language
SHORT = "text\tlabel\nna\xefve\t1\n".encode("latin-1")


def read(path: Path, format: str = "line") -> tuple[str, CorpusReport]:
    report = CorpusReport()
    return "\n".join("".join(d.sentences) for d in read_documents([path], format=format, report=report)) + "\n", report


@pytest.mark.parametrize(
    ("text", "encoding", "told"),
    [
        (CHINESE, "gb18030", "gb18030, guessed from its first bytes; --encoding NAME overrides it"),
        (CHINESE, "utf-16", "utf-16, by its first bytes"), (FRENCH, "utf-32", "utf-32, by its first bytes"),
        (FRENCH, "cp1252", "cp1252, guessed"), (FRENCH.replace("’", "'"), "latin-1", "cp1252, guessed"),
        (RUSSIAN, "cp1251", "cp1251, guessed"), (RUSSIAN, "koi8-r", "koi8-r, guessed"), (JAPANESE, "cp932", "cp932, guessed"),
        ("貓在睡覺。牠夢見一條大魚。\n第二篇文章很短。\n" * 20, "big5", "big5, guessed"),
        ("고양이가 자고 있다. 물고기의 꿈을 꾸는 것이다.\n" * 20, "cp949", "cp949, guessed"),
        ("Czekają na męża. Żółw śpi, a ćma też nie może.\n" * 20, "cp1250", "cp1250, guessed"),
        ("¿Dónde está el niño? Mañana también.\n" * 20, "cp1252", "cp1252, guessed"),
    ],
)
def test_an_encoding_is_guessed_and_told(tmp_path: Path, text: str, encoding: str, told: str) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(text.encode(encoding)))
    found, report = read(file)
    assert found.replace(" ", "") == text.replace(" ", "")
    assert report.odd.counts == {"recoded": 1} and report.odd.places["recoded"][0].startswith(f"{file}: {told}")
    assert any(line.startswith("note: files that are not UTF-8, decoded: 1 (") for line in report.lines())


def test_a_long_text_of_few_accents_is_no_utf8_with_faults(tmp_path: Path) -> None:
    text = "A plain line without any.\n" * 3000 + "Caf\xe9, na\xefve, d\xe9j\xe0.\n" + "More of the same.\n" * 3000
    (tmp_path / "a.txt").write_bytes(("Na\xefve caf\xe9 \xe0 la carte d\xe9j\xe0.\n" + text).encode("latin-1"))
    found, report = read(tmp_path / "a.txt")
    assert "déjà" in found and "\ufffd" not in found and set(report.odd.counts) == {"recoded"}


def test_a_named_encoding_is_taken_in_a_table_too(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(("id,body\n" + "".join(f"{n},Кошка спит {n}.\n" for n in range(9))).encode("koi8-r"))
    found, report = read(file, "csv@koi8-r:body")
    assert found.startswith("Кошка спит 0.\nКошка") and report.odd.places["recoded"] == [f"{file}: koi8-r, as asked for"]


@pytest.mark.parametrize(
    ("data", "format", "told"),
    [
        (UNKNOWN, "auto", r"a\.txt:1: byte 0xf1 is not UTF-8, and the encoding is not certain\.\n  .*Name it: --encoding NAME, "
                            r"or convert it: iconv -f NAME -t UTF-8 .*a\.txt > NEW$"),
        (b"fine\n" * 40_000 + b"\x81\x8d.\n", "line@cp1252", r"a\.txt:40001: byte 200,000 \(0x81\) is not cp1252: .*\n  Name"),
        (CHINESE.encode("gb18030")[:-2], "line@gb18030", r"a\.txt:40: byte \d+ \(0x..\) is not gb18030: incomplete"),
        (b"x", "line@utf-88", "--encoding utf-88: no such encoding"),
        (b"x", "line@base64", "--encoding base64: no such encoding"),
        ("a line\n".encode("utf-16-le") * 9, "auto",
         r"a\.txt: every other byte is zero, which looks like UTF-16\.\n  Name it: --encoding utf-16-le$"),
    ],
)  # fmt: skip
def test_what_cannot_be_decoded_is_refused_with_its_byte(tmp_path: Path, data: bytes, format: str, told: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    with pytest.raises(CorpusError, match=told):
        read(file, format)


def test_the_command_takes_an_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(RUSSIAN[:5].encode("koi8-r"))
    assert frame.main(["corpus", "check", str(file)]) == 2
    assert "encoding is not certain" in capsys.readouterr().err
    file.write_bytes(RUSSIAN.encode("koi8-r"))
    assert frame.main(["corpus", "check", str(file), "--encoding", "KOI8-R"]) == 0
    assert "scripts: Cyrillic 100.0%" in capsys.readouterr().out
    out = str(tmp_path / "store")
    assert frame.main(["corpus", "build", str(file), "--encoding", "koi8-r", "--size", "80", "--out", out]) == 0
    assert "a.txt: koi8-r, as asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("text\tlabel\n这部电影很好看，我喜欢。\tpos\n太无聊了，不要看。\tneg\n", "gb18030"),
        ("text\tlabel\nC’est “bon”, déjà vu.\tpos\nÇa va à peine.\tneg\n", "cp1252"),
        ("text\tlabel\nОчень хороший фильм.\tpos\nСкучная история.\tneg\n", "cp1251"),
        ("text\tlabel\nこの映画は面白かった。\tpos\nつまらない話でした。\tneg\n", "cp932"),
        ("text\tlabel\nÜber Excel\tpos\nals Unicode-Text\tneg\n", "utf-16"),
    ],
)
def test_labelled_text_is_read_in_its_encoding_and_told_once(tmp_path: Path, text: str, encoding: str) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(text.encode(encoding))
    notes: list[str] = []
    with reading_as(None, notes.append):
        rows = list(read_rows(file, {"text": "--text NAME", "label": "--label NAME"}))
        table = read_table(file)
    assert [cells for _, cells in rows] == [tuple(line.split("\t")) for line in text.split("\n")[1:-1]]
    assert table.rows == tuple(cells for _, cells in rows)
    assert len(notes) == 1 and notes[0].startswith(f"note: {file}: read as {encoding}, ")


def test_carriage_returns_end_lines_only_where_there_are_no_line_feeds(tmp_path: Path) -> None:
    """Old Macs and their spreadsheets end lines so; elsewhere a lone carriage return is a character of its line."""
    (tmp_path / "mac.txt").write_bytes("déjà vu\rsecond\r".encode())
    assert [(line.number, line.text) for line in lines(tmp_path / "mac.txt")] == [(1, "déjà vu"), (2, "second")]
    (tmp_path / "other.txt").write_bytes(b"first\rline\r\nsecond")
    assert [line.text for line in lines(tmp_path / "other.txt")] == ["first\rline", "second"]


def test_a_named_encoding_holds_for_labelled_text_and_for_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(SHORT)
    with reading_as("LATIN1"):
        assert read_table(file).rows == (("naïve", "1"),)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SHORT)))
        assert [line.text for line in lines("-")] == ["text\tlabel", "naïve\t1"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (SHORT, r"a\.tsv:2: byte 0xef is not UTF-8, and the encoding is not certain\.\n"
                r"  As cp1252 \('naïve\\t1'\).*\? Name it: --encoding NAME, or .*: iconv -f NAME -t UTF-8 .* > NEW$"),
        (b"text\tlabel\n" + "déjà vu\t1\n".encode() + b"na\xefve\t1\n",
         r"a\.tsv:3: byte 0xef is not UTF-8, but other characters of this file are\.\n  Correct this line"),
        (b"text\tlabel\nfine\t1\na\0b\t1\n",
         r"a\.tsv:3: a NUL character, which no text has\. Remove it: tr -d '\\000' < .*a\.tsv > NEW"),
        ("text\tlabel\nfine\t1\n".encode("utf-16-be"), r"looks like UTF-16\.\n  Name it: --encoding utf-16-be$"),
        (bytes(range(256)) * 9, r"a\.tsv: a binary file, not text"),
    ],
)  # fmt: skip
def test_labelled_text_in_no_certain_encoding_is_refused_with_its_line(tmp_path: Path, data: bytes, told: str) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(data)
    with pytest.raises(TaskError, match=told):
        read_table(file)
    file.with_suffix(".csv").write_bytes(data.replace(b"\t", b","))
    with pytest.raises(TaskError, match=told.replace("tsv", "csv").replace(r"\\t", ",")):
        read_table(file.with_suffix(".csv"))


@pytest.mark.parametrize("read_file", [read_list, lambda file, where: read_triples(file), lambda file, where: read_senses(file)])
def test_lists_are_read_in_their_encoding_or_refused_with_the_likely_ones(
    tmp_path: Path, read_file: Callable[[str, str], Any]
) -> None:
    row, file = "北京在\t我们的\t中国\n", tmp_path / "a.txt"
    file.write_bytes((row * 3).encode("gb18030"))
    plain = tmp_path / "plain.txt"
    plain.write_text(row * 3, encoding="utf-8")
    assert read_file(str(file), "list") == read_file(str(plain), "list")
    file.write_bytes("a\tnaïve\tb\n".encode("cp1252"))
    told = r"a\.txt:1: byte 0xef is not UTF-8.*\n  As cp1252 \(.*\? Convert it, such as: iconv -f cp1252 "
    with pytest.raises(UserError, match=told):
        read_file(str(file), "list")
