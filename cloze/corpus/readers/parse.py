"""Blocks of text → documents → sentences, one function per format. Runs in the workers.

Every function returns the documents of a block as lists of sentences; the first document may continue the last one of the
previous block. White space between two sentences of a line stays at the start of the second, so that byte-level tokenizers see
the line as written. Where one line ends and the next begins, nothing stays unless line ends are asked for.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cloze.corpus.readers.blocks import PAIRS, Block
from cloze.corpus.readers.detect import is_wrapped
from cloze.corpus.readers.report import FileFaults, Oddities
from cloze.text.sentences import split_sentences
from cloze.untrusted import parse_json, without_surrogates

_BLANK = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")  # starts with a literal \n, so `re` can use its fast literal scan
_BLANK_AT_START = re.compile(r"(?:[^\S\n]*\n)*")
_ENDS_BLANK = re.compile(r"(?:^|\n)[^\S\n]*\n\s*\Z")
LONGEST_SENTENCE = 1 << 16  # characters; tokenizers need excessive memory and time for a word of megabytes

_HEADER = re.compile(r"<doc\s[^\n]*>[^\S\n]*(?:\n|$)")


@dataclass
class ParsedBlock:
    """The documents of a block."""

    documents: list[list[str]]
    lines: list[int]          # where each document begins in its file
    goes_on: bool             # the first document continues the open document of the previous block, if there is one
    open_end: bool            # the last document may continue in the next block of the file
    odd: Oddities = field(default_factory=Oddities)
    faults: FileFaults = field(default_factory=lambda: FileFaults(""))


def parse_block(block: Block, *, spaces: bool = True, cut: bool = True, line_ends: bool = False) -> ParsedBlock:
    """The documents of a block. With `spaces` a sentence keeps the white space before it within its line.

    Without `cut`, lines are split into sentences only at places without white space. This saves most of the time for callers that
    only need words. With `line_ends`, the first sentence of each line of a document but its first begins with a line end; lines
    that were cut at a margin are one line, and blank lines are left out. In the format of one sentence per line, whose line ends
    are not the text's own, sentences begin with a space instead.
    """
    cutting: Split = _barely_cut if not cut else _split_keeping_spaces if spaces else split_sentences
    if not line_ends:
        return _within(block, _parsed(block, cutting), spaces=spaces)
    sentences = block.format == "sentence"
    parsed = _parsed(block, cutting if sentences else lambda line: _behind("\n", cutting(line), 1))
    for number, document in enumerate(parsed.documents):
        if sentences:
            document[:] = _behind(" ", document, len(document))
        begins_a_line = number == 0 and parsed.goes_on and block.line > 1 and not block.within
        if document and not begins_a_line:  # begins a document, or goes on within a line
            document[0] = document[0][1:]
    return _within(block, parsed, spaces=spaces)


def _within(block: Block, parsed: ParsedBlock, *, spaces: bool) -> ParsedBlock:
    """With the space at which a line was cut in two, if this block begins with one."""
    if block.within and spaces and block.data[:1] == b" " and parsed.documents and parsed.documents[0]:
        parsed.documents[0][0] = " " + parsed.documents[0][0]
    return parsed


def _behind(mark: str, sentences: list[str], first: int) -> list[str]:
    """The sentences, the `first` of them behind a mark."""
    return [mark + sentence for sentence in sentences[:first]] + sentences[first:]


def _parsed(block: Block, cutting: Split) -> ParsedBlock:
    odd, faults = Oddities(), FileFaults(block.path, block.bytes, column=block.column)
    split = _in_pieces(cutting, odd, f"{block.path}, from line {block.line}")
    if block.format == PAIRS:
        assert isinstance(block.data, list)
        documents = [block.data[i : i + 2] for i in range(0, len(block.data), 2)]
        return ParsedBlock(documents, list(range(block.line, block.line + len(documents))), False, False, odd, faults)
    if isinstance(block.data, list):
        documents = [prose(text, split) for text in block.data]
        lines = block.lines if block.lines is not None else list(range(block.line, block.line + len(documents)))
        return ParsedBlock(documents, lines, False, False, odd, faults)
    text = _decode(block, odd, faults)
    if block.format == "jsonl":
        documents, lines = _jsonl(text, block, split, odd, faults)
        return ParsedBlock(documents, lines, False, False, odd, faults)
    documents, lines, open_end = _PARSERS[block.format](text, block.line, split)
    goes_on = not _FRESH[block.format].match(text)
    return ParsedBlock(documents, lines, goes_on, (open_end or block.broken) and not block.last, odd, faults)


def prose(text: str, split: Callable[[str], list[str]] = split_sentences) -> list[str]:
    """The sentences of running text: blank lines end paragraphs, lines cut at a margin are joined first."""
    if "\n" not in text:
        return _paragraph(text, split)
    return [sentence for paragraph in _BLANK.split(text) for sentence in _paragraph(paragraph, split)]


def _paragraph(text: str, split: Callable[[str], list[str]]) -> list[str]:
    lines = text.split("\n")
    if len(lines) > 2 and is_wrapped(lines):
        return split(" ".join(line.strip() for line in lines))
    return [sentence for line in lines if line and not line.isspace() for sentence in split(line)]


Split = Callable[[str], list[str]]
_Found = tuple[list[list[str]], list[int], bool]


def _blank(text: str, line: int, split: Split) -> _Found:
    documents, lines = [], []
    for start, piece in _pieces(text):
        documents.append(_paragraph(piece, split))
        lines.append(line + start)
    return documents, lines, not _ENDS_BLANK.search(text[-4096:])


def _sentence(text: str, line: int, split: Split) -> _Found:
    documents, lines = [], []
    for start, piece in _pieces(text):
        rows = [s for s in map(str.strip, piece.split("\n")) if s]
        documents.append([s for row in rows for s in (split(row) if len(row) > LONGEST_SENTENCE else [row])])
        lines.append(line + start)
    return documents, lines, not _ENDS_BLANK.search(text[-4096:])


def _book(text: str, line: int, split: Split) -> _Found:
    return [prose(text, split)], [line], True


def _line(text: str, line: int, split: Split) -> _Found:
    rows = text.removesuffix("\n").split("\n")
    return [split(row) for row in rows], list(range(line, line + len(rows))), False


def _wiki(text: str, line: int, split: Split) -> _Found:
    documents, lines = [], []
    position, open_end, counted = 0, True, 0
    while position < len(text):
        header = _HEADER.search(text, position)
        begin = header.start() if header else len(text)
        before = text[position:begin]
        if before and not before.isspace():  # the rest of the previous block's document, or text outside all documents
            documents.append(_article(before, split))
            lines.append(line)
            open_end = "</doc>" not in before
        if header is None:
            break
        end = text.find("</doc>", header.end())
        open_end = end < 0
        end = len(text) if open_end else end
        documents.append(_article(text[header.end() : end], split))
        line += text.count("\n", counted, begin)
        counted = begin
        lines.append(line)
        position = end + len("</doc>")
    return documents, lines, open_end


def _article(text: str, split: Split) -> list[str]:
    """Title, headings and paragraphs, each on a line of its own; entities are resolved."""
    text = text.removesuffix("</doc>\n").replace("</doc>", "")
    if "&" in text:
        text = html.unescape(text)
    return [s for row in text.split("\n") if row and not row.isspace() for s in split(row)]


# A block with such a beginning starts a new document, whatever came before.
_FRESH = {
    "blank": re.compile(r"[^\S\n]*\n"), "sentence": re.compile(r"[^\S\n]*\n"), "book": re.compile(r"(?!)"),
    "line": re.compile(r"(?!)"), "wiki": re.compile(r"\s*<doc\s"),
}
_PARSERS: dict[str, Callable[[str, int, Split], _Found]] = {
    "blank": _blank, "sentence": _sentence, "book": _book, "line": _line, "wiki": _wiki,
}


def _jsonl(
    text: str, block: Block, split: Split, odd: Oddities, faults: FileFaults
) -> tuple[list[list[str]], list[int]]:
    documents, lines = [], []
    for number, row in enumerate(text.split("\n"), block.line):
        if not row or row.isspace():
            continue
        faults.records += 1
        try:
            content = parse_json(row)[block.column]
        except (ValueError, KeyError, TypeError):
            content = None
        if not isinstance(content, str):
            faults.bad_records += 1
            odd.note("bad_record", f"{block.path}:{number}")
            continue
        documents.append(prose(without_surrogates(content).replace("\r\n", "\n"), split))
        lines.append(number)
    return documents, lines


def _decode(block: Block, odd: Oddities, faults: FileFaults) -> str:
    data = block.data
    assert isinstance(data, bytes)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _decode_with_faults(data, block, odd, faults)
    if "\0" in text:
        odd.note("nul", f"{block.path}:{block.line + text.count(chr(10), 0, text.find(chr(0)))}", text.count("\0"))
        text = text.replace("\0", "")
    return text


def _decode_with_faults(data: bytes, block: Block, odd: Oddities, faults: FileFaults) -> str:
    """Replace what is not UTF-8 by U+FFFD, counting bytes and noting lines."""
    pieces: list[str] = []
    position = counted = 0
    line = block.line
    while position < len(data):
        try:
            pieces.append(data[position:].decode("utf-8"))
            break
        except UnicodeDecodeError as error:
            bad, after = position + error.start, position + error.end
            pieces.append(data[position:bad].decode("utf-8") + "\ufffd")
            line += data.count(b"\n", counted, bad)
            counted, position = bad, after
            odd.note("undecodable", f"{block.path}:{line}", after - bad)
            faults.undecodable += after - bad
            if faults.undecodable > len(data) * 0.01 + 1000:  # another encoding: the verdict is already certain
                pieces.append(data[position:].decode("utf-8", "replace"))
                break
    return "".join(pieces)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The pieces between blank lines, each with the number of lines before it."""
    start = _BLANK_AT_START.match(text)
    position = start.end() if start else 0
    line = text.count("\n", 0, position)
    for gap in _BLANK.finditer(text, position):
        yield line, text[position : gap.start()]
        line += text.count("\n", position, gap.end())
        position = gap.end()
    if not text[position:].isspace() and position < len(text):
        yield line, text[position:]


def _in_pieces(split: Split, odd: Oddities, location: str) -> Split:
    """`split`, but a sentence that is still too long is cut at a space or, if it has none, at the limit."""

    def splitting(line: str) -> list[str]:
        if len(line) <= LONGEST_SENTENCE:
            return split(line)
        pieces: list[str] = []
        for sentence in split(line):
            begin = 0
            while len(sentence) - begin > LONGEST_SENTENCE:
                end = begin + LONGEST_SENTENCE
                space = sentence.rfind(" ", begin + LONGEST_SENTENCE // 2, end)
                pieces.append(sentence[begin : space if space > 0 else end])
                begin += len(pieces[-1])
            if begin:
                odd.note("long_sentence", location)
            pieces.append(sentence[begin:])
        return pieces

    return splitting


def _barely_cut(line: str) -> list[str]:
    # Control characters are white space for some and nothing for others.
    return [line] if line.isascii() and line.isprintable() else split_sentences(line)


def _split_keeping_spaces(line: str) -> list[str]:
    """`split_sentences` with the white space between two sentences at the head of the second."""
    pieces = split_sentences(line)
    if len(pieces) < 2:
        return pieces
    core = line.strip()
    gaps = len(core) - sum(map(len, pieces))
    if gaps == 0:
        return pieces
    if gaps == len(pieces) - 1 and " ".join(pieces) == core:
        return [pieces[0], *[" " + piece for piece in pieces[1:]]]
    sentences, position = [], 0
    for piece in pieces:
        begin = core.index(piece, position)
        sentences.append(core[position:begin] + piece)
        position = begin + len(piece)
    return sentences
