"""Checks parallel text without building anything: alignment, lengths, repeats, untranslated sides."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from cloze.corpus.checks.check_text import PLACES, LengthCounts, script_shares, scripts_of
from cloze.corpus.readers.pair_files import Parallel, find_pairs
from cloze.errors import CorpusError

_BEYOND = 3.0  # factor over the usual ratio of lengths from which a pair looks misaligned
_SHORT = 20    # characters below which a ratio says nothing
_EXTREMES = 1000


@dataclass
class PairFindings:
    """What a check of parallel text found: numbers, and advice in words."""

    pairs: dict[str, int] = field(default_factory=dict)  # by languages, `en-fr`
    files: list[str] = field(default_factory=list)
    lengths: dict[str, dict[str, float]] = field(default_factory=dict)  # by language, in characters
    scripts: dict[str, dict[str, float]] = field(default_factory=dict)
    duplicates: int = 0
    duplicate_places: list[str] = field(default_factory=list)
    untranslated: int = 0
    untranslated_places: list[str] = field(default_factory=list)
    uneven: int = 0
    uneven_places: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Pairs of all languages."""
        return sum(self.pairs.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        odd = {
            name: {"count": vars(self)[name], "places": vars(self)[places]}
            for name, places in (
                ("duplicates", "duplicate_places"), ("untranslated", "untranslated_places"), ("uneven", "uneven_places")
            )
        }
        return {
            "pairs": self.pairs, "files": self.files, "lengths": self.lengths, "scripts": self.scripts, **odd,
            "advice": self.advice,
        }

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{name}: {count:,} pairs" for name, count in self.pairs.items()]
        for language, numbers in self.lengths.items():
            scripts = ", ".join(f"{name} {share:.1%}" for name, share in self.scripts[language].items())
            lines.append(
                "{}: characters per sentence: median {sentence_median:.0f}, mean {sentence_mean:.1f}, longest "
                "{sentence_longest:.0f}; scripts: {}".format(language, scripts or "no letters", **numbers)
            )
        for what, count, places in (
            ("repeat an earlier one exactly", self.duplicates, self.duplicate_places),
            ("have the same text on both sides", self.untranslated, self.untranslated_places),
            (f"are {_BEYOND:.0f} times longer or shorter than their translation usually is", self.uneven, self.uneven_places),
        ):
            lines.append(f"{count:,} pairs {what}")
            lines += [f"  {location}" for location in places]
        return lines + [f"advice: {text}" for text in self.advice] + ([] if self.advice else ["no problems found"])


def check_pairs(paths: Sequence[str | Path]) -> PairFindings:
    """Read parallel text once and report anomalies. Memory: a hash and a number per pair.

    Raises `CorpusError` with the line for whatever does not pair up, as a build would.
    """
    findings = PairFindings()
    seen: set[bytes] = set()
    lengths: dict[str, LengthCounts] = {}
    scripts: dict[str, Any] = {}
    for parallel in find_pairs(paths):
        findings.files.append(parallel.name)
        for language in parallel.languages:
            lengths.setdefault(language, LengthCounts())
            scripts.setdefault(language, 0)
        _read(parallel, findings, seen, lengths, scripts)
    findings.lengths = {language: of.summary("sentence") for language, of in lengths.items()}
    findings.scripts = {language: script_shares(counts) for language, counts in scripts.items()}
    findings.advice = _advice(findings)
    return findings


def _read(
    corpus: Parallel, findings: PairFindings, seen: set[bytes], lengths: dict[str, LengthCounts], scripts: dict[str, Any]
) -> None:
    ratios: list[float] = []
    ends: list[tuple[float, str]] = []  # the most uneven pairs, to give their locations once the usual ratio is known
    number = 0
    for line, *sides in corpus.lines():
        number += 1
        location = f"{corpus.files[0].path}:{line}"
        for language, text in zip(corpus.languages, sides, strict=True):
            lengths[language].add([len(text)])
            scripts[language] = scripts[language] + scripts_of(text)
        key = blake2b("\t".join((*corpus.languages, *sides)).encode("utf-8", "replace"), digest_size=8).digest()
        if key in seen:
            findings.duplicates += 1
            findings.duplicate_places += [location][: PLACES - len(findings.duplicate_places)]
        seen.add(key)
        if sides[0] == sides[1]:
            findings.untranslated += 1
            findings.untranslated_places += [location][: PLACES - len(findings.untranslated_places)]
        if max(map(len, sides)) >= _SHORT:
            ratios.append(float(np.log(len(sides[1]) / len(sides[0]))))
            ends.append((ratios[-1], location))
            if len(ends) > 4 * _EXTREMES:
                ends = heapq.nsmallest(_EXTREMES, ends) + heapq.nlargest(_EXTREMES, ends)
    if not number:
        raise CorpusError(f"{corpus.name}: no pair of sentences.")
    languages = "-".join(corpus.languages)
    findings.pairs[languages] = findings.pairs.get(languages, 0) + number
    if ratios:
        usual = float(np.median(ratios))
        findings.uneven += int(np.count_nonzero(np.abs(np.array(ratios) - usual) > np.log(_BEYOND)))
        worst = sorted(((abs(ratio - usual), location) for ratio, location in ends), reverse=True)
        far = [location for distance, location in worst if distance > np.log(_BEYOND)]
        findings.uneven_places += far[: PLACES - len(findings.uneven_places)]


def _advice(findings: PairFindings) -> list[str]:
    advice = []
    if findings.total < 20:
        advice.append(f"{findings.total} pairs: nothing can be held out of fewer than 20.")
    few = [name for name, count in findings.pairs.items() if count < 2]
    if few:
        advice.append(f"{', '.join(few)}: with one pair, there is no other sentence to serve as a wrong translation.")
    if findings.duplicates > 0.01 * findings.total:
        advice.append(f"{findings.duplicates / findings.total:.1%} of the pairs are exact repeats: remove them.")
    if findings.untranslated > 0.01 * findings.total:
        advice.append(f"{findings.untranslated / findings.total:.1%} of the pairs were not translated: remove them.")
    if findings.uneven > 0.05 * findings.total:
        advice.append(
            f"{findings.uneven / findings.total:.0%} of the pairs have very unequal lengths: see the places above; the lines may "
            "be misaligned."
        )
    for language, shares in findings.scripts.items():
        mixed = [name for name, share in shares.items() if share >= 0.05]
        if len(mixed) > 1:
            advice.append(f"{language}: several scripts are mixed ({', '.join(mixed)}): are all lines in the right column?")
    return advice
