"""Documents with their coreference chains: CoNLL-2012, CorefUD (CoNLL-U with `Entity=`), and JSON lines.

A mention is its first and its last word, counted from 0 over the document; a chain is the mentions of one entity.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from cloze.corpus.readers.labelled import Format
from cloze.corpus.readers.objects import OBJECTS, holds_objects, objects
from cloze.corpus.readers.tagged import CONLL_U, read_tagged
from cloze.corpus.readers.text_files import Line, cells_of, lines, stripped
from cloze.corpus.readers.unusable import Fault, FaultCounter, unusable
from cloze.errors import TaskError, counted, propose

Mention = tuple[int, int]
Chain = tuple[Mention, ...]
#: What cannot be a span of words, or be in one chain only; such mentions are counted and left out.
DISCONTINUOUS, EMPTY, REPEATED = "discontinuous mentions", "mentions of empty nodes alone", "repeated mentions"
BEGIN, END = "#begin document", "#end document"
_WORD, _LEAST = 3, 5  # the column of the word in CoNLL-2012; its fewest columns
_BRACKET = re.compile(r"(?P<open>\()?(?P<name>[^()|\s]+)(?P<close>\))?")  # of CoNLL-2012
_ENTITY = re.compile(r"\((?P<attributes>[^()]+)(?P<close>\))?|(?P<closed>[^()]+)\)")  # of CorefUD
_PART = re.compile(r"\[[0-9]+/[0-9]+\]$")  # of a discontinuous mention: e7[1/2]
_ID = re.compile(r"[0-9]{1,9}(?P<kind>[-.][0-9]{1,9})?")
_ALSO = ("words", "sentences")  # what the words are also called in JSON lines
_NAMES = ("doc_key", "document_id", "doc_id", "id")
_FORMATS = (
    'CoNLL-2012, which begins with "#begin document", CorefUD (CoNLL-U, .conllu), or JSON lines such as '
    '{"tokens": ["Anna", "saw", "herself"], "clusters": [[[0, 0], [2, 2]]]}'
)


class CoreferenceDocument(NamedTuple):
    """A document: its first line, its name ("" for none), its words, how many of them each sentence has, its chains (None if they
    were not read), how many mentions of each kind are left out, and the text itself if it was given as a string."""

    line: int
    name: str
    words: tuple[str, ...]
    sentences: tuple[int, ...]
    chains: tuple[Chain, ...] | None
    left_out: Mapping[str, int]
    running: str | None = None


@dataclass(frozen=True)
class CoreferenceDocuments:
    """The documents of a file: each field but `path` has a value for each (see `CoreferenceDocument`). `chains` is None if none
    were read."""

    words: list[tuple[str, ...]]
    chains: list[tuple[Chain, ...]] | None
    path: str
    lines: tuple[int, ...]
    names: tuple[str, ...]
    sentences: tuple[tuple[int, ...], ...]
    left_out: tuple[Mapping[str, int], ...]
    running: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.words)


def read_documents(path: Path | str, *, text: str, label: str, format: Format | None, labelled: bool) -> CoreferenceDocuments:
    """The documents of a file; without `labelled`, chains are optional, and files of words or of lines of text are read, too."""
    if not labelled and not _has_documents(path, format):
        tagged = read_tagged(path, text=text, label=label, columns=None, format=format, labelled=False)
        sizes = tuple((len(words),) for words in tagged.words)
        nothing: tuple[Mapping[str, int], ...] = ({},) * len(tagged)
        names = ("",) * len(tagged)
        return CoreferenceDocuments(tagged.words, None, tagged.path, tagged.lines, names, sizes, nothing, tagged.running)
    documents = list(each_document(path, text=text, label=label, format=format, labelled=labelled))
    chains = [document.chains for document in documents if document.chains is not None]
    return CoreferenceDocuments(
        [document.words for document in documents], chains if len(chains) == len(documents) else None, str(path),
        *(tuple(column) for column in zip(
            *((d.line, d.name, d.sentences, d.left_out, d.running) for d in documents), strict=True
        )),
    )  # fmt: skip


def each_document(
    path: Path | str, *, text: str = "tokens", label: str = "clusters", format: Format | None = None, labelled: bool = True,
    fault: Fault | None = None,
) -> Iterator[CoreferenceDocument]:
    """The documents of a file one by one.

    In JSON lines, `text` is a list of words, or of sentences that are lists of words, and `label` a list of chains, each a list
    of `[first word, last word]`. In CoNLL-2012, every part is a document. In CorefUD, mentions of several pieces and mentions
    without a word are left out and counted, and a mention that begins or ends with an empty node begins or ends with its first or
    last word. A mention that stands twice counts in its first chain. A document that cannot be used is a `TaskError` with file
    and line; with `fault`, it is reported there and skipped.
    """
    faults, count, mentions = FaultCounter(fault), 0, 0
    if format in OBJECTS or format is None and holds_objects(path):
        documents = _objects(path, text, label, format, labelled, faults.report)
    elif format is not None:
        raise TaskError(f"{path}: chains are not read from {format}; expected {_FORMATS}.")
    elif _begins_with(path, BEGIN):
        documents = _conll_2012(path, faults.report)
    elif _is_conllu(path):
        documents = _corefud(path, faults.report)
    else:
        raise TaskError(f"{path}: no documents with chains; expected {_FORMATS}.")
    for document in documents:
        count += 1
        mentions += sum(map(len, document.chains or ()))
        yield document
    if faults.count or fault is not None:
        return
    if not count:
        raise TaskError(f"{path}: no documents; expected {_FORMATS}.")
    if labelled and not mentions:
        raise TaskError(f"{path}: {counted(count, 'document')} without a mention; expected chains: {_FORMATS}.")


def describe_left_out(counts: Iterable[Mapping[str, int]]) -> list[str]:
    """A sentence on the mentions that were left out; none if all were read."""
    total = sum((Counter(part) for part in counts), Counter[str]())
    which = {REPEATED: f"{REPEATED} (each counts in its first chain)"}
    listed = ", ".join(f"{number:,} {which.get(kind, kind)}" for kind, number in sorted(total.items()))
    return [f"left out of the chains, which hold spans of words, each once: {listed}"] if total else []


def _has_documents(path: Path | str, format: Format | None) -> bool:
    if format is not None or holds_objects(path):
        return format in OBJECTS or holds_objects(path)
    return _begins_with(path, BEGIN) or _is_conllu(path)


def _begins_with(path: Path | str, begin: str) -> bool:
    return str(path) != "-" and next((line.text for line in lines(path) if line.text.strip()), "").startswith(begin)


def _is_conllu(path: Path | str) -> bool:
    return Path(path).name.removesuffix(".gz").removesuffix(".xz").endswith(".conllu")


class _Wrong(Exception):
    """What is wrong with a document."""


@dataclass
class _Reading:
    """A document while its lines are read. `starts` are the mentions that are open, by their name, each with its first word (None
    for a piece that is left out) and its line."""

    line: int
    name: str = ""
    words: list[str] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    starts: dict[str, list[tuple[int | None, int]]] = field(default_factory=lambda: defaultdict(list))
    chains: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))
    left_out: Counter[str] = field(default_factory=Counter)
    fault: tuple[int, str] | None = None

    def refuse(self, line: int, why: str) -> None:
        """Note why the document cannot be used; the first reason counts."""
        self.fault = self.fault or (line, why)

    def close(self, name: str, line: int, last: int) -> None:
        """End the mention of this name that began last; `last` is its last word."""
        if not self.starts[name]:
            self.refuse(line, f"a mention of {name!r} ends without a beginning; expected '({name}' before.")
            return
        first, _ = self.starts[name].pop()
        if first is None:
            return
        if first > last:
            self.left_out[EMPTY] += 1
        else:
            self.chains[name].append((first, last))

    def end_sentence(self) -> None:
        """A sentence ends after the last word."""
        if size := len(self.words) - sum(self.sentences):
            self.sentences.append(size)

    def finished(self, path: Path | str, fault: Fault | None) -> Iterator[CoreferenceDocument]:
        """The document; none if it has no words or cannot be used."""
        self.end_sentence()
        for name, begun in self.starts.items():
            if begun:
                why = f"a mention of {name!r} begins and does not end in its document; expected '{name})' after it."
                self.refuse(begun[-1][1], why)
        if self.fault is not None:
            unusable(path, *self.fault, fault=fault)
        elif self.words:
            chains = _distinct(self.chains.values(), self.left_out)
            yield CoreferenceDocument(self.line, self.name, tuple(self.words), tuple(self.sentences), chains, dict(self.left_out))


def _distinct(chains: Iterable[Iterable[Mention]], left_out: Counter[str]) -> tuple[Chain, ...]:
    """Chains in the order of their first mentions, each mention once, in their order."""
    seen: set[Mention] = set()
    distinct = []
    for mentions in chains:
        fresh: list[Mention] = []
        for mention in mentions:
            if mention in seen:
                left_out[REPEATED] += 1
            else:
                seen.add(mention)
                fresh.append(mention)
        if fresh:
            distinct.append(tuple(sorted(fresh)))
    return tuple(sorted(distinct))


def _conll_2012(path: Path | str, fault: Fault | None) -> Iterator[CoreferenceDocument]:
    document: _Reading | None = None
    for line in lines(path):
        if line.text.startswith((BEGIN, END)):
            if document is not None:
                yield from document.finished(path, fault)
            begins = line.text.startswith(BEGIN)
            document = _Reading(line.number, line.text.removeprefix(BEGIN).strip()) if begins else None
        elif document is not None and not line.text.startswith("#"):
            cells = cells_of(line.text)
            if cells:
                _read_row(document, line.number, cells)
            else:
                document.end_sentence()
    if document is not None:
        yield from document.finished(path, fault)


def _read_row(document: _Reading, line: int, cells: Sequence[str]) -> None:
    """A word of CoNLL-2012 with the brackets in its last column."""
    if len(cells) < _LEAST:
        document.refuse(line, f"{counted(len(cells), 'column')}; expected those of CoNLL-2012: document, part, number, word, …, "
                              "and the chains in the last.")  # fmt: skip
        return
    number = len(document.words)
    document.words.append(cells[_WORD])
    if cells[-1] in ("-", "_", "*"):
        return
    for piece in cells[-1].split("|"):
        bracket = _BRACKET.fullmatch(piece)
        if bracket is None or not (bracket["open"] or bracket["close"]):
            document.refuse(line, f"{piece!r} in the last column; expected '(7', '7)', '(7)' or '-'.")
            return
        if bracket["open"]:
            document.starts[bracket["name"]].append((number, line))
        if bracket["close"]:
            document.close(bracket["name"], line, number)


def _corefud(path: Path | str, fault: Fault | None) -> Iterator[CoreferenceDocument]:
    document, name_index = _Reading(1), 0  # where the attributes of a mention have the entity's name
    for line in chain(lines(path), [Line(0, "# newdoc")]):
        text = line.text.strip()
        if text.startswith("#"):
            comment, _, value = (part.strip() for part in text[1:].partition("="))
            if comment.split(" ")[0] == "newdoc":
                yield from document.finished(path, fault)
                document = _Reading(line.number, value)
            elif comment == "global.Entity":
                name_index = next((n for n, name in enumerate(value.split("-")) if name in ("eid", "GRP")), 0)
        elif not text:
            document.end_sentence()
        else:
            _read_node(document, line, name_index)


def _read_node(document: _Reading, line: Line, entity_column: int) -> None:
    """A word or an empty node of CoNLL-U with the brackets in its last cell; a range of words has none."""
    cells = [cell.strip() for cell in line.text.split("\t")]
    match = _ID.fullmatch(cells[0])
    if len(cells) != len(CONLL_U) or match is None:
        document.refuse(line.number, f"expected the {len(CONLL_U)} tab-separated cells of CoNLL-U ({', '.join(CONLL_U)}).")
        return
    if (match["kind"] or "").startswith("-"):
        return
    first = len(document.words)
    if match["kind"] is None:
        if not cells[1]:
            document.refuse(line.number, "an empty 'form'.")
        document.words.append(cells[1])
    last = len(document.words) - 1  # of an empty node, the word before; its first is the word after
    value = next((item.removeprefix("Entity=") for item in cells[-1].split("|") if item.startswith("Entity=")), "")
    brackets = list(_ENTITY.finditer(value))
    if "".join(bracket[0] for bracket in brackets) != value:
        document.refuse(line.number, f"Entity={value}; expected brackets such as '(e7-person-1-', 'e7)' or '(e7-person-1-)'.")
        return
    for bracket in brackets:
        if bracket["attributes"] is None:
            document.close(bracket["closed"].split("-")[0], line.number, last)
            continue
        attributes = bracket["attributes"].split("-")
        name = attributes[min(entity_column, len(attributes) - 1)]
        piece = _PART.search(name)
        document.left_out[DISCONTINUOUS] += int(piece is not None and piece[0].startswith("[1/"))
        document.starts[name].append((None if piece else first, line.number))
        if bracket["close"]:
            document.close(name, line.number, last)
    document.left_out += Counter()  # without zeros


def _objects(
    path: Path | str, text: str, label: str, format: Format | None, labelled: bool, fault: Fault | None
) -> Iterator[CoreferenceDocument]:
    for number, record in objects(path, fault, format=format):
        try:
            yield _document(number, record, text, label, labelled or label in record)
        except _Wrong as wrong:
            unusable(path, number, str(wrong), fault=fault)


def _document(number: int, record: Mapping[str, Any], text: str, label: str, labelled: bool) -> CoreferenceDocument:
    name = next((name for name in (text, *_ALSO) if record.get(name) is not None), None)
    if name is None:
        if text in record:
            raise _Wrong(f"no value for {text!r}; expected one in every row.")
        raise _Wrong(f"no field {text!r}. {propose(text, record)} Choose the field of the words with --set corpus.text=NAME.")
    running = record[name] if isinstance(record[name], str) and not labelled else None
    value = record[name] if running is None else cells_of(running)
    nested = isinstance(value, list) and all(isinstance(item, list) for item in value)
    sentences = value if nested else [value]
    words = [word for sentence in sentences for word in sentence] if isinstance(value, list) else []
    if not words or not all(isinstance(word, str) and stripped(word) for word in words):
        raise _Wrong(f'{name!r} is not a list of words; expected strings that are not empty: ["A", "word"].')
    left_out: Counter[str] = Counter()
    chains = _distinct(_listed(record, label, len(words)), left_out) if labelled else None
    title = next((str(record[key]) for key in _NAMES if record.get(key) is not None), "")
    sizes = tuple(len(sentence) for sentence in sentences if sentence)
    return CoreferenceDocument(number, title, tuple(map(stripped, words)), sizes, chains, dict(left_out), running)


def _listed(record: Mapping[str, Any], label: str, words: int) -> Iterator[list[Mention]]:
    """The chains of a record."""
    form = f"a list of chains, each a list of [first word, last word], such as {label!r}: [[[0, 0], [2, 3]]]."
    if label not in record:
        raise _Wrong(f"no field {label!r}. {propose(label, record)} Expected {form}")
    if not isinstance(record[label], list):
        raise _Wrong(f"{label!r} is not a list; expected {form}")
    for mentions in record[label]:
        chain_mentions: list[Mention] = []
        for mention in mentions if isinstance(mentions, list) else [mentions]:
            whole = isinstance(mention, list) and len(mention) == 2 and all(type(end) is int for end in mention)
            if not whole:
                raise _Wrong(f"{mention!r} is not a mention; expected {form}")
            if not 0 <= mention[0] <= mention[1] < words:
                raise _Wrong(
                    f"the mention {mention}; expected the numbers of its first and of its last word, from 0 to {words - 1}.\n"
                    "  If these are the word after the last one, subtract 1 from every end."
                )
            chain_mentions.append((mention[0], mention[1]))
        yield chain_mentions
