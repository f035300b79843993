"""Finding out what a file is from its first bytes: binary or text, its encoding, how its documents are laid out."""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple, get_args

from cloze.errors import CorpusError, nearest
from cloze.text.sentences import split_sentences

Format = Literal["blank", "book", "line", "sentence", "wiki", "jsonl", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
SAMPLE = 1 << 16

_LAST_MARK = re.compile(r"[.!?…。！？；:：][\"'”’»）)」』\]]*\s*$")
_BOMS = {b"\xff\xfe\x00\x00": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Layout(NamedTuple):
    """The format of a file and how it was found out."""

    format: str
    why: str


def check_format(format: str) -> str:
    """The format itself if it is known or "auto"; else a `CorpusError`."""
    if format != "auto" and format not in FORMATS:
        raise CorpusError(f"format {format!r} is unknown. {nearest(format, ('auto', *FORMATS))}")
    return format


def check_text(sample: bytes, path: str) -> None:
    """Raise `CorpusError` if the first bytes of a file are not UTF-8 text: binary, or text in another encoding."""
    for mark, name in _BOMS.items():
        if sample.startswith(mark):
            raise _other_encoding(path, name)
    controls = len(sample) - len(sample.translate(None, b"\0\1\2\3\4\5\6\7\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17"))
    if controls > len(sample) * 0.01:
        raise CorpusError(
            f"{path}: a binary file, not text ({controls:,} control bytes in its first {len(sample):,}).\n"
            f"  Expected UTF-8 text, JSONL or Parquet, also as .gz, .xz, .zst or .bz2."
        )
    bad = sample.decode("utf-8", "ignore").encode()
    lost = len(sample) - len(bad)
    if lost > max(3, len(sample) * 0.01):  # up to three bytes may be a character cut by the end of the sample
        raise _other_encoding(path, _guess(sample))


def find_layout(sample: bytes, path: str, format: str) -> Layout:
    """The layout of a file by its first bytes, or the one asked for."""
    if format != "auto":
        return Layout(format, "as asked for")
    if sample.startswith(b"PAR1"):
        return Layout("parquet", "by its first bytes")
    text = sample.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(sample) >= SAMPLE:
        text = text[: text.rfind("\n") + 1] or text  # the last line is cut
    lines = text.split("\n")
    full = [line for line in lines if line.strip()]
    if not full:
        return Layout("blank", "nothing to go by")
    if full[0].lstrip().startswith("<doc ") and full[0].rstrip().endswith(">"):
        return Layout("wiki", "begins with <doc …>")
    if full[0].lstrip().startswith("{") and _is_record(full[0]):
        return Layout("jsonl", "its first line is a JSON object with a text field")
    return _prose_layout(lines, full)


def is_wrapped(lines: list[str]) -> bool:
    """Whether these lines look cut at a margin: mostly 40 to 120 characters and not ending where sentences end."""
    if max(map(len, lines[:4]), default=0) > 160:
        return False  # seen at once in most text that is not
    ends = [line for line, following in zip(lines, lines[1:], strict=False) if line.strip() and following.strip()]
    if len(ends) < 2 or max(map(len, ends)) > 160:
        return False
    long = [line for line in ends if len(line) >= 40]
    marked = sum(bool(_LAST_MARK.search(line)) for line in long)
    return 2 * len(long) >= len(ends) and 2 * marked < len(long)


def _prose_layout(lines: list[str], full: list[str]) -> Layout:
    inner_blank = any(not line.strip() for line in "\n".join(lines).strip().split("\n"))
    if len(full) >= 8 and is_wrapped(lines):
        return Layout("book", "lines are cut at a margin: the file is one document, blank lines end paragraphs")
    if not inner_blank:
        return Layout("line", "no blank lines: every line is a document")
    single = sum(len(split_sentences(line)) == 1 for line in full)
    marked = sum(bool(_LAST_MARK.search(line)) for line in full)
    blocks = len(re.findall(r"\n[^\S\n]*\n\s*", "\n".join(lines).strip())) + 1
    if single >= 0.9 * len(full) and marked >= 0.7 * len(full) and len(full) >= 1.5 * blocks:
        return Layout("sentence", "blank lines, and nearly every line is one sentence")
    return Layout("blank", "blank lines end documents")


def _is_record(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return '"text"' in line[:4096]  # a record longer than the sample
    return isinstance(record, dict) and isinstance(record.get("text"), str)


def _guess(sample: bytes) -> str:
    """A likely encoding for bytes that are not UTF-8; decoding must succeed and give Chinese for the Chinese ones."""
    for name in ("gb18030", "big5"):
        for cut in range(4):
            try:
                text = sample[: len(sample) - cut].decode(name)
            except UnicodeDecodeError:
                continue
            if sum("\u4e00" <= c <= "\u9fff" for c in text) > 0.2 * len(text):
                return name.upper()
            break
    return "ISO-8859-1"


def _other_encoding(path: str, name: str) -> CorpusError:
    return CorpusError(
        f"{path}: not UTF-8; it looks like another encoding, perhaps {name}.\n"
        f"  Convert it first: iconv -f {name} -t UTF-8 {path} > OUT"
    )
