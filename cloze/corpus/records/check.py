"""Checks labelled text without building anything: rows that cannot be used, and texts that two files share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_writer import pictures_of
from cloze.corpus.readers.hub_tables import local_tables
from cloze.corpus.records.answer import Answer, Columns, Record, has_keys
from cloze.errors import counted as in_words

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_SHOWN = 5  # places of shared texts
RARE = 10  # times as many rows of the most frequent class that make another one rare


class Unusable(NamedTuple):
    """A row that cannot be used: its file, its line, and why."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


@dataclass(frozen=True)
class Shared:
    """How many texts of a file also occur in other files: `rows` of the `of` usable rows, and `texts`, each counted once.

    `contrary` of these rows have a different answer there. `places` are the first pairs of lines, each with the other file.
    """

    path: str
    against: tuple[str, ...]
    rows: int
    of: int
    texts: int
    contrary: int
    places: tuple[tuple[int, str, int], ...]

    def __str__(self) -> str:
        other = " ".join(self.against)
        if not self.rows:
            return f"{self.path}: no text in common with {other}"
        rows = "row has a text that also occurs" if self.rows == 1 else "rows have texts that also occur"
        examples = ", ".join(f"line {line} = {path}:{other_line}" for line, path, other_line in self.places)
        contrary = f"; {self.contrary} of them with a different answer" if self.contrary else ""
        return (
            f"{self.path}: {self.rows:,} of {self.of:,} {rows} in {other} ({self.rows / self.of:.1%}; "
            f"{self.texts:,} different texts){contrary}: {examples}{', …' if self.rows > len(self.places) else ''}"
        )


@dataclass(frozen=True)
class RecordFindings:
    """The findings of a check of labelled text: usable and unusable rows by file, and texts that files share.

    `remarks` are about answers that are usable but odd.
    """

    rows: Mapping[str, int]
    unusable: tuple[Unusable, ...]
    shared: tuple[Shared, ...]
    remarks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows": dict(self.rows), "unusable": [fault._asdict() for fault in self.unusable],
            "shared": [asdict(overlap) for overlap in self.shared], "remarks": list(self.remarks),
        }

    def lines(self) -> list[str]:
        """For people: every row that cannot be used, then a line for each file. Advice that applies to many rows is printed
        once."""
        lines, reported = [], set()
        for fault in self.unusable:
            what, _, way_out = str(fault).partition("\n")
            lines += [what] if not way_out or way_out in reported else [what, way_out]
            reported.add(way_out)
        for path, rows in self.rows.items():
            faults = sum(fault.path == path for fault in self.unusable)
            bad = f", {faults:,} fault{'' if faults == 1 else 's'}" if faults else ""
            lines.append(f"{path}: {rows:,} usable {'row' if rows == 1 else 'rows'}{bad}")
        return [*lines, *map(str, self.shared), *self.remarks]


class _Seen(NamedTuple):
    path: str
    line: int
    answer: bytes


def check_records(
    paths: Sequence[str | Path], answer: Answer, columns: Columns, *, against: Sequence[str | Path] = (),
    tokenizer: Tokenizer | None = None,
) -> RecordFindings:
    """Read labelled text to its end and list every row that cannot be used.

    `against` is training text: texts that the files share with it are counted, and an answer that does not occur in it cannot be
    used. Texts that differ only in white space are the same. `tokenizer` is that of the network that will learn them. Memory: 16
    bytes and a place per text. Raises `TaskError` for a file that cannot be read at all, such as one without the column.
    """
    seen: dict[bytes, _Seen] = {}
    labels: set[str] = set()
    rows: dict[str, int] = {}
    unusable: list[Unusable] = []
    shared: list[Shared] = []
    audits, classes = answer.audits(tokenizer), Counter[str]()
    for path in local_tables(against):
        for record in _read(path, answer, columns, unusable, rows):
            row_labels = _labels(answer, record)
            seen.setdefault(_digest(record.texts), _Seen(path, record.line, _answer_digest(row_labels, record)))
            labels.update(label for _, label in row_labels or ())
    for path in local_tables(paths):
        counted = _Counted()
        for record in _read(path, answer, columns, unusable, rows):
            row_labels = _labels(answer, record)
            for audit in audits:
                audit.add(path, [record])
            classes.update(label for _, label in row_labels or () if not answer.ragged)
            counted.add(record, seen.get(_digest(record.texts)), _answer_digest(row_labels, record))
            for line, label in row_labels or () if against else ():
                if label not in labels:
                    unusable.append(Unusable(path, line, f"the label {label!r} does not occur in {' '.join(map(str, against))}."))
        if against:
            shared.append(counted.shared(path, tuple(map(str, against)), rows[path]))
    remarks = (remark for audit in audits for remark in audit.remarks())
    return RecordFindings(rows, tuple(unusable), tuple(shared), (*remarks, *_rare(classes)))


def _rare(classes: Counter[str]) -> Iterator[str]:
    """A remark if the rarest class has far fewer rows than the most frequent one."""
    if len(classes) < 2:
        return
    (frequent, most), (rare, least) = classes.most_common(1)[0], classes.most_common()[-1]
    if most >= RARE * least:
        yield (
            f"the class {rare!r} has {in_words(least, 'row')} and {frequent!r} has {most:,}: a network may never predict the "
            "rare one.\n"
            "  To weigh rare classes as much as the others: cloze finetune … --set objectives[0].class_weights=balanced"
        )


def text_hashes(
    paths: Sequence[str | Path], answer: Answer, columns: Columns, *, pictures: Sequence[str] = ()
) -> NDArray[np.uint64]:
    """A 64-bit hash of the texts of each usable row that has any, (rows,); the same as `check_records` compares.

    Where rows are about pictures, whose keys are in the columns `pictures`, the same text of another picture has another hash.
    """
    parts: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
    how: dict[str, Any] = {"format": columns.format, "columns": columns.names, "quoting": columns.quoting}
    for path in map(str, paths):
        records = answer.read(path, columns, lambda line, why: None)
        has_pictures = bool(pictures) and has_keys(path, answer, columns.format)
        keyed = pictures_of(path, records, pictures, **how) if has_pictures else ((record, ()) for record in records)
        digests = (_digest([*record.texts, *keys]) for record, keys in keyed if any(map(str.strip, record.texts)))
        parts.append(np.fromiter((int.from_bytes(digest[:8], "little") for digest in digests), np.uint64))
    return np.concatenate(parts)


def _read(
    path: str, answer: Answer, columns: Columns, unusable: list[Unusable], rows: dict[str, int]
) -> Iterator[Record]:
    rows[path] = 0
    for record in answer.read(path, columns, lambda line, why: unusable.append(Unusable(path, line, why))):
        rows[path] += 1
        yield record


def _labels(answer: Answer, record: Record) -> list[tuple[int, str]] | None:
    labels = answer.labels_of(record)
    return None if labels is None else list(labels)


def _answer_digest(labels: Sequence[tuple[int, str]] | None, record: Record) -> bytes:
    return _digest([repr(record.answer)] if labels is None else [label for _, label in labels])


def _digest(texts: Sequence[str]) -> bytes:
    return blake2b("\0".join(" ".join(text.split()) for text in texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _Counted:
    def __init__(self) -> None:
        self.rows = self.contrary = 0
        self.texts: set[_Seen] = set()
        self.places: list[tuple[int, str, int]] = []

    def add(self, record: Record, seen: _Seen | None, answer: bytes) -> None:
        if seen is None:
            return
        self.rows += 1
        self.texts.add(seen)
        self.contrary += seen.answer != answer
        if len(self.places) < _SHOWN:
            self.places.append((record.line, seen.path, seen.line))

    def shared(self, path: str, against: tuple[str, ...], of: int) -> Shared:
        return Shared(path, against, self.rows, of, len(self.texts), self.contrary, tuple(self.places))
