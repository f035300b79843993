"""Checks triples without building anything: repeats, facts shared with the training set, ids that it lacks, reversed facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cloze.corpus.checks.check_text import PLACES
from cloze.corpus.stores.graph import Graph, contains
from cloze.knowledge.triple_files import read_graph, read_triples
from cloze.knowledge.triples import described

Fact = tuple[str, str, str]


@dataclass
class TripleFindings:
    """What a check of triples found: numbers, and advice in words."""

    graph: Graph
    repeats: int = 0
    repeat_places: list[str] = field(default_factory=list)
    loops: int = 0
    shared: int = 0
    shared_places: list[str] = field(default_factory=list)
    unknown: int = 0
    unknown_places: list[str] = field(default_factory=list)
    against: int = 0
    advice: list[str] = field(default_factory=list)

    @property
    def unusable(self) -> bool:
        """Whether facts are shared with the training set."""
        return bool(self.shared)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        graph = self.graph
        return {
            "triples": len(graph), "entities": len(graph.entities), "relations": len(graph.relations), "loops": self.loops,
            "repeats": {"count": self.repeats, "places": self.repeat_places},
            "shared": {"count": self.shared, "places": self.shared_places},
            "unknown": {"count": self.unknown, "places": self.unknown_places}, "advice": self.advice,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """For a person."""
        graph = self.graph
        lines = [f"{read['path']}: {read['said']}" for read in graph.report.get("files", ()) if read["said"]]
        lines.append(described(graph))
        degree = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=len(graph.entities))
        lines.append(
            f"triples per entity: median {np.median(degree):.0f}, mean {degree.mean():.1f}, most {degree.max():,}; "
            f"entities in one triple: {int((degree == 1).sum()):,}, in none: {int((degree == 0).sum()):,}"
        )
        for what, count, places in (
            ("repeat an earlier one", self.repeats, self.repeat_places),
            ("have the same head and tail", self.loops, []),
            *((("are in the training set, too", self.shared, self.shared_places),
               ("have an id that the training set lacks", self.unknown, self.unknown_places)) if self.against else ()),
        ):  # fmt: skip
            lines.append(f"{count:,} {what}")
            lines += [f"  {location}" for location in places]
        return lines + [f"advice: {text}" for text in self.advice] + ([] if self.advice else ["no problems found"])


def check_triples(
    paths: Sequence[str | Path], *, against: Sequence[str | Path] = (), columns: Sequence[str] | None = None,
    entities: str | Path | None = None, relations: str | Path | None = None,
) -> TripleFindings:
    """Read triples, or a graph's folder, and report anomalies; `against` is the training set, files or graphs.

    Raises `CorpusError` with file and line for whatever cannot be read, as a build would.
    """
    findings = TripleFindings(read_graph(paths, columns=columns, entities=entities, relations=relations))
    findings.loops = int((findings.graph.triples[:, 0] == findings.graph.triples[:, 2]).sum())
    trained, ids = _of_training(against, columns)
    findings.against = len(trained)
    seen: dict[Fact, str] = {}
    for path in paths:
        for location, fact in _facts(path, columns):
            _look(findings, fact, location, seen, trained, ids)
    findings.advice = _advice(findings)
    return findings


def _of_training(against: Sequence[str | Path], columns: Sequence[str] | None) -> tuple[dict[Fact, str], set[str]]:
    trained: dict[Fact, str] = {}
    ids: set[str] = set()
    for path in against:
        for location, fact in _facts(path, columns):
            trained.setdefault(fact, location)
            ids.update((fact[0], fact[2]))
    return trained, ids


def _facts(path: str | Path, columns: Sequence[str] | None) -> Iterator[tuple[str, Fact]]:
    """The facts of a file, each with its line, or of a graph, each with its number."""
    if not Graph.is_graph(path):
        yield from ((f"{path}:{line}", fact) for line, fact in read_triples(path, columns))
        return
    graph = Graph.open(path)
    for number, (head, relation, tail) in enumerate(graph.triples.tolist(), start=1):
        yield f"{path}, triple {number}", (graph.entities[head], graph.relations[relation], graph.entities[tail])


def _look(
    findings: TripleFindings, fact: Fact, location: str, seen: dict[Fact, str], trained: dict[Fact, str], ids: set[str]
) -> None:
    if fact in seen:
        findings.repeats += 1
        _note(findings.repeat_places, f"{location} repeats {seen[fact]}")
    seen.setdefault(fact, location)
    if fact in trained:
        findings.shared += 1
        _note(findings.shared_places, f"{location} is {trained[fact]}")
    lacking = [name for name in (fact[0], fact[2]) if ids and name not in ids]
    if lacking:
        findings.unknown += 1
        _note(findings.unknown_places, f"{location}: {lacking[0]}")


def _note(places: list[str], location: str) -> None:
    if len(places) < PLACES:
        places.append(location)


def _advice(findings: TripleFindings) -> list[str]:
    advice = []
    if findings.shared:
        advice.append("triples of the training set inflate every score: remove them from this file.")
    if findings.unknown:
        advice.append("entities that were never trained have random vectors; only models that read their texts can rank them.")
    reversed_ = _reversed(findings.graph)
    if reversed_ > 0.05:
        advice.append(
            f"{reversed_:.0%} of the triples have a reverse: another triple leads from their tail to their head. If a test set "
            "is drawn at random, the training set holds the reverse of many of its triples."
        )
    return advice


def _reversed(graph: Graph) -> float:
    """The share of triples whose tail and head are head and tail of another triple."""
    pairs = graph.triples[:, [0, 2]].astype(np.uint64)
    entities = np.uint64(max(len(graph.entities), 1))
    straight, back = pairs[:, 0] * entities + pairs[:, 1], pairs[:, 1] * entities + pairs[:, 0]
    mask = contains(np.unique(straight), back) & (pairs[:, 0] != pairs[:, 1])
    return float(mask.mean()) if len(mask) else 0.0
