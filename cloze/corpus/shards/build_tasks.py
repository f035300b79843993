"""Divides text into the tasks of a sharded build, and builds the shards of one task.

A task is a list of pieces, each a file or a range of bytes of one, that hold about as many tokens as a shard. It depends on the
text, the tokenizer and the size alone. Its shards appear whole or not at all, and a record names them, so that any number of
processes on any machines may build tasks in any order, and a build that was stopped goes on with the tasks that have no record.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from cloze.atomic import whole_file
from cloze.corpus.readers.blocks import Block, format_of, read_blocks, read_files
from cloze.corpus.readers.detect import SAMPLE, find_layout
from cloze.corpus.readers.files import PYTHON_DOCS, TextFile, find_files
from cloze.corpus.readers.formats import wanted
from cloze.corpus.readers.gettext import CATALOGUES
from cloze.corpus.readers.pipes import STDIN
from cloze.corpus.readers.report import CorpusReport, Oddities
from cloze.corpus.stores.build import finish_store, store_writer, write_blocks
from cloze.corpus.stores.encode import BlockEncoder, EncodedBlock
from cloze.corpus.stores.store import SHARDS, TOKENIZER, Store
from cloze.errors import CorpusError, RunError
from cloze.text import Annotations, Tokenizer
from cloze.text.encodings import find_encoding

TASKS = "tasks"
_EMPTY_LINE = (b"\n\n", b"\r\n\r\n")
#: What ends a document in the formats whose files are divided.
_WHOLE = frozenset({".parquet", *CATALOGUES})  # files that are read as a whole
_DIVIDED = {"blank": _EMPTY_LINE, "sentence": _EMPTY_LINE, "wiki": (b"</doc>\n",), "line": (b"\n",), "jsonl": (b"\n",)}
_SEARCHED = 64 << 20  # bytes after a cut in which a document must end
_SAMPLE = 1 << 20  # bytes of text whose tokens are counted
_FULL = 0.9  # of a shard is aimed at, since tokens are estimated from bytes
_MEMORY_MB = 80


@dataclass(frozen=True)
class FilePiece:
    """A file, or bytes `start` … `stop` - 1 of one (to its end: None), and its format ("" : as the build was told). Of a data set
    of the hub, `start` and `stop` count its files."""

    path: str
    start: int = 0
    stop: int | None = None
    format: str = ""


def tasks_of(paths: Sequence[str], encode: BlockEncoder, *, format: str, tokens: int) -> list[list[FilePiece]]:
    """The tasks of a build with shards of at most `tokens` tokens, in the order of the text.

    Plain files are divided where documents end, data sets into their files. A compressed file, a table or a book is never
    divided: if it exceeds a shard, its task makes several shards. Raises `CorpusError` as reading the text would.
    """
    files = find_files(paths, Oddities())
    if any(file.path in (STDIN, PYTHON_DOCS) for file in files):
        raise CorpusError("--shard: standard input and python-docs cannot be divided. Give files.")
    aim = max(1, int(tokens * _FULL * bytes_per_token(paths, encode, format)))
    tasks: list[list[FilePiece]] = []
    room = 0
    for file in files:
        for piece, size in _pieces(file, format, aim):
            if size > room and room < aim:
                room = 0
            if room <= 0:
                tasks.append([])
                room = aim
            tasks[-1].append(piece)
            room -= size
    return tasks


def bytes_per_token(paths: Sequence[str], encode: BlockEncoder, format: str) -> float:
    """Bytes of text per token, measured at the beginning of the text."""
    seen, tokens = 0, 0
    for block in read_blocks(paths, format, CorpusReport(), size=_SAMPLE):
        seen, tokens = seen + block.bytes, tokens + len(encode(block).ids)
        if seen >= _SAMPLE:
            break
    return max(seen / max(tokens, 1), 0.1)


def _pieces(file: TextFile, format: str, aim: int) -> Iterator[tuple[FilePiece, int]]:
    """A file in pieces of about `aim` bytes, with their sizes; a data set in its files."""
    if (dataset := file.dataset) is not None:
        yield from ((FilePiece(file.path, number, number + 1), size) for number, size in enumerate(dataset.sizes))
        return
    size = file.size or 0
    layout = _layout(file, format) if size > 1.5 * aim and not file.packing and file.ending not in _WHOLE else ""
    borders = _DIVIDED.get(layout, ())
    start = 0
    if borders:
        with open(file.path, "rb") as stream:
            for number in range(1, max(1, round(size / aim))):
                cut = _border(stream, max(start, size * number // round(size / aim)), borders)
                if cut is None or cut >= size:
                    break
                if cut > start:
                    yield FilePiece(file.path, start, cut, layout), cut - start
                    start = cut
    yield FilePiece(file.path, start, None, layout if borders else ""), size - start


def _layout(file: TextFile, format: str) -> str:
    requested = format_of(file, wanted(format))
    with file.open() as stream:
        sample = stream.read(SAMPLE)
    if not sample.strip() or sample.startswith(b"PAR1") or find_encoding(sample, file.path, requested.encoding).name != "utf-8":
        return ""
    return find_layout(sample, file.path, requested, file.ending).format


def _border(stream: IO[bytes], offset: int, borders: Sequence[bytes]) -> int | None:
    """Where the first document after `offset` begins; None if none does nearby."""
    stream.seek(offset)
    data = b""
    while len(data) < _SEARCHED:
        more = stream.read(1 << 20)
        if not more:
            return None
        data += more
        ends = [data.find(border) + len(border) for border in borders if border in data]
        if ends:
            return offset + min(ends)
    return None


def build_task(
    store: Path, number: int, pieces: Sequence[FilePiece], encode: BlockEncoder, *, format: str, tokens: int,
    annotations: Annotations
) -> None:
    """Build the shards of a task and record them. The folder of the store holds the tokenizer already.

    Raises `CorpusError` for text that cannot be read, `RunError` for a full disk.
    """
    copy_tokenizer = partial(shutil.copytree, store / TOKENIZER)
    account = CorpusReport()
    blocks = _Blocks(((block, encode(block)) for block in _blocks(pieces, format, account)), tokens)
    names: list[str] = []
    matches: dict[str, frozenset[int]] = {}
    (store / SHARDS).mkdir(parents=True, exist_ok=True)
    while blocks.left():
        name = f"{number:05d}" + (f"-{len(names)}" if names else "")
        out = store / SHARDS / name
        with store_writer(out, encode.tokenizer, annotations) as writer:
            try:
                account.bytes = 0
                for layer, records in write_blocks(blocks, writer, account, lambda: None).items():
                    matches[layer] = matches.get(layer, frozenset()) | records
                account.bytes = blocks.bytes
                if writer.tokens:
                    finish_store(writer, copy_tokenizer, account)
                    names.append(name)
            except OSError as error:
                raise RunError(f"{out}: cannot write the shard: {error.strerror}. Finished shards are kept.") from error
        account.__init__()  # type: ignore[misc]
    record = {"shards": names, "met": {layer: sorted(records) for layer, records in matches.items()}}
    (store / TASKS).mkdir(exist_ok=True)
    with whole_file(store / TASKS / f"{number:05d}.json") as stage:
        stage.write_text(json.dumps(record) + "\n", encoding="utf-8")


def encoder(tokenizer: Tokenizer, annotations: Annotations) -> BlockEncoder:
    """What measures the text, and encodes the blocks of any number of tasks."""
    return BlockEncoder(tokenizer, memory_mb=_MEMORY_MB, annotations=annotations, compiled=True)


def record_of(store: Path, number: int) -> Mapping[str, Any] | None:
    """The record of a finished task whose shards are there; None for any other."""
    try:
        record: Mapping[str, Any] = json.loads((store / TASKS / f"{number:05d}.json").read_text(encoding="utf-8"))
        is_complete = all(Store.is_store(store / SHARDS / name) for name in record["shards"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if is_complete else None


def _blocks(pieces: Sequence[FilePiece], format: str, account: CorpusReport) -> Iterator[Block]:
    for piece in pieces:
        file = TextFile(piece.path, piece.start, piece.stop)
        requested = wanted(format)
        requested = requested._replace(format=piece.format) if piece.format else requested
        yield from read_files([file], requested, account)


class _Blocks:
    """The encoded blocks of a task in portions, a shard each; a portion ends with a document."""

    def __init__(self, blocks: Iterable[tuple[Block, EncodedBlock]], tokens: int) -> None:
        self._blocks, self.most = iter(blocks), tokens
        self._next = next(self._blocks, None)
        self.bytes = 0  # of the portion

    def left(self) -> bool:
        """Whether there is another portion."""
        return self._next is not None

    def __iter__(self) -> Iterator[tuple[Block, EncodedBlock]]:
        tokens, self.bytes = 0, 0
        while self._next is not None:
            block, encoded = self._next
            self.bytes += block.bytes
            tokens += len(encoded.ids)
            yield block, encoded
            self._next = next(self._blocks, None)
            if self._next is not None and not encoded.open_end and tokens + len(self._next[1].ids) > self.most:
                return


def as_plain(tasks: Sequence[Sequence[FilePiece]]) -> list[list[dict[str, Any]]]:
    """Tasks as plain values."""
    return [[vars(piece) for piece in task] for task in tasks]


def from_plain(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[FilePiece]]:
    """Tasks of plain values."""
    return [[replace(FilePiece(""), **piece) for piece in task] for task in tasks]
