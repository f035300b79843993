"""Checks a corpus without building anything: encoding, document boundaries, lengths, duplicates, scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.documents import Document, read_documents
from cloze.corpus.readers.report import CorpusReport
from cloze.corpus.shards.manifest import ShardedStore
from cloze.corpus.stores.store import COUNTS, Store
from cloze.text import Normalise
from cloze.text.roles import literals_in
from cloze.text.vocabularies.costs import SAMPLE, NormaliserCosts, costs_of

PLACES = 5  # examples shown per kind of anomaly
# First code point of each script's main blocks; "other" between them. Enough to see a mixture, not a script database.
_SCRIPTS = (
    (0x00, "other"), (0x41, "Latin"), (0x5B, "other"), (0x61, "Latin"), (0x7B, "other"), (0xC0, "Latin"), (0x250, "other"),
    (0x370, "Greek"), (0x400, "Cyrillic"), (0x530, "other"), (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, "other"),
    (0x900, "Devanagari"), (0x980, "other"), (0xE00, "Thai"), (0xE80, "other"), (0x1E00, "Latin"), (0x2000, "other"),
    (0x3041, "Kana"), (0x3100, "other"), (0x3400, "Han"), (0xA000, "other"), (0xAC00, "Hangul"), (0xD7B0, "other"),
    (0xF900, "Han"), (0xFB00, "other"), (0x20000, "Han"), (0x2FA20, "other"),
)
_FIRST = np.array([first for first, _ in _SCRIPTS], dtype=np.uint32)
_NAMES = sorted({name for _, name in _SCRIPTS})
_NUMBER = np.array([_NAMES.index(name) for _, name in _SCRIPTS])
# Frequent characters that exist in one of the two Chinese scripts only.
_SIMPLIFIED = frozenset("们这国说时会对发经过还进开关长问门东车马鸟鱼龙书学习见觉话语")
_TRADITIONAL = frozenset("們這國說時會對發經過還進開關長問門東車馬鳥魚龍書學習見覺話語")


@dataclass
class Findings:
    """What a check found: numbers, and advice in words."""

    report: CorpusReport
    characters: int = 0
    lengths: dict[str, float] = field(default_factory=dict)
    duplicates: int = 0
    duplicate_places: list[str] = field(default_factory=list)
    scripts: dict[str, float] = field(default_factory=dict)
    chinese: dict[str, int] = field(default_factory=dict)
    single_sentence_documents: int = 0
    special: Counter[str] = field(default_factory=Counter)
    costs: NormaliserCosts | None = None
    advice: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.report.as_dict(), "characters": self.characters, "lengths": self.lengths,
            "duplicates": {"count": self.duplicates, "places": self.duplicate_places}, "scripts": self.scripts,
            "chinese": self.chinese, "single_sentence_documents": self.single_sentence_documents,
            "special": dict(self.special), "letters_losing_marks": self.costs.stripped if self.costs else 0.0,
            "advice": self.advice,
        }

    def lines(self) -> list[str]:
        """For a person."""
        lengths = self.lengths
        lines = self.report.lines()
        lines.append(
            "sentences per document: median {document_median:.0f}, mean {document_mean:.1f}, longest {document_longest:.0f}"
            .format(**lengths)
        )
        lines.append(
            "characters per sentence: median {sentence_median:.0f}, mean {sentence_mean:.1f}, "
            "longest {sentence_longest:.0f}".format(**lengths)
        )
        lines.append("scripts: " + ", ".join(f"{name} {share:.1%}" for name, share in self.scripts.items()))
        lines.append(f"duplicates: {self.duplicates:,} exact copies of earlier documents")
        lines += [f"  {location}" for location in self.duplicate_places]
        return lines + [f"advice: {text}" for text in self.advice] + ([] if self.advice else ["no problems found"])


def check_corpus(paths: Sequence[str | Path], *, format: str = "auto") -> Findings:
    """Read a corpus once and report anomalies. Memory: a hash per document and a few counters.

    Raises `CorpusError` for what cannot be read at all, as a build would.
    """
    report = CorpusReport()
    findings = Findings(report)
    seen: dict[int, str] = {}
    per_document, per_sentence = LengthCounts(), LengthCounts()
    scripts = np.zeros(len(_NAMES), dtype=np.int64)
    sample: list[str] = []
    for parts in _documents(read_documents(paths, format=format, report=report)):
        sentences, digest = 0, blake2b(digest_size=8)
        for document in parts:
            text = "\n" * document.goes_on + document.text
            sentences += len(document.sentences)
            per_sentence.add([len(sentence.strip()) for sentence in document.sentences])
            if findings.characters < SAMPLE:
                sample.append(text[:SAMPLE])
            findings.characters += len(text)
            findings.special.update(literals_in(text))
            digest.update(text.encode("utf-8", "replace"))
            scripts += scripts_of(text)
            if not text.isascii():
                _count_chinese(text, findings.chinese)
        per_document.add([sentences])
        findings.single_sentence_documents += sentences == 1
        _find_duplicate(digest.digest(), document, seen, findings)
    findings.lengths = {**per_document.summary("document"), **per_sentence.summary("sentence")}
    findings.scripts = script_shares(scripts)
    findings.costs = costs_of("\n".join(sample), Normalise(lower=True).applied("wordpiece"))
    findings.advice = _advice(findings)
    return findings


def _documents(parts: Iterator[Document]) -> Iterator[Iterator[Document]]:
    """The parts of every document. A very long one is never entirely in memory."""
    waiting = next(parts, None)

    def document() -> Iterator[Document]:
        nonlocal waiting
        assert waiting is not None
        yield waiting
        while (waiting := next(parts, None)) is not None and waiting.goes_on:
            yield waiting

    while waiting is not None:
        yield document()


def check_store(path: str | Path) -> dict[str, Any]:
    """Compare every checksum of a store, and return its header. Raises `CorpusError` if it is damaged."""
    store = Store.open(path, verify=True)
    parts = [store.shard(number) for number in range(len(store.shards))] if isinstance(store, ShardedStore) else [store]
    lengths = np.concatenate([np.diff(part.document_starts) for part in parts])
    extent = {"tokens_per_document_median": float(np.median(lengths)) if len(lengths) else 0.0}
    return {**{k: v for k, v in store.header.items() if k not in ("files", COUNTS)}, **extent, "checksums": "all right"}


def as_json(findings: Any) -> str:
    """A finding as JSON text."""
    return json.dumps(findings, ensure_ascii=False, indent=1)


class LengthCounts:
    """Counts of small integers, exact up to a limit, for medians in constant memory."""

    _LIMIT = 1 << 16

    def __init__(self) -> None:
        self.counts = np.zeros(self._LIMIT + 1, dtype=np.int64)
        self.total = self.number = self.longest = 0

    def add(self, values: list[int]) -> None:
        """Count these."""
        for value in values:
            self.counts[min(value, self._LIMIT)] += 1
            self.total += value
            self.longest = max(self.longest, value)
        self.number += len(values)

    def summary(self, name: str) -> dict[str, float]:
        """Median, mean and maximum, named after what is counted."""
        middle = int(np.searchsorted(np.cumsum(self.counts), (self.number + 1) // 2)) if self.number else 0
        mean = self.total / max(self.number, 1)
        return {f"{name}_median": middle, f"{name}_mean": mean, f"{name}_longest": self.longest}


def _find_duplicate(digest: bytes, document: Document, seen: dict[int, str], findings: Findings) -> None:
    key = int.from_bytes(digest, "little")
    if key not in seen:
        # Locations only of the first documents: the rest must not cost a string each.
        seen[key] = f"{document.file}:{document.line}" if len(seen) < 100_000 else ""
        return
    findings.duplicates += 1
    if len(findings.duplicate_places) < PLACES:
        findings.duplicate_places.append(f"{document.file}:{document.line} repeats {seen[key] or 'an earlier document'}")


def scripts_of(text: str) -> NDArray[np.int64]:
    """Counts of the characters of a text by script, in the order of the scripts' names."""
    if text.isascii():
        data = np.frombuffer(text.encode(), dtype=np.uint8) | 0x20
        latin = int(((data >= 0x61) & (data <= 0x7A)).sum())
        counts = np.zeros(len(_NAMES), dtype=np.int64)
        counts[_NAMES.index("Latin")] = latin
        return counts
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
    return np.bincount(_NUMBER[np.searchsorted(_FIRST, codes, "right") - 1], minlength=len(_NAMES))


def script_shares(counts: NDArray[np.int64]) -> dict[str, float]:
    """Shares of the letters by the name of their script, the largest first."""
    letters = {name: int(n) for name, n in zip(_NAMES, counts.tolist(), strict=True) if name != "other" and n}
    total = max(sum(letters.values()), 1)
    return {name: n / total for name, n in sorted(letters.items(), key=lambda item: -item[1])}


def _count_chinese(text: str, counts: dict[str, int]) -> None:
    for name, marks in (("simplified", _SIMPLIFIED), ("traditional", _TRADITIONAL)):
        number = sum(map(text.count, marks - (_TRADITIONAL if name == "simplified" else _SIMPLIFIED)))
        if number:
            counts[name] = counts.get(name, 0) + number


def _advice(findings: Findings) -> list[str]:
    report, advice = findings.report, []
    if report.documents == 1:
        advice.append("all text is one document: the edit `pair` needs two, and nothing can be held out. Is --format right?")
    elif findings.single_sentence_documents > 0.5 * report.documents:
        advice.append(
            f"{findings.single_sentence_documents / max(report.documents, 1):.0%} of the documents are a single sentence, "
            f"so passages will be short. If lines belong together, --format sentence or --format book joins them."
        )
    if findings.duplicates > 0.01 * report.documents:
        advice.append(f"{findings.duplicates / report.documents:.1%} of the documents are exact repeats: remove them.")
    if findings.lengths["sentence_mean"] > 1000:
        advice.append("sentences are very long: punctuation may be missing; passages cut them by length.")
    mixed = [name for name, share in findings.scripts.items() if share >= 0.05]
    if len(mixed) > 1:
        advice.append(f"several scripts are mixed ({', '.join(mixed)}). Is that intended?")
    chinese = findings.chinese
    if len(chinese) == 2 and min(chinese.values()) > 0.05 * max(chinese.values()):
        advice.append("simplified and traditional Chinese are mixed; they share one vocabulary.")
    if findings.special:
        literals = ", ".join(f"{literal} ({number:,})" for literal, number in findings.special.most_common(PLACES))
        advice.append(
            f"the text contains the spelling of special tokens: {literals}. cloze reads them as plain text, "
            "AutoTokenizer of transformers as special tokens: remove them, unless the text is about them."
        )
    if findings.costs is not None and findings.costs.sizeable:
        advice.append(
            f"with the normalisation of bert and other recipes, {findings.costs}. quick keeps the marks; other recipes do with "
            "--set text.normalise.strip_accents=false."
        )
    if "undecodable" in report.odd.counts:
        advice.append("some bytes are not UTF-8 and become U+FFFD: see the places above.")
    return advice
