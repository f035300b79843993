"""Catalogues of gettext, .po and .mo: the messages of a program with their translations, as parallel text or as text.

The messages of most programs are English. Many have catalogues in dozens of languages (Django's in a hundred), so a folder of
them is parallel text in as many.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cloze.errors import CorpusError

CATALOGUES = frozenset({".po", ".mo"})
SOURCE = "en"  # the language of messages

_CODE = re.compile(r"[a-z]{2,3}(?:[_-][A-Za-z]{2,8})?(?:@[a-z]+)?")
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "v": "\v", "f": "\f"}
_LINE = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr)(?:\[(\d+)\])?\s*(".*")\s*$')
_CHARSET = re.compile(r"charset=([\w.:-]+)")


class TranslatedMessage(NamedTuple):
    """A message and its translations by plural form; `line` is where it begins, `fuzzy`: a guess that nobody has checked."""

    line: int
    message: str
    plural: str | None
    translations: tuple[str, ...]
    fuzzy: bool


@dataclass
class Catalogue:
    """What a catalogue holds: the `language` of its translations, its `pairs` (line, message, translation), how many entries
    were left out as `fuzzy`, and those (line, message) that are `empty` because a form has no translation."""

    language: str
    pairs: list[tuple[int, str, str]] = field(default_factory=list)
    fuzzy: int = 0
    empty: list[tuple[int, str]] = field(default_factory=list)

    @property
    def texts(self) -> list[tuple[int, str]]:
        """The text in the language of the catalogue: the translations with their lines. A program shows a message that has none
        as it is, so an English catalogue also has these."""
        english = self.language.partition("_")[0].partition("-")[0] == SOURCE
        return sorted([*((line, text) for line, _, text in self.pairs), *(self.empty if english else ())])

    @property
    def left_out(self) -> str:
        """The counts in words; empty if nothing was left out."""
        counts = {"fuzzy": self.fuzzy, "without a translation": len(self.empty)}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def read_catalogue(path: str, content: bytes) -> Catalogue:
    """The pairs of a .po or .mo file. A message with a plural gives a pair for its singular and the first form of the
    translation, and one for its plural and the last form. White space, line ends too, becomes single spaces.

    The language is that of the header's `Language:`, else that of the path (`locale/de/LC_MESSAGES/x.po`, `de.po`). Raises a
    `CorpusError` with file and line for anything that is no catalogue.
    """
    entries = list(_compiled(path, content) if path.endswith(".mo") else _source(path, content))
    header = next((entry.translations[0] for entry in entries if not entry.message and entry.translations), "")
    catalogue = Catalogue(_language(path, header))
    for entry in entries:
        if not entry.message:
            continue
        forms = [text for text in entry.translations if text.strip()]
        if entry.fuzzy:
            catalogue.fuzzy += 1
        elif len(forms) < len(entry.translations) or not forms:
            catalogue.empty.append((entry.line, _flat(entry.message)))
        else:
            catalogue.pairs.append((entry.line, _flat(entry.message), _flat(forms[0])))
            if entry.plural is not None and len(forms) > 1:
                catalogue.pairs.append((entry.line, _flat(entry.plural), _flat(forms[-1])))
    return catalogue


def without_compiled(files: Iterable[Path]) -> list[Path]:
    """These files without the .mo files that are made of a .po file among them."""
    files = list(files)
    sources = {path.with_suffix("") for path in files if path.suffix == ".po"}
    return [path for path in files if path.suffix != ".mo" or path.with_suffix("") not in sources]


def _flat(text: str) -> str:
    return " ".join(text.split())


def _language(path: str, header: str) -> str:
    match = re.search(r"^Language:[ \t]*(\S+)", header, re.MULTILINE)
    if match is not None and _CODE.fullmatch(match[1]):
        return match[1].replace("@", "-")
    file = Path(path)
    inside = [file.parts[i - 1] for i, part in enumerate(file.parts) if part == "LC_MESSAGES" and i]
    language = next((name for name in [*inside, file.stem] if _CODE.fullmatch(name)), None)
    if language is None:
        raise CorpusError(
            f"{path}: no language: neither a header with Language: nor a path such as locale/de/LC_MESSAGES/{file.name}.\n"
            f"  Name the file by its language: de{file.suffix}"
        )
    return language.replace("@", "-")


def _source(path: str, content: bytes) -> Iterator[TranslatedMessage]:
    """The entries of a .po file; obsolete ones (`#~`) are no entries."""
    charset = _CHARSET.search(content[:4096].decode("latin-1"))
    encoding = "utf-8" if charset is None or charset[1].upper() == "CHARSET" else charset[1]
    try:
        lines = content.decode(encoding).removeprefix("\ufeff").split("\n")
    except (UnicodeDecodeError, LookupError):
        raise CorpusError(
            f"{path}: its header says charset={encoding}, which it is not.\n  Save it as UTF-8: msgconv -t UTF-8"
        ) from None
    fields: dict[str, str] = {}
    begin, last, fuzzy = 0, "", False

    def entry() -> Iterator[TranslatedMessage]:
        if "msgid" in fields:
            forms = sorted((int(key[7:-1]), text) for key, text in fields.items() if key.startswith("msgstr["))
            texts = tuple(text for _, text in forms) if forms else (fields.get("msgstr", ""),)
            yield TranslatedMessage(begin, fields["msgid"], fields.get("msgid_plural"), texts, fuzzy)

    for number, line in enumerate([*lines, ""], 1):
        row = line.strip()
        if row.startswith("#") or not row:
            if "msgid" in fields and any(key.startswith("msgstr") for key in fields):
                yield from entry()
                fields, last, fuzzy = {}, "", False
            fuzzy = fuzzy or row.startswith("#,") and "fuzzy" in row
            continue
        match = _LINE.fullmatch(row)
        if match is not None:
            name = match[1] if match[2] is None else f"{match[1]}[{match[2]}]"
            if name in ("msgid", "msgctxt") and "msgid" in fields:
                yield from entry()
                fields, fuzzy = {}, False
            if name in ("msgid", "msgctxt") and not fields:
                begin = number
            last, fields[name] = name, _unescaped(match[3])
        elif len(row) > 1 and row.startswith('"') and row.endswith('"') and last:
            fields[last] += _unescaped(row)
        else:
            raise CorpusError(
                f'{path}:{number}: expected msgid, msgstr or a text in quotes, found {row[:60]!r}.\n'
                "  Check the file: msgfmt --check"
            )
    yield from entry()


def _unescaped(quoted: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code[0] in "01234567" else _SIMPLE.get(code, code)

    return _ESCAPED.sub(plain, quoted[1:-1])


def _compiled(path: str, content: bytes) -> Iterator[TranslatedMessage]:
    """The entries of a .mo file, of either byte order; fuzzy ones are not in it."""
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(content[:4])
    try:
        if order is None:
            raise ValueError
        count, originals, translated = struct.unpack_from(f"{order}III", content, 8)
        pairs = [
            tuple(_text_at(content, order, table + 8 * number) for table in (originals, translated)) for number in range(count)
        ]
    except (ValueError, struct.error):
        raise CorpusError(
            f"{path}: no catalogue of gettext, or a damaged one.\n  Make it again: msgfmt FILE.po -o FILE.mo"
        ) from None
    charset = next((_CHARSET.search(text.decode("latin-1")) for key, text in pairs if not key), None)
    encoding = "utf-8" if charset is None else charset[1]
    for number, (key, text) in enumerate(pairs, 1):
        try:
            message, forms = key.decode(encoding), text.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            raise CorpusError(f"{path}: entry {number} is not {encoding}, as the header says.") from None
        singular, _, plural = message.partition("\x04")[2].partition("\0") if "\x04" in message else message.partition("\0")
        yield TranslatedMessage(number, singular, plural or None, tuple(forms.split("\0")), False)


def _text_at(content: bytes, order: str, offset: int) -> bytes:
    size, start = struct.unpack_from(f"{order}II", content, offset)
    if start + size > len(content):
        raise ValueError
    return content[start : start + size]
