"""Catalogues of gettext as parallel text and as text: what is read, what is left out, and which languages they have."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cloze.corpus.readers.documents import read_documents
from cloze.corpus.readers.formats import with_column
from cloze.corpus.readers.gettext import read_catalogue
from cloze.corpus.readers.pair_files import read_pairs
from cloze.corpus.readers.report import CorpusReport
from cloze.corpus.stores.languages import language_folders, read_languages
from cloze.errors import CorpusError

GERMAN = r'''
# A comment of the translator
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: de\n"

#: menu.c:3
msgctxt "verb"
msgid "Open"
msgstr "Öffnen"
msgid "Say \"hi\"\nand\tgo \\ \x41\102"
msgstr ""
"Sag „hi“\n"
"und geh"

msgid "one file"
msgid_plural "%d files"
msgstr[0] "eine Datei"
msgstr[1] "%d Dateien"

#, fuzzy, c-format
msgid "Close"
msgstr "Geschlossen"

msgid "Never translated"
msgstr ""

msgid "half a plural"
msgid_plural "halves"
msgstr[0] "eine Hälfte"
msgstr[1] ""

#~ msgid "Gone"
#~ msgstr "Weg"
'''
PAIRS = [
    ("Open", "Öffnen"), ('Say "hi" and go \\ AB', "Sag „hi“ und geh"), ("one file", "eine Datei"), ("%d files", "%d Dateien"),
]


def compiled(entries: dict[str, str], order: str = "<") -> bytes:
    """A .mo file."""
    texts = [(key.encode(), text.encode()) for key, text in sorted(entries.items())]
    place, tables, data = 28 + 16 * len(texts), [b"", b""], b""
    for pair in texts:
        for number, one in enumerate(pair):
            tables[number] += struct.pack(f"{order}II", len(one), place + len(data))
            data += one + b"\0"
    head = struct.pack(f"{order}IIIIIII", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    return head + tables[0] + tables[1] + data


def test_messages_and_translations_are_pairs_and_the_rest_is_counted() -> None:
    found = read_catalogue("locale/x/LC_MESSAGES/a.po", GERMAN.encode())
    assert found.language == "de" and [(left, right) for _, left, right in found.pairs] == PAIRS
    assert found.pairs[0][0] == 9 and found.fuzzy == 1
    assert [text for _, text in found.empty] == ["Never translated", "half a plural"]
    assert found.left_out == "1 fuzzy, 2 without a translation"


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_compiled_catalogue_gives_the_same(order: str) -> None:
    entries = {
        "": "Content-Type: text/plain; charset=UTF-8\nLanguage: de\n", "verb\x04Open": "Öffnen",
        "one file\0%d files": "eine Datei\0%d Dateien",
    }
    found = read_catalogue("a.mo", compiled(entries, order))
    assert found.language == "de" and sorted(pair[1:] for pair in found.pairs) == sorted([PAIRS[0], *PAIRS[2:]])


@pytest.mark.parametrize(("path", "language"), [
    ("locale/pt_BR/LC_MESSAGES/django.po", "pt_BR"), ("po/sr@latin.po", "sr-latin"), ("zh_Hans.po", "zh_Hans"),
])
def test_without_a_header_the_path_tells_the_language(path: str, language: str) -> None:
    assert read_catalogue(path, b'msgid "a"\nmsgstr "b"\n').language == language


@pytest.mark.parametrize(("path", "content", "expected"), [
    ("messages.po", b'msgid "a"\nmsgstr "b"\n', r"messages.po: no language: .* Name the file by its language: de.po"),
    ("de.po", b'msgid "a"\nmsgstr "b\n', r"""de.po:2: expected msgid, msgstr or a text in quotes, found 'msgstr "b'"""),
    ("de.po", b'msgid ""\nmsgstr "charset=utf-8"\nmsgid "a"\nmsgstr "\xff"\n', r"de.po: its header says charset=utf-8.*msgconv"),
    ("de.mo", b"\xde\x12\x04\x95 and no more", r"de.mo: no catalogue of gettext, or a damaged one.*msgfmt"),
    ("de.mo", b"text", r"de.mo: no catalogue of gettext"),
])
def test_a_damaged_catalogue_is_an_error_in_words(path: str, content: bytes, expected: str) -> None:
    with pytest.raises(CorpusError, match="(?s)" + expected):
        read_catalogue(path, content)


def test_catalogues_are_text_in_their_languages_where_a_folder_has_no_other_text(tmp_path: Path) -> None:
    for language, word in (("de", "Öffnen"), ("en_GB", "")):
        folder = tmp_path / "locale" / language / "LC_MESSAGES"
        folder.mkdir(parents=True)
        rows = f'msgid "Open"\nmsgstr "{word}"\n\n#, fuzzy\nmsgid "x"\nmsgstr "y"\n\n'
        (folder / "app.po").write_text(f'{rows}msgid "Colour"\nmsgstr "{word and "Farbe"}"\n', encoding="utf-8")
        (folder / "app.mo").write_bytes(compiled({"Open": word}))
    report = CorpusReport()
    (tmp_path / "locale" / "de_CH").mkdir()
    (tmp_path / "locale" / "de_CH" / "formats.py").write_text("DATE = 'd.m.Y'\n", encoding="utf-8")
    folders = language_folders([tmp_path / "locale"], report.odd)
    assert any("de_CH: holds no text" in line for line in report.lines())
    found = [(block.data, block.lines, block.languages) for block in read_languages(folders, "auto", report)]
    assert found == [(["Öffnen", "Farbe"], [1, 8], (0,)), (["Open", "Colour"], [1, 8], (1,))]
    assert [file["why"] for file in report.files] == [
        "by its ending, in de; left out: 1 fuzzy", "by its ending, in en_GB; left out: 1 fuzzy, 2 without a translation",
    ]
    (tmp_path / "locale" / "notes.txt").write_text("Notes on the program.\n", encoding="utf-8")
    (only,) = read_documents([tmp_path / "locale"])
    assert only.sentences == ["Notes on the program."]


def test_a_folder_of_catalogues_is_parallel_text_in_many_languages(tmp_path: Path) -> None:
    for language, word in (("de", "Öffnen"), ("fr", "Ouvrir"), ("zh_Hans", "打开")):
        folder = tmp_path / "locale" / language / "LC_MESSAGES"
        folder.mkdir(parents=True)
        rows = f'msgid "Open"\nmsgstr "{word}"\n\n#, fuzzy\nmsgid "x"\nmsgstr "y"\n' * 3
        (folder / "app.po").write_text(rows, encoding="utf-8")
        (folder / "app.mo").write_bytes(compiled({"Open": word}))  # the same, compiled
    report = CorpusReport()
    names, blocks = read_pairs([tmp_path / "locale"], report)
    assert names == ("en", "de", "fr", "zh_Hans") and with_column("gettext", None) == "pairs"
    assert [(block.data, block.languages) for block in blocks] == [
        (["Open", word] * 3, (0, number)) for number, word in enumerate(("Öffnen", "Ouvrir", "打开"), 1)
    ]
    assert [file["why"] for file in report.files] == [f"en and {name}; left out: 3 fuzzy" for name in names[1:]]
