"""What is odd in records that can be used, counted by file while they are read: finetune and `cloze corpus check` report it."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from cloze.corpus.readers.fasttext import is_prefixed
from cloze.corpus.readers.labelled import ListCell, NumberCell
from cloze.corpus.records.record import Record
from cloze.errors import counted
from cloze.schemes import breaks, closes, has_prefix, standard
from cloze.text.characters import EXTENDING, IDEOGRAPHS, INVISIBLE, UNSPACED

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_MISSING = frozenset({"nan", "null", "na", "n/a"})  # in any case
_SEPARATORS = ("|", ";", ",")
_OFTEN = 0.1  # the share of rows with a character, from which it may separate classes
_LIKE_O = ("o", "0")
_SHOWN = 8  # parts of targets
_LONG = 100  # words, from which a file's only text may be several that nothing divides
_LETTER = rf"[^\W\d_{IDEOGRAPHS}{UNSPACED}]"
#: Between two letters of a script that writes spaces between words.
_INSIDE_WORD = re.compile(rf"(?<={_LETTER})(?=[{EXTENDING}]*{_LETTER})").match
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


class Audit(Protocol):
    """Counts what is odd."""

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Some records of a file, in order."""

    def remarks(self) -> Sequence[str]:
        """A sentence for each kind of oddity of each file."""


class OddTexts:
    """Counts texts that are empty, texts that are numbers or lists in the file, and texts with a label of fastText in them."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.odd: dict[str, Counter[str]] = {kind: Counter() for kind in ("empty", "number", "list", "label")}
        self.first: dict[tuple[str, str], int] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the texts of some records."""
        self.rows[path] += len(records)
        for record in records:
            kinds = {"empty": any(not text.strip() for text in record.texts),
                     "number": any(isinstance(text, NumberCell) for text in record.texts),
                     "list": any(isinstance(text, ListCell) for text in record.texts),
                     "label": any(is_prefixed(text) for text in record.texts)}  # fmt: skip
            for kind in (kind for kind, odd in kinds.items() if odd):
                self.odd[kind][path] += 1
                self.first.setdefault((kind, path), record.line)

    def remarks(self) -> list[str]:
        """How many rows of each file."""
        phrases = {
            "empty": "have an empty text", "number": "have a number as their text, which is read as it is written",
            "list": "have a list as their text, which is read with its brackets and quotes",
            "label": "have a word that begins with '__label' in their text, where only '__label__NAME' is a label; if it gives "
                     "the class away, take it out",
        }
        return [
            f"{path}: {count:,} of {self.rows[path]:,} rows {phrases[kind]}; the first is in line {self.first[kind, path]}."
            for kind, counts in self.odd.items() for path, count in counts.items()
        ]


class BrokenSchemes:
    """Counts labels of words that violate their scheme. Whether that is BIO, or one that marks ends, is known only
    after all labels."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # of the first of each label
        self.counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # by whether ends are marked: by file
        self.first: dict[tuple[bool, str], str] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the labels of some records."""
        for record in records:
            self._add(path, record.answer.labels, record.answer.at)

    def _add(self, path: str, labels: Sequence[str], at: Sequence[int]) -> None:
        """The labels of one text and the line of each."""
        for label, line in zip(labels, at, strict=True):
            self.places.setdefault(label, f"{path}:{line}")
        for closed, counts in self.counts.items():
            for index in breaks(labels, closed=closed):
                counts[path] += 1
                self.first.setdefault((closed, path), f"{path}:{at[index]}: {labels[index]} {_where(labels, index)}")

    def remarks(self) -> tuple[str, ...]:
        """A remark for each file in which labels violate their scheme."""
        closed = closes(self.places)
        remarks = self._unprefixed()
        for path, count in self.counts[closed].items():
            more = f", as do {count - 1:,} more labels in this file" if count > 1 else ""
            remarks.append(
                f"{self.first[closed, path]} breaks the scheme {'BIOES' if closed else 'BIO'}{more}. Training uses them "
                "unchanged; where spans are counted, a label that continues no span starts one."
            )
        return tuple(remarks)

    def _unprefixed(self) -> list[str]:
        """A remark on each label without a prefix, such as a zero for O, where others have one."""
        kinds = {label for label in self.places if label != "O"}
        labels = sorted(label for label in kinds if not has_prefix(label))
        if len(labels) == len(kinds) or standard(self.places):
            return []
        if 2 * len(labels) >= len(kinds):
            labels = [label for label in labels if label in _LIKE_O]
        return [
            f"{self.places[label]}: the label {label!r} has no prefix, as others have: where spans are counted, each of its "
            "words is one. If it means that a word is in no span, write O."
            for label in labels
        ]


def _where(labels: Sequence[str], index: int) -> str:
    """What a label that breaks its scheme stands next to: before it, or, if nothing ends its span, after it."""
    if index in breaks(labels):
        return f"after {labels[index - 1]}" if index else "at the start of a text"
    return f"before {labels[index + 1]}" if index + 1 < len(labels) else "at the end of a text"


class Undivided:
    """Notices a file of labelled words that is one long text."""

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.words: Counter[str] = Counter()

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Count texts and words."""
        self.texts[path] += len(records)
        self.words[path] += sum(len(record.answer.labels) for record in records)

    def remarks(self) -> list[str]:
        """A remark for each file."""
        return [
            f"{path}: all {self.words[path]:,} words are one text. An empty line ends a text: put one after each sentence."
            for path, count in self.texts.items() if count == 1 and self.words[path] >= _LONG
        ]


class OddClasses:
    """Notices names of classes that mean no class, that end with a separator, and that are spelled in several ways.

    `classes` gives the classes of a record.
    """

    def __init__(self, classes: Callable[[Record], Iterable[str]]) -> None:
        self.classes = classes
        self.rows: dict[str, Counter[str]] = {}
        self.first: dict[tuple[str, str], int] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Count the classes of some records."""
        rows = self.rows.setdefault(path, Counter())
        for record in records:
            for name in self.classes(record):
                rows[name] += 1
                self.first.setdefault((path, name), record.line)

    def remarks(self) -> list[str]:
        """The remarks on each file, and on names that are spelled in several ways in all of them."""
        remarks = [
            f"{path}: {remark}"
            for path, rows in self.rows.items()
            for remark in (*self._unmarked(path, rows), *self._missing(path, rows), *self._separated(rows))
        ]
        return [*remarks, *_alike(sum(self.rows.values(), Counter[str]()))]

    def _unmarked(self, path: str, rows: Counter[str]) -> list[str]:
        """Whether one name alone has no letter, as `-` in SNLI, or is -1 among 0, 1, 2 and more, as in `datasets`."""
        unnamed = [name for name in rows if not name.strip(string.punctuation)]
        other_names = rows.keys() - {"-1"}
        if "-1" in rows and {"0", "1", "2"} <= other_names and all(name.isdecimal() for name in other_names):
            unnamed.append("-1")
        if len(unnamed) != 1 or len(rows) == 1:
            return []
        name = unnamed[0]
        return [
            f"{rows[name]:,} of {rows.total():,} rows have the class {name!r}; the first is in line {self.first[path, name]}. "
            "If it marks rows without a class, leave them out; as it is, it is a class like others."
        ]

    def _missing(self, path: str, rows: Counter[str]) -> list[str]:
        """Whether names are what programs write for a missing value."""
        names = sorted(name for name in rows if name.strip("<>").casefold() in _MISSING)
        if not names or len(names) == len(rows):
            return []
        count, first = sum(rows[name] for name in names), min(self.first[path, name] for name in names)
        return [
            f"{count:,} of {rows.total():,} rows have the class {' or '.join(map(repr, names))}; the first is in line {first}. "
            "If that means a missing label, leave the rows out; as it is, it is a class like others."
        ]

    def _separated(self, rows: Counter[str]) -> list[str]:
        """Whether every name ends with the same separator."""
        ends = {name[-1:] for name in rows}
        if len(ends) != 1 or not ends <= set(_SEPARATORS):
            return []
        return [f"all classes end with {ends.pop()!r}, such as {next(iter(rows))!r}. If it separates classes, take it out."]


def _alike(rows: Counter[str]) -> Iterator[str]:
    """A remark on each class that is written in several ways."""
    ways: dict[str, list[str]] = {}
    for name in sorted(rows):
        ways.setdefault("".join(_INVISIBLE.sub("", name).casefold().split()), []).append(name)
    for names in ways.values():
        if len(names) > 1:
            listing = ", ".join(f"{name!r} ({counted(rows[name], 'row')})" for name in names)
            yield f"these classes differ only in case, spaces or invisible characters, and are learned as different: {listing}."


class CutWords:
    """Counts spans that begin or end inside a word, as all do whose offsets are off by one."""

    def __init__(self) -> None:
        self.spans: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the spans of some records."""
        for record in records:
            (text,), (spans, _) = record.texts, record.answer
            for start, stop in spans:
                self.spans[path] += 1
                if _INSIDE_WORD(text, start) or _INSIDE_WORD(text, stop):
                    self.cut[path] += 1
                    self.first.setdefault(path, f"line {record.line}: [{start}, {stop}] is {text[start:stop][:60]!r}")

    def remarks(self) -> list[str]:
        """A remark for each file in which most spans are so."""
        return [
            f"{path}: {cut:,} of {self.spans[path]:,} spans begin or end inside a word, such as {self.first[path]}. A span is "
            "the offset of its first character, counted from 0, and the offset after its last one."
            for path, cut in self.cut.items() if 2 * cut >= self.spans[path]
        ]


class Unseparated:
    """Notices a character that may separate classes, where no row has several of them."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.cells: dict[str, Counter[str]] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the classes of some records."""
        cells = self.cells.setdefault(path, Counter())
        for record in records:
            self.most[path] = max(self.most[path], len(record.answer))
            if self.most[path] < 2:
                cells.update(record.answer)

    def remarks(self) -> list[str]:
        """A remark for each file."""
        return [remark for path, cells in self.cells.items() if self.most[path] < 2 and (remark := self._remark(path, cells))]

    def _remark(self, path: str, cells: Counter[str]) -> str | None:
        for separator in _SEPARATORS:
            joined = [cell for cell in cells if separator in cell]
            rows = sum(cells[cell] for cell in joined)
            parts = {part.strip() for cell in cells for part in cell.split(separator)}
            if rows >= max(2, _OFTEN * cells.total()) and len(parts) <= len(cells):
                return (
                    f"{path}: no row has several classes, but {rows:,} hold {separator!r}, such as {joined[0][:60]!r}. If it "
                    f"separates classes: --set 'corpus.answer.separator=\"{separator}\"'"
                )
        return None


class Unwritable:
    """Counts targets with parts that a vocabulary lacks, which can never be written."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.targets: Counter[str] = Counter()
        self.lacking: Counter[str] = Counter()
        self.parts: dict[str, Counter[str]] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the targets of some records."""
        self.add_targets(path, [record.answer for record in records])

    def add_targets(self, path: str, targets: Sequence[Sequence[str]]) -> None:
        """Look at some targets, each with its references."""
        numbers = [number for number, references in enumerate(targets) for _ in references]
        unknown = self.tokenizer.targets.unknown_parts([text for references in targets for text in references])
        self.targets[path] += len(targets)
        self.lacking[path] += len({numbers[text] for text, _ in unknown})
        self.parts.setdefault(path, Counter()).update(part for _, part in unknown)

    def remarks(self) -> list[str]:
        """A remark for each file."""
        sentences = []
        for path, count in self.lacking.items():
            parts = [part for part, _ in self.parts[path].most_common(_SHOWN + 1)]
            if count:
                examples = " ".join(parts[:_SHOWN]) + (" …" if len(parts) > _SHOWN else "")
                sentences.append(
                    f"{path}: {count:,} of {self.targets[path]:,} targets ({count / self.targets[path]:.0%}) hold what the "
                    f"vocabulary lacks, so they cannot be written exactly: {examples}"
                )
        return sentences
