"""Documents one by one: the plain way to read a corpus, for training tokenizers, checking, and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloze.corpus.readers.blocks import BLOCK, Block, read_blocks
from cloze.corpus.readers.parse import parse_block
from cloze.corpus.readers.report import CorpusReport, FileFaults

LONGEST = 8 << 20  # characters


@dataclass
class Document:
    """A document, or a part of a very long one: its sentences in order, and where the document begins."""

    sentences: list[str]
    file: str
    line: int
    goes_on: bool = False  # it continues the document before it

    @property
    def text(self) -> str:
        """The sentences, one per line."""
        return "\n".join(sentence.strip() for sentence in self.sentences)


def read_documents(
    paths: Sequence[str | Path], *, format: str = "auto", report: CorpusReport | None = None, block_bytes: int = BLOCK,
    longest: int = LONGEST,
) -> Iterator[Document]:
    """The documents of files, folders, globs, "-" (standard input) or "python-docs", in order and in constant memory.

    `format` is one of `readers.formats.FORMATS`, or "auto" to detect it file by file; `FORMAT:COLUMN` names the column or key of
    records and tables that holds the text ("text" otherwise). Empty documents are skipped and, like other anomalies, noted in
    `report`. A document of more than `longest` characters is returned in parts, cut between sentences; all but the first are
    marked `goes_on`. Raises `CorpusError` for a file that is not text.
    """
    account = CorpusReport() if report is None else report
    return documents_of(read_blocks(paths, format, account, size=block_bytes), account, longest=longest)


def documents_of(blocks: Iterable[Block], report: CorpusReport, *, longest: int = LONGEST) -> Iterator[Document]:
    """The documents of blocks. Documents that a block border cut are joined again, up to `longest` characters."""
    held: Document | None = None  # a document that may continue
    size = 0
    file = FileFaults("")
    for block in blocks:
        parsed = parse_block(block)
        report.bytes += block.bytes
        report.odd.add(parsed.odd)
        file = add_faults(file, parsed.faults)
        if block.last:
            file.check()
        for number, (sentences, line) in enumerate(zip(parsed.documents, parsed.lines, strict=True)):
            if number == 0 and held is not None and parsed.goes_on:
                held.sentences += sentences
            else:
                yield from _finished(held, report)
                held, size = Document(sentences, block.path, line), 0
            size += sum(map(len, sentences))
            if size > longest:
                yield from _finished(held, report)
                held, size = Document([], block.path, held.line, goes_on=True), 0
        if held is not None and not parsed.open_end:
            yield from _finished(held, report)
            held = None
    yield from _finished(held, report)


def add_faults(sum_: FileFaults, more: FileFaults) -> FileFaults:
    """The faults of one file so far; a new file starts from zero."""
    if sum_.path != more.path:
        return more
    return FileFaults(
        sum_.path, sum_.bytes + more.bytes, sum_.undecodable + more.undecodable, sum_.records + more.records,
        sum_.bad_records + more.bad_records, more.column,
    )


def _finished(document: Document | None, report: CorpusReport) -> Iterator[Document]:
    if document is None:
        return
    if document.sentences:
        report.documents += not document.goes_on
        report.sentences += len(document.sentences)
        yield document
    elif not document.goes_on:
        report.odd.note("empty_document", f"{document.file}:{document.line}")
