"""The report on reading a corpus: counts, formats and anomalies, with the first locations of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloze.errors import CorpusError, counted

_EXAMPLES = 5  # locations shown per kind of anomaly
_FILES = 20    # files listed by name
_TOLERATED = 0.01

DATASET = "dataset"  # the format of a split of a data set of the hub
IN_MEMORY = "given-*.jsonl"  # the name of a file of texts from Python, of which no user knows
TEXTS_FOLDER = Path("cloze", "corpus")  # the folder of these files in that of a run

KINDS = {
    "undecodable": "bytes that are not UTF-8, replaced by U+FFFD",
    "nul": "NUL characters, removed",
    "bad_record": "records without a readable text, left out",
    "long_line": "lines over 1 MB",
    "long_sentence": "sentences over 65,536 characters, cut into pieces",
    "empty_document": "documents without text, left out",
    "empty_file": "empty files",
    "recoded": "files that are not UTF-8, decoded",
    "left_out": "files of the folder left out",
}


@dataclass
class Oddities:
    """Counts of anomalies by kind, and their first locations."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, location: str, count: int = 1) -> None:
        """Count an anomaly at `location` (file:line, or a file with a reason)."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        examples = self.places.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(location)

    def add(self, other: Oddities) -> None:
        """Add the anomalies of another block of the corpus."""
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            examples = self.places.setdefault(kind, [])
            examples += other.places.get(kind, [])[: _EXAMPLES - len(examples)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: kind → count and places."""
        return {kind: {"count": n, "places": self.places.get(kind, [])} for kind, n in sorted(self.counts.items())}


@dataclass
class CorpusReport:
    """The report on one pass over a corpus."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    bytes: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    files: list[dict[str, str]] = field(default_factory=list)
    odd: Oddities = field(default_factory=Oddities)

    def add_file(self, path: str, format: str, why: str) -> None:
        """Record the format of a file and how it was detected."""
        self.formats[format] = self.formats.get(format, 0) + 1
        entry = {"path": path, "format": format, "why": why}
        if len(self.files) < _FILES or (format == DATASET and entry not in self.files):  # their commits are recorded here
            self.files.append(entry)

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for the header of a store."""
        counts = {"documents": self.documents, "sentences": self.sentences, "tokens": self.tokens, "bytes": self.bytes}
        return {**counts, "formats": dict(self.formats), "files": list(self.files), "odd": self.odd.as_dict()}

    def lines(self) -> list[str]:
        """As text: a line of counts, one per format, one per kind of anomaly."""
        return report_lines(self.as_dict())


@dataclass
class FileFaults:
    """Faults of one file, to be judged against its size."""

    path: str
    bytes: int = 0
    undecodable: int = 0
    records: int = 0
    bad_records: int = 0
    column: str = "text"

    def check(self) -> None:
        """Raise `CorpusError` if more than one per cent of the file is not in the assumed encoding or format."""
        if self.undecodable > self.bytes * _TOLERATED:
            raise CorpusError(
                f"{self.path}: {self.undecodable:,} of {self.bytes:,} bytes are not UTF-8: "
                f"it looks like another encoding.\n"
                f"  Name it with --encoding NAME, for example cp1252 or gb18030."
            )
        if self.bad_records > max(1, self.records * _TOLERATED):
            raise CorpusError(
                f"{self.path}: {self.bad_records:,} of {self.records:,} lines are not JSON objects with a text called "
                f'"{self.column}".\n  Name the field with --text NAME, or read the lines as they are with --format line.'
            )


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """The lines of a report loaded from JSON."""
    size = f"{report['bytes'] / 1e6:,.1f} MB"
    counts = [counted(report["documents"], "document"), counted(report["sentences"], "sentence")]
    if report["tokens"]:
        counts.append(counted(report["tokens"], "token"))
    lines = [f"{', '.join(counts)} from {size} of text"]
    for name, number in report["formats"].items():
        first = next((f for f in report["files"] if f["format"] == name), None)
        if number == 1 and first and Path(first["path"]).match(IN_MEMORY):
            continue
        why = f": {first['why']}" if first and number == 1 else ""
        lines.append(f"read as {name}: {number:,} file{'s' if number > 1 else ''}{why}")
    for kind, entry in report["odd"].items():
        places = "; ".join(entry["places"])
        more = " …" if entry["count"] > len(entry["places"]) else ""
        lines.append(f"note: {KINDS.get(kind, kind)}: {entry['count']:,} ({places}{more})")
    return lines
