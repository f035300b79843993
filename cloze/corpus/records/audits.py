"""What is odd in records that can be used, counted by file while they are read: finetune and `cloze corpus check` report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cloze.corpus.readers.labelled import ListCell, NumberCell
from cloze.corpus.records.broken import Broken
from cloze.corpus.records.record import Record

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_SEPARATORS = ("|", ";", ",")
_OFTEN = 0.1  # the share of rows with a character, from which it may separate classes
_SHOWN = 8  # parts of targets
_LONG = 100  # words, from which a file's only text may be several that nothing divides


class Audit(Protocol):
    """Counts what is odd."""

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Some records of a file, in order."""

    def remarks(self) -> Sequence[str]:
        """A sentence for each kind of oddity of each file."""


class OddTexts:
    """Counts texts that are empty, and texts that are numbers or lists in the file."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.odd: dict[str, Counter[str]] = {"empty": Counter(), "number": Counter(), "list": Counter()}
        self.first: dict[tuple[str, str], int] = {}

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the texts of some records."""
        self.rows[path] += len(records)
        for record in records:
            kinds = {"empty": any(not text.strip() for text in record.texts),
                     "number": any(isinstance(text, NumberCell) for text in record.texts),
                     "list": any(isinstance(text, ListCell) for text in record.texts)}  # fmt: skip
            for kind in (kind for kind, odd in kinds.items() if odd):
                self.odd[kind][path] += 1
                self.first.setdefault((kind, path), record.line)

    def remarks(self) -> list[str]:
        """How many rows of each file."""
        phrases = {
            "empty": "have an empty text", "number": "have a number as their text, which is read as it is written",
            "list": "have a list as their text, which is read with its brackets and quotes",
        }
        return [
            f"{path}: {count:,} of {self.rows[path]:,} rows {phrases[kind]}; the first is in line {self.first[kind, path]}."
            for kind, counts in self.odd.items() for path, count in counts.items()
        ]


class BrokenSchemes:
    """Counts labels of words that violate their scheme."""

    def __init__(self) -> None:
        self.broken = Broken()

    def add(self, path: str, records: Sequence[Record]) -> None:
        """Look at the labels of some records."""
        for record in records:
            self.broken.add(path, record.answer.labels, record.answer.at)

    def remarks(self) -> tuple[str, ...]:
        """A remark for each file."""
        return self.broken.remarks()


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
        unknown = self.tokenizer.unknown_parts([text for references in targets for text in references])
        self.targets[path] += len(targets)
        self.lacking[path] += len({numbers[text] for text, _ in unknown})
        self.parts.setdefault(path, Counter()).update(part for _, part in unknown)

    def remarks(self) -> list[str]:
        """A remark for each file."""
        sentences = []
        for path, count in self.lacking.items():
            parts = [part for part, _ in self.parts[path].most_common(_SHOWN + 1)]
            if count:
                shown = " ".join(parts[:_SHOWN]) + (" …" if len(parts) > _SHOWN else "")
                sentences.append(
                    f"{path}: {count:,} of {self.targets[path]:,} targets ({count / self.targets[path]:.0%}) hold what the "
                    f"vocabulary lacks, so they cannot be written exactly: {shown}"
                )
        return sentences
