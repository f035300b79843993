"""Text files that are not UTF-8: guessed and told, named, or refused with the byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cloze.cli import main as frame
from cloze.corpus.readers import read_documents
from cloze.corpus.report import Report
from cloze.errors import CorpusError

CHINESE = "猫在睡觉。它梦见鱼。\n第二篇文章很短。\n" * 20
FRENCH = "Le café était fermé à midi. Où est l’hôtel ?\nÇa va très bien, déjà prêt.\n" * 20
RUSSIAN = "Кошка спит. Ей снится рыба.\nВторой текст здесь.\n" * 20


def read(path: Path, format: str = "line") -> tuple[str, Report]:
    report = Report()
    return "\n".join("".join(d.sentences) for d in read_documents([path], format=format, report=report)) + "\n", report


@pytest.mark.parametrize(
    ("text", "encoding", "told"),
    [
        (CHINESE, "gb18030", "gb18030, guessed from its first bytes; --encoding NAME overrides it"),
        (CHINESE, "utf-16", "utf-16, by its first bytes"), (FRENCH, "utf-32", "utf-32, by its first bytes"),
        (FRENCH, "cp1252", "cp1252, guessed"), (FRENCH.replace("’", "'"), "latin-1", "latin-1, guessed"),
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
        (RUSSIAN.encode("koi8-r"), "auto", r"a\.txt: byte 0 \(0xeb\) is not UTF-8, and .* cannot be guessed\.\n  Name it"),
        (b"fine\n" * 40_000 + b"\x81\x8d.\n", "line@cp1252", r"a\.txt: byte 200,000 \(0x81\) is not cp1252: .*\n  Name"),
        (CHINESE.encode("gb18030")[:-2], "line@gb18030", r"a\.txt: byte \d+ \(0x..\) is not gb18030: incomplete"),
        (b"x", "line@utf-88", "--encoding utf-88: no such encoding"),
        (b"x", "line@base64", "--encoding base64: no such encoding"),
        ("a line\n".encode("utf-16-le") * 9, "auto", r"a binary file.*\n.*\n  If it is UTF-16: --encoding utf-16-le"),
    ],
)  # fmt: skip
def test_what_cannot_be_decoded_is_refused_with_its_byte(tmp_path: Path, data: bytes, format: str, told: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    with pytest.raises(CorpusError, match=told):
        read(file, format)


def test_the_command_takes_an_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(RUSSIAN.encode("koi8-r"))
    assert frame.main(["corpus", "check", str(file)]) == 2
    assert "cannot be guessed" in capsys.readouterr().err
    assert frame.main(["corpus", "check", str(file), "--encoding", "KOI8-R"]) == 0
    assert "scripts: Cyrillic 100.0%" in capsys.readouterr().out
    out = str(tmp_path / "store")
    assert frame.main(["corpus", "build", str(file), "--encoding", "koi8-r", "--size", "80", "--out", out]) == 0
    assert "a.txt: koi8-r, as asked for" in capsys.readouterr().out
