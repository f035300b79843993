"""Detects from the first bytes of a file how its documents are laid out."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cloze.corpus.readers.fasttext import PREFIX
from cloze.corpus.readers.formats import COLUMN, RequestedFormat, no_column
from cloze.corpus.readers.tables import even
from cloze.errors import CorpusError
from cloze.text.sentences import split_sentences
from cloze.untrusted import parse_json

SAMPLE = 1 << 16

_LAST_MARK = re.compile(r"[.!?…。！？；:：][\"'”’»）)」』\]]*\s*$")
_TABLES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
_OF_WORDS = (".conll", ".conllu", ".iob", ".bio")
_OBJECT = re.compile(r'\s*\{\s*"[^"\n]*"\s*:')
_ARRAY = re.compile(r'\s*\[\s*(\{\s*"|"[^"\n]*"\s*[,\]])')
_SPREAD = re.compile(r'\s*\{[^\S\n]*\n\s*"[^"\n]*"\s*:')  # an object over several lines
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|html)[\s>]", re.IGNORECASE)
_HEADER = re.compile(r'"?[A-Za-z_][\w.-]*"?(,"?[A-Za-z_][\w.-]*"?)+')


class DetectedFormat(NamedTuple):
    """The format of a file and how it was detected."""

    format: str
    why: str


def find_layout(sample: bytes, path: str, requested: RequestedFormat, ending: str = "") -> DetectedFormat:
    """The layout that the user named, or else the one detected from the first bytes and the ending of the name.

    An unknown structure, or a missing column, is a `CorpusError`: syntax must not become text.
    """
    if requested.format != "auto":
        return DetectedFormat(requested.format, "as asked for")
    text = sample.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    is_whole = len(sample) < SAMPLE
    if not is_whole:
        text = text[: text.rfind("\n") + 1] or text  # the last line is cut
    lines = text.split("\n")
    full = [line for line in lines if line.strip()]
    if not full:
        return DetectedFormat("blank", "no text to judge by")
    if full[0].lstrip().startswith("<doc ") and full[0].rstrip().endswith(">"):
        return DetectedFormat("wiki", "begins with <doc …>")
    layout = _structured(text, full, path, requested, ending, is_whole=is_whole)
    if layout is None and requested.column != COLUMN:
        raise CorpusError(
            f"{path}: running text, which has no column {requested.column!r}. Omit --text for this file.\n"
            "  To read it together with tables, call their column 'text'."
        )
    return layout or _prose_layout(lines, full)


def _structured(
    text: str, full: list[str], path: str, requested: RequestedFormat, ending: str, *, is_whole: bool
) -> DetectedFormat | None:
    """The layout of records or of a table; None for running text."""
    record = _record(full[0])
    if record is not None:
        if not isinstance(record.get(requested.column), str):
            raise no_column(f"{path}:1", requested.column, [name for name, value in record.items() if isinstance(value, str)])
        return DetectedFormat("jsonl", f"its first line is a JSON object; the text is its {requested.column!r}")
    if len(full) == 1 and not is_whole and _OBJECT.match(full[0]):  # one record, longer than the sample
        return DetectedFormat("jsonl", f"begins as a JSON object; the text is its {requested.column!r}")
    if ending in _OF_WORDS or full[0].lstrip().startswith(PREFIX):
        what = "words with their labels" if ending in _OF_WORDS else f"texts with labels ({PREFIX})"
        raise CorpusError(
            f"{path}:1: {what}, which would be learned as text.\n"
            "  Write the texts alone to a file, or read the file unchanged with --format blank."
        )
    if ending in _TABLES:
        return DetectedFormat(_TABLES[ending], f"by its ending; the text is in the column {requested.column!r}")
    if ending in (".jsonl", ".ndjson", ".json") or _ARRAY.match(text) or _SPREAD.match(text):
        raise CorpusError(
            f"{path}:1: expected JSON lines, an object on every line, found {full[0][:60]!r}.\n"
            "  An array becomes JSON lines with: jq -c '.[]' IN > OUT. To read it as plain text: --format line."
        )
    if _MARKUP.match(text):
        raise CorpusError(
            f"{path}:1: HTML or XML, whose tags would be learned as text.\n"
            "  Extract the text first, or read the file unchanged with --format blank."
        )
    rows = full[:200]
    for separator, format in (("\t", "tsv"), (",", "csv")):
        if (format == "csv" and not _HEADER.fullmatch(rows[0])) or not even(rows, separator):
            continue
        header = [name.strip() for name in rows[0].split(separator)]
        if requested.column in header or requested.column.isdecimal():
            return DetectedFormat(format, f"its lines are the rows of a table; the text is in the column {requested.column!r}")
        raise CorpusError(
            f"{no_column(f'{path}:1', requested.column, header)}, or its number if there is no header.\n"
            "  To read the lines as plain text: --format line."
        )
    return None


def is_wrapped(lines: list[str]) -> bool:
    """Whether these lines look cut at a margin: mostly 40 to 120 characters and not ending where sentences end."""
    if max(map(len, lines[:4]), default=0) > 160:
        return False  # quick test: most text is not wrapped
    ends = [line for line, following in zip(lines, lines[1:], strict=False) if line.strip() and following.strip()]
    if len(ends) < 2 or max(map(len, ends)) > 160:
        return False
    long = [line for line in ends if len(line) >= 40]
    marked = sum(bool(_LAST_MARK.search(line)) for line in long)
    return 2 * len(long) >= len(ends) and 2 * marked < len(long)


def _prose_layout(lines: list[str], full: list[str]) -> DetectedFormat:
    inner_blank = any(not line.strip() for line in "\n".join(lines).strip().split("\n"))
    if len(full) >= 8 and is_wrapped(lines):
        return DetectedFormat("book", "lines are wrapped: the file is one document, and blank lines end paragraphs")
    if not inner_blank:
        return DetectedFormat("line", "no blank lines: every line is a document")
    single = sum(len(split_sentences(line)) == 1 for line in full)
    marked = sum(bool(_LAST_MARK.search(line)) for line in full)
    blocks = len(re.findall(r"\n[^\S\n]*\n\s*", "\n".join(lines).strip())) + 1
    if single >= 0.9 * len(full) and marked >= 0.7 * len(full) and len(full) >= 1.5 * blocks:
        return DetectedFormat("sentence", "nearly every line is one sentence, and blank lines end documents")
    return DetectedFormat("blank", "blank lines end documents")


def _record(line: str) -> dict[str, Any] | None:
    """A line as a JSON object; None for any other line."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
