"""Parallel text: sentences with their translations, from tables of two columns or from files aligned line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

from cloze.corpus.readers.blocks import BLOCK, PAIRS, Block
from cloze.corpus.readers.files import PYTHON_DOCS, TextFile
from cloze.corpus.readers.gettext import CATALOGUES, SOURCE, read_catalogue, without_compiled
from cloze.corpus.readers.hub_datasets import is_dataset
from cloze.corpus.readers.pipes import STDIN
from cloze.corpus.readers.report import CorpusReport
from cloze.errors import CorpusError, nearest_path
from cloze.text.encodings import not_utf8

_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,15}")
_TABLES = frozenset({"", ".tsv", ".txt"})
_CONVERT = "Convert it first: iconv -f NAME -t UTF-8 IN > OUT"
_NOT_TEXT = ("readme", "license", "licence")
_Line = tuple[int, str, str]  # its number, both sides


@dataclass(frozen=True)
class Parallel:
    """One table, or two aligned files, and the languages of both sides."""

    files: tuple[TextFile, ...]
    languages: tuple[str, str]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return " and ".join(file.path for file in self.files)

    def lines(self) -> Iterator[_Line]:
        """Its pairs. A sentence without a partner is a `CorpusError` with its line."""
        return _table(self.files[0]) if len(self.files) == 1 else _aligned(*self.files)


@dataclass(frozen=True)
class Messages(Parallel):
    """A catalogue of gettext: messages and their translations, numbered; `left_out` counts the entries that are not read."""

    pairs: tuple[_Line, ...] = ()
    left_out: str = ""

    def lines(self) -> Iterator[_Line]:
        """Its pairs."""
        return iter(self.pairs)


def _messages(file: TextFile) -> Messages:
    with file.open() as stream:
        catalogue = read_catalogue(file.path.removesuffix(file.packing), stream.read())
    pairs = tuple((number, message, text) for number, (_, message, text) in enumerate(catalogue.pairs, 1))
    return Messages((file,), (SOURCE, catalogue.language), pairs, catalogue.left_out)


def find_pairs(paths: Sequence[str | Path]) -> list[Parallel]:
    """What parallel text there is at these paths (files or folders).

    A file ending in .tsv or .txt, or without an ending, is a table: two columns, the first line names their languages, which
    may be the same: `en<TAB>en` for a lexicon of related words.
    A file ending in .po or .mo is a catalogue of gettext, whose messages are English (`gettext.py`); those in folders of a folder
    are read, too. Files that differ in their ending only, `news.en` and `news.fr`, are aligned line by line; the endings are the
    languages.
    """
    groups: dict[str, list[TextFile]] = {}
    for path in _files(paths):
        file = TextFile(path)
        if file.ending in CATALOGUES:
            groups[path] = [file]
            continue
        plain = path.removesuffix(file.packing)
        key = path if file.ending in _TABLES else plain[: len(plain) - len(file.ending)]
        groups.setdefault(key, []).append(file)
    corpora: list[Parallel] = []
    for key, files in groups.items():
        if files[0].ending in CATALOGUES:
            corpora += [messages] if (messages := _messages(files[0])).pairs else []
        elif len(files) == 1 and files[0].ending in _TABLES:
            corpora.append(Parallel((files[0],), _header(files[0])))
        elif len(files) == 2:
            first, second = (file.ending[1:] for file in files)
            corpora.append(Parallel((files[0], files[1]), (first, second)))
        else:
            raise CorpusError(
                f"{key}: {len(files)} file{'s' if len(files) > 1 else ''} of parallel text "
                f"({', '.join(file.ending for file in files)}); expected two with different endings, such as "
                f"{Path(key).name}.en and {Path(key).name}.fr, or a table ending in .tsv."
            )
    return corpora


def read_pairs(paths: Sequence[str | Path], report: CorpusReport) -> tuple[tuple[str, ...], Iterator[Block]]:
    """The names of the languages, in the order of their first mention, and the blocks of parallel text."""
    corpora = find_pairs(paths)
    names = tuple(dict.fromkeys(language for corpus in corpora for language in corpus.languages))
    if len(names) > 255:
        raise CorpusError(f"{len(names)} languages; a store holds up to 255.")
    return names, _blocks(corpora, names, report)


def _blocks(corpora: list[Parallel], names: tuple[str, ...], report: CorpusReport) -> Iterator[Block]:
    for corpus in corpora:
        left_out = f"; left out: {corpus.left_out}" if isinstance(corpus, Messages) and corpus.left_out else ""
        report.add_file(corpus.name, PAIRS, f"{corpus.languages[0]} and {corpus.languages[1]}{left_out}")
        numbers = names.index(corpus.languages[0]), names.index(corpus.languages[1])
        data: list[str] = []
        size, first, after = 0, 0, 0
        for line, left, right in corpus.lines():
            if data and (size >= BLOCK or line != after):
                yield Block(corpus.name, PAIRS, data, first, last=False, languages=numbers)
                data, size = [], 0
            if not data:
                first = line
            data += [left, right]
            size, after = size + len(left) + len(right), line + 1
        if not first:
            raise CorpusError(f"{corpus.name}: no pair of sentences.")
        yield Block(corpus.name, PAIRS, data, first, last=True, languages=numbers)


def _files(paths: Sequence[str | Path]) -> list[str]:
    if not paths:
        raise CorpusError("no corpus given; expected files or folders of parallel text.")
    files: list[str] = []
    for name in map(str, paths):
        path = Path(name)
        if name in (STDIN, PYTHON_DOCS) or is_dataset(name):
            raise CorpusError(f"{name}: parallel text is read from files; expected a table or two aligned files.")
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
            inside += sorted(p for p in path.glob("*/**/*") if p.suffix in CATALOGUES and p.is_file())
            files += [str(p) for p in without_compiled(inside) if not p.name.lower().startswith(_NOT_TEXT)]
        elif path.exists():
            files.append(name)
        else:
            raise CorpusError(f"{name}: no such file or folder. {nearest_path(path)}".rstrip())
    if not files:
        raise CorpusError(f"{', '.join(map(str, paths))}: holds no parallel text.")
    return list(dict.fromkeys(files))


def _header(file: TextFile) -> tuple[str, str]:
    with file.open() as stream:
        _, text = next(_decoded(stream, file.path), (1, ""))
    columns = text.split("\t")
    if len(columns) != 2 or not all(map(_LANGUAGE.fullmatch, columns)):
        raise CorpusError(
            f"{file.path}:1: expected a header that names the languages of two columns, such as en<TAB>zh, or en<TAB>en for a "
            f"lexicon, found {text[:60]!r}.\n  Add this line; to remove other columns: cut -f1,2"
        )
    return columns[0], columns[1]


def _table(file: TextFile) -> Iterator[_Line]:
    with file.open() as stream:
        for number, text in _decoded(stream, file.path):
            if number == 1 or not text.strip():
                continue
            columns = text.split("\t")
            if len(columns) != 2:
                raise CorpusError(
                    f"{file.path}:{number}: {len(columns)} columns, expected 2 (a sentence, a tab, its translation)."
                )
            yield number, *_both(columns[0], columns[1], f"{file.path}:{number}")


def _aligned(first: TextFile, second: TextFile) -> Iterator[_Line]:
    with ExitStack() as stack:
        streams = [_decoded(stack.enter_context(file.open()), file.path) for file in (first, second)]
        for left, right in zip_longest(*streams):
            if left is None or right is None:
                number = (left or right or (0, ""))[0]
                shorter, longer = (first, second) if left is None else (second, first)
                raise CorpusError(
                    f"{longer.path}:{number}: this line has no translation: {shorter.path} ends at line {number - 1}.\n"
                    "  The two files must have the same number of lines, each the translation of the other."
                )
            if left[1].strip() or right[1].strip():
                yield left[0], *_both(left[1], right[1], f"{first.path}:{left[0]}")


def _both(left: str, right: str, location: str) -> tuple[str, str]:
    if not left.strip() or not right.strip():
        side = "first" if not left.strip() else "second"
        raise CorpusError(f"{location}: the {side} side of this pair is empty.\n  Remove the pair on both sides.")
    return left.strip(), right.strip()


def _decoded(stream: IO[bytes], path: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(not_utf8(path, number, line, error.start, _CONVERT)) from None
        yield number, text.rstrip("\r\n").replace("\0", "")
