"""Cuts files into blocks of a few megabytes, at document borders if possible, so that memory stays constant.

A block is the bytes of the file, with line ends as "\\n". A document that is longer than a block continues in the next one; the
parsed block says whether its last document is still open (`parse.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from cloze.corpus.readers.columnar import is_columnar, text_cells
from cloze.corpus.readers.detect import SAMPLE, find_layout
from cloze.corpus.readers.files import PYTHON_DOCS, TextFile, find_files
from cloze.corpus.readers.formats import COLUMN, STRUCTURED, RequestedFormat, require_columns, wanted
from cloze.corpus.readers.gettext import CATALOGUES, read_catalogue
from cloze.corpus.readers.pipes import STDIN
from cloze.corpus.readers.report import DATASET, IN_MEMORY, TEXTS_FOLDER, CorpusReport, Oddities
from cloze.corpus.readers.tables import column_of
from cloze.errors import CorpusError
from cloze.text.encodings import as_utf8, find_encoding

BLOCK = 2 << 20
PAIRS = "pairs"
LONG_LINE = 1_000_000
_LONGEST_RECORD = 64 << 20
_BORDERS = {"blank": b"\n\n", "sentence": b"\n\n", "book": b"\n\n", "wiki": b"</doc>\n"}


@dataclass
class Block:
    """A piece of one file, of one format. `data` is text as bytes, or texts (documents) already taken from a table.

    In parallel text, it holds the sentences, alternating between the first and the second side.
    """

    path: str
    format: str
    data: bytes | list[str]
    line: int               # number of its first line, from 1
    last: bool              # the last of its file: an open document ends here
    broken: bool = False    # it ends within a line, which continues in the next block
    within: bool = False    # it begins within a line
    languages: tuple[int, ...] = ()  # the number of its language, or of the languages of both sides
    column: str = COLUMN    # the key of JSON lines that holds the text
    lines: list[int] | None = None   # where each text of a table begins; None: one line each, from `line` on

    @property
    def bytes(self) -> int:
        """How much text it holds."""
        return len(self.data) if isinstance(self.data, bytes) else sum(map(len, self.data))


def read_blocks(paths: Sequence[str | Path], format: str, report: CorpusReport, *, size: int = BLOCK) -> Iterator[Block]:
    """The blocks of a corpus in order. Formats and anomalies are added to `report`."""
    files = find_files(paths, report.odd)
    has_text = False
    for block in read_files(files, wanted(format), report, size=size, only=len(files) == 1):
        has_text = True
        yield block
    if not has_text:
        raise CorpusError(f"{files[0].path}: the corpus is empty: no text in {len(files):,} files.")


def read_files(
    files: Sequence[TextFile], requested: RequestedFormat, report: CorpusReport, *, size: int = BLOCK, only: bool = False
) -> Iterator[Block]:
    """The blocks of some files, or pieces of files, in order. An empty file is noted; if it is the `only` one, it is an error."""
    for file in files:
        yield from _file_blocks(file, requested, report, size, only=only)


def format_of(file: TextFile, requested: RequestedFormat) -> RequestedFormat:
    """How a file is read: as `requested`, but texts that Python has written for a run always as they were written."""
    return RequestedFormat("jsonl") if Path(file.path).match(str(TEXTS_FOLDER / IN_MEMORY)) else requested


def has_tables(paths: Sequence[str | Path], format: str) -> bool:
    """Whether some files have columns, by their contents or the `format` that is named; not those of standard input."""
    requested = RequestedFormat(wanted(format).format)
    for file in find_files(paths, Oddities()):
        if file.path in (STDIN, PYTHON_DOCS):
            continue
        if file.dataset is not None or is_columnar(file.path):
            return True
        with file.open() as stream:
            sample = _read_exactly(stream, SAMPLE)
        if sample.startswith(b"PAR1") or find_layout(sample, file.name, requested, file.ending).format in STRUCTURED:
            return True
    return False


def corpus_size(paths: Sequence[str | Path]) -> int | None:
    """Bytes of text, estimated for packed files; None if unknown."""
    sizes = [file.size for file in find_files(paths, CorpusReport().odd)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _file_blocks(file: TextFile, requested: RequestedFormat, report: CorpusReport, size: int, *, only: bool) -> Iterator[Block]:
    name = "standard input" if file.path == STDIN else file.name
    requested = format_of(file, requested)
    if file.path == PYTHON_DOCS:
        yield from _python_docs(report, size)
        return
    if (dataset := file.dataset) is not None:
        require_columns(requested, file.path)
        report.add_file(file.path, DATASET, f"a data set of the Hugging Face Hub; the text is in the column {requested.column!r}")
        yield from _cells(name, DATASET, dataset.texts(requested.column, file.start, file.stop), size)
        return
    if requested.format == "parquet" or (requested.format == "auto" and is_columnar(file.path)):
        report.add_file(name, "parquet", "by its ending" if requested.format == "auto" else "as asked for")
        yield from _cells(file.path, "parquet", text_cells(file.path, requested.column), size)
        return
    with file.open() as stream:
        sample = _read_exactly(stream, SAMPLE)
        if not sample.strip():
            if only:
                raise CorpusError(f"{name}: the file is empty; expected text.")
            report.odd.note("empty_file", name)
            return
        if sample.startswith(b"PAR1"):
            report.add_file(name, "parquet", "by its first bytes")
            yield from _cells(file.path, "parquet", text_cells(file.path, requested.column), size)
            return
        if requested.format == "auto" and file.ending in CATALOGUES:
            yield from _catalogue(file, sample + stream.read(), report)
            return
        encoding = find_encoding(sample, name, requested.encoding)
        if encoding.name != "utf-8":
            report.odd.note("recoded", f"{name}: {encoding.name}, {encoding.why}")
            stream = as_utf8(stream, sample, encoding.name, name)
            sample = _read_exactly(stream, SAMPLE)
        layout = find_layout(sample, name, requested, file.ending)
        report.add_file(name, *layout)
        if layout.format in ("csv", "tsv"):
            yield from _table(stream, sample, name, layout.format, requested.column, size)
            return
        for block in _cut(stream, sample, name, layout.format, report, size):
            block.column = requested.column
            yield block


def _cut(stream: IO[bytes], sample: bytes, name: str, format: str, report: CorpusReport, size: int) -> Iterator[Block]:
    line, carry, fresh, within = 1, b"", sample.removeprefix(b"\xef\xbb\xbf"), False
    while True:
        more = stream.read(max(1, size - len(fresh)))
        at_end = not more
        # A carriage return at the end may be half of a line end: keep it until the next read.
        fresh += more
        held = b"\r" if fresh.endswith(b"\r") and not at_end else b""
        data = carry + _line_ends(fresh[: len(fresh) - len(held)])
        if at_end:
            if data:
                _note_long_lines(data, name, line, report, within=within)
                yield Block(name, format, data, line, last=True, within=within)
            return
        cut, broken = _cut_at(data, format, size)
        if format == "jsonl" and broken:
            cut = 0
            if len(data) > _LONGEST_RECORD:
                raise CorpusError(
                    f"{name}:{line}: a record of more than {_LONGEST_RECORD >> 20} MB; expected JSON lines, a document each.\n"
                    "  Split it into several records, or write its text as plain text."
                )
        ahead = stream.read(1) if cut == len(data) and not held else held
        if cut:
            _note_long_lines(data[:cut], name, line, report, within=within, broken=broken)
            yield Block(name, format, data[:cut], line, last=not (data[cut:] or ahead), broken=broken, within=within)
            within = broken
            line += data.count(b"\n", 0, cut)
        carry, fresh = data[cut:], ahead
        if not carry and not fresh:
            return


def _cut_at(data: bytes, format: str, size: int) -> tuple[int, bool]:
    """Where to end a block, and whether that is within a line; 0 means: read more data first."""
    border = _BORDERS.get(format)
    if border is not None:
        position = data.rfind(border)
        if position >= len(data) // 2:
            return position + len(border), False
    position = data.rfind(b"\n")
    if position >= 0:
        return position + 1, False
    if len(data) < 2 * size:
        return 0, False
    position = data.rfind(b" ")
    if position > len(data) // 2:
        return position, True
    cut = len(data)
    while cut > 1 and data[cut - 1] & 0xC0 == 0x80:  # do not cut a character
        cut -= 1
    return cut - 1, True


def _line_ends(data: bytes) -> bytes:
    if b"\r" not in data:
        return data
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _note_long_lines(data: bytes, name: str, line: int, report: CorpusReport, *, within: bool, broken: bool = False) -> None:
    """Note each line of more than a megabyte once: a block that begins `within` a line was noted before."""
    start = 0 if not within else data.find(b"\n") + 1 or len(data)
    while start + LONG_LINE < len(data):
        end = data.rfind(b"\n", start, start + LONG_LINE + 1)
        if end < 0:
            stop = data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            number = line + data.count(b"\n", 0, start)
            more = " and more" if broken and stop == len(data) else ""
            report.odd.note("long_line", f"{name}:{number} ({(stop - start) / 1e6:.1f} MB{more})")
            end = stop
        start = end + 1


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _table(stream: IO[bytes], sample: bytes, name: str, format: str, column: str, size: int) -> Iterator[Block]:
    texts: list[str] = []
    lines: list[int] = []
    waiting = 0
    for line, text in column_of(stream, name, format, column, begin=sample):
        texts.append(text)
        lines.append(line)
        waiting += len(text)
        if waiting >= size:
            yield Block(name, format, texts, lines[0], last=False, lines=lines)
            texts, lines, waiting = [], [], 0
    yield Block(name, format, texts, lines[0] if lines else 1, last=True, lines=lines)


def _cells(path: str, format: str, cells: Iterable[list[str]], size: int) -> Iterator[Block]:
    """The texts of a column, which come some rows at a time."""
    texts: list[str] = []
    number, waiting = 1, 0
    for text in chain.from_iterable(cells):
        texts.append(text)
        waiting += len(text)
        if waiting >= size:
            yield Block(path, format, texts, number, last=False)
            number, waiting, texts = number + len(texts), 0, []
    yield Block(path, format, texts, number, last=True)


def _catalogue(file: TextFile, content: bytes, report: CorpusReport) -> Iterator[Block]:
    """The translations of a catalogue of gettext, a document each."""
    catalogue = read_catalogue(file.path.removesuffix(file.packing), content)
    left_out = f"; left out: {catalogue.left_out}" if catalogue.left_out else ""
    report.add_file(file.name, "gettext", f"by its ending, in {catalogue.language}{left_out}")
    lines, texts = zip(*catalogue.texts, strict=True) if catalogue.texts else ((), ())
    yield Block(file.name, "gettext", list(texts), lines[0] if lines else 1, last=True, lines=list(lines))


def _python_docs(report: CorpusReport, size: int) -> Iterator[Block]:
    from cloze.corpus.readers.python_docs import python_docs

    report.add_file(PYTHON_DOCS, "python-docs", "the documentation that every Python installation carries")
    texts: list[str] = []
    number, waiting = 1, 0
    for text, _ in python_docs():
        texts.append(text)
        waiting += len(text)
        if waiting >= size:
            yield Block(PYTHON_DOCS, "python-docs", texts, number, last=False)
            number, waiting, texts = number + len(texts), 0, []
    yield Block(PYTHON_DOCS, "python-docs", texts, number, last=True)
