"""Link prediction: at which rank the right entity stands if the head or the tail of a fact is asked for. Relation prediction: at
which rank the right relation stands between two entities.

Every candidate that makes another known fact is left out (the filtered setting; Bordes et al., 2013, §4.1). Of candidates with
equal scores, the right one stands in the middle, so a model that scores everything alike gains nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze import rng
from cloze.errors import CheckpointError, RunError, TaskError, counted
from cloze.knowledge.triple_files import read_triples
from cloze.networks.static.graph_vectors import GraphVectors
from cloze.tasks.task import Evaluation, Report, silent

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

HITS = (1, 3, 10)
Column = Literal[0, 1, 2]  # of a triple: head, relation, tail
Asked = tuple[tuple[str, Column], ...]
TASKS: Mapping[str, Asked] = MappingProxyType({
    "link_prediction": (("head", 0), ("tail", 2)), "relation_prediction": (("relation", 1),),
})
SIDES = TASKS["link_prediction"]
_SCORES = 1 << 24  # scores held at a time


class LinkScorer(ABC):
    """A model that scores triples. `entities` and `relations` are the ids that it knows, by their numbers.

    `default_candidates` is how many random entities are ranked unless the user says otherwise; None: all. `at_once` bounds the
    scores that it is asked for together. `columns` are those of a triple that it can be asked for. It `decides` if a score above
    0 means that the triple is a fact.
    """

    default_candidates: ClassVar[int | None] = None
    at_once: ClassVar[int] = _SCORES
    columns: ClassVar[frozenset[Column]] = frozenset({0, 1, 2})
    decides: ClassVar[bool] = False
    entities: Sequence[str]
    relations: Sequence[str]

    def names(self, column: Column) -> Sequence[str]:
        """What may stand in a column: the relations, or the entities."""
        return self.relations if column == 1 else self.entities

    @abstractmethod
    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """The scores of triples (B, 3) with something else in a column: `candidates` (B, C), or None: everything that may stand
        there, in order. The higher, the more plausible. (B, C)"""


class Translations(LinkScorer):
    """Scores triples by vectors: minus the distance between h + r and t in a `norm`. `vectors` (E, D) are those of entities,
    `steps` (R, D) those of relations."""

    vectors: Tensor
    steps: Tensor
    norm: float

    @torch.no_grad()
    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """Minus the distances, (B, C)."""
        targets = self.targets(torch.from_numpy(triples).to(self.vectors.device), column)
        table = self.steps if column == 1 else self.vectors
        if candidates is None:
            return -torch.cdist(targets, table, p=self.norm, compute_mode="donot_use_mm_for_euclid_dist")
        rows = table[torch.from_numpy(candidates).to(table.device)]
        return -torch.linalg.vector_norm(targets[:, None] - rows, ord=self.norm, dim=2)

    def targets(self, triples: Tensor, column: Column) -> Tensor:
        """The vector that would be at distance 0 in a column of triples (B, 3), (B, D)."""
        head, step, tail = self.vectors[triples[:, 0]], self.steps[triples[:, 1]], self.vectors[triples[:, 2]]
        return (tail - step, tail - head, head + step)[column]


class VectorScorer(Translations):
    """Scores triples by the vectors of a graph."""

    def __init__(self, network: GraphVectors, spellings: Sequence[str]) -> None:
        first = int(network.first_relation)
        self.entities = tuple(spellings[1:first])
        self.relations = tuple(name.removeprefix("relation:") for name in spellings[first:])
        self.norm, table = float(network.norm), network.vectors()
        self.vectors, self.steps = table[1:first], table[first:]


def scorer_of(loaded: Any) -> LinkScorer:
    """The scorer of an opened checkpoint with vectors of entities. Raises a `CheckpointError` if it scores no
    triples."""
    if isinstance(loaded.network, GraphVectors):
        return VectorScorer(loaded.network, loaded.tokenizer.spellings)
    raise CheckpointError(
        f"{loaded.folder}: {loaded.imported.model.part} scores no triples; link prediction needs a model of a graph.\n"
        "  Train one: cloze pretrain transe --corpus GRAPH --out KG"
    )


@dataclass(frozen=True)
class LinkQuestions:
    """The facts of a file that is evaluated, as numbers (N, 3), and the known facts (K, 3), these included; `unknown` is how many
    facts have an id that the model lacks, `remarks` are about them."""

    facts: Int64
    known: Int64
    unknown: int
    remarks: tuple[str, ...]


def read_questions(scorer: LinkScorer, path: str | Path, known_files: Sequence[str | Path]) -> LinkQuestions:
    """The facts of a file and the known ones. Raises `TaskError`, with file and line, for a fact that a file of known facts has,
    too: a model that has seen its answers in training would be praised for remembering them."""
    entity = {name: number for number, name in enumerate(scorer.entities)}
    relation = {name: number for number, name in enumerate(scorer.relations)}
    places: dict[tuple[int, int, int], str] = {}
    for file in known_files:
        if Path(file).resolve() == Path(path).resolve():
            continue
        for line, (head, name, tail) in read_triples(file):
            if head in entity and name in relation and tail in entity:
                places.setdefault((entity[head], relation[name], entity[tail]), f"{file}:{line}")
    fact_numbers: dict[tuple[int, int, int], None] = {}
    unknown, first, total = 0, "", 0
    for line, fact in read_triples(path):
        total += 1
        head, name, tail = fact
        lacking = next((part for part, of in ((head, entity), (name, relation), (tail, entity)) if part not in of), None)
        if lacking is not None:
            unknown += 1
            first = first or f"{path}:{line}: {lacking!r}"
            continue
        numbers = entity[head], relation[name], entity[tail]
        if numbers in places:
            raise TaskError(
                f"{path}:{line}: the fact is known already: {places[numbers]}. A known fact is no test.\n"
                f"  Find all such lines, and remove them: cloze corpus check {path} --format triples --against KNOWN"
            )
        fact_numbers[numbers] = None
    if not fact_numbers:
        examples = ", ".join(map(repr, scorer.entities[:2]))
        raise TaskError(
            f"{path}: no fact whose ids the model knows{f' (first: {first})' if first else ''}.\n"
            f"  Give facts with the ids that it was trained on, such as {examples}."
        )
    remarks = [
        f"{unknown:,} of {counted(total, 'triple')} have an id that was never trained and are left out (first: {first}); "
        "--unknown zero counts them as last"
    ] if unknown else []  # fmt: skip
    facts = np.array(list(fact_numbers), np.int64)
    seen = np.array(list(places), np.int64).reshape(-1, 3)
    return LinkQuestions(facts, np.concatenate([seen, facts]), unknown, tuple(remarks))


class KnownAnswers:
    """What makes a known fact in one column, by what stands in the others; `width` is above all numbers."""

    def __init__(self, known_facts: Int64, column: Column, width: int) -> None:
        self.width, self.column = width, column
        key = self._key(known_facts)
        order = np.argsort(key, kind="stable")
        self.keys, self.answers = key[order], known_facts[order, column]

    def _key(self, triples: Int64) -> Int64:
        first, second = (triples[:, column] for column in range(3) if column != self.column)
        return np.asarray(first * self.width + second)

    def of(self, triples: Int64) -> tuple[Int64, Int64]:
        """Which row (M,) of some triples has which known answer (M,)."""
        key = self._key(triples)
        start, stop = np.searchsorted(self.keys, key, "left"), np.searchsorted(self.keys, key, "right")
        row = np.repeat(np.arange(len(key)), stop - start)
        index = np.arange(len(row)) - np.repeat(np.cumsum(stop - start) - (stop - start), stop - start) + start[row]
        return row, self.answers[index]


def rank(scores: Tensor, right: Tensor) -> Floats:
    """The rank of the right one of some candidates (B, C) with these scores, -inf for those left out; ties count by half."""
    right_scores = scores.gather(1, right[:, None])
    better, equal = (scores > right_scores).sum(1), (scores == right_scores).sum(1)
    positions: Floats = (better + (equal + 1) / 2).double().cpu().numpy()
    return positions


@torch.no_grad()
def ranks(
    scorer: LinkScorer, questions: LinkQuestions, column: Column, *, candidates: int | None, seed: int = 0,
    report: Report = silent,
) -> tuple[Floats, Int64]:
    """The filtered rank of what is right in a column of every fact, and the number of candidates that are ranked, (N,) each.

    `candidates`: so many wrong ones, drawn for each fact by `seed` from those that make no known fact; None: all.
    """
    answers = KnownAnswers(questions.known, column, max(len(scorer.entities), len(scorer.relations)))
    size = len(scorer.names(column))
    step = max(1, scorer.at_once // (size if candidates is None else candidates + 1))
    rank_parts, numbers = [], []
    for low in range(0, len(questions.facts), step):
        facts = questions.facts[low : low + step]
        row, entity = answers.of(facts)
        right = facts[:, column]
        chosen = None if candidates is None else _drawn(row, entity, right, size, candidates, seed, low, column)
        scores = scorer.scores(facts, column, chosen).float()
        if not bool(torch.isfinite(scores).all()):
            raise RunError("link prediction: a score is not a finite number, so nothing can be ranked. Did the training diverge?")
        if chosen is None:
            other = entity != right[row]
            scores[torch.from_numpy(row[other]), torch.from_numpy(entity[other])] = -torch.inf
        target = torch.from_numpy(right if chosen is None else np.zeros_like(right)).to(scores.device)
        rank_parts.append(rank(scores, target))
        numbers.append(torch.isfinite(scores).sum(1).cpu().numpy())
        report(len(facts))
    return np.concatenate(rank_parts), np.concatenate(numbers).astype(np.int64)


def _drawn(
    row: Int64, known_facts: Int64, right: Int64, size: int, count: int, seed: int, first: int, column: Column
) -> Int64:
    """What is right for each fact (B,) and `count` different others that make no known fact, (B, 1 + count)."""
    candidates = np.empty((len(right), 1 + count), np.int64)
    candidates[:, 0] = right
    bounds = np.searchsorted(row, np.arange(len(right) + 1))
    for number in range(len(right)):
        left = np.ones(size, np.bool_)
        left[known_facts[bounds[number] : bounds[number + 1]]] = False
        free = np.flatnonzero(left)
        if len(free) < count:
            raise TaskError(
                f"--candidates {count}: only {len(free):,} {_kind(column)} make no known fact with the rest of some triple. "
                "Give fewer, or all."
            )
        candidates[number, 1:] = free[rng.permutation(len(free), seed, "candidates", column, first + number)[:count]]
    return candidates


def evaluate_links(
    scorer: LinkScorer, questions: LinkQuestions, *, sides: Asked = SIDES, candidates: int | None = None, last: bool = False,
    seed: int = 0, report: Report = silent,
) -> Evaluation:
    """Mean rank, mean reciprocal rank and hits over all columns that are asked for of every fact, and of each; as a baseline
    those of a model that scores everything alike. With `last`, facts with unknown ids count as the last of all."""
    by_side: dict[str, tuple[Floats, Floats]] = {}
    for name, column in sides:
        fact_ranks, numbers = ranks(scorer, questions, column, candidates=candidates, seed=seed, report=report)
        if last and questions.unknown:
            among = len(scorer.names(column))
            worst = float(among if candidates is None else min(among, 1 + candidates))
            fact_ranks = np.append(fact_ranks, np.full(questions.unknown, worst))
            numbers = np.append(numbers, np.full(questions.unknown, int(worst)))
        by_side[name] = fact_ranks, (numbers + 1) / 2
    every, alike = (np.concatenate([side[k] for side in by_side.values()]) for k in (0, 1))
    rows: list[Mapping[str, Any]] = [{"side": name, **measures(side_ranks)} for name, (side_ranks, _) in by_side.items()]
    remarks = [] if last else list(questions.remarks)
    if candidates is not None:
        side = sides[0][1]
        remarks.append(
            f"ranked among {candidates} random {_kind(side)}: not comparable with ranks among all {len(scorer.names(side)):,}"
        )
    return Evaluation(
        examples=len(every) // len(sides), metrics=measures(every), baseline={"always": "the same score", **measures(alike)},
        remarks=tuple(remarks), by_class=rows,
    )


def _kind(column: Column) -> str:
    return "relations" if column == 1 else "entities"


def measures(ranks: Floats) -> dict[str, float]:
    """The measures of some ranks."""
    hits = {f"hits@{n}": float((ranks <= n).mean()) for n in HITS}
    return {"mean_rank": float(ranks.mean()), "mrr": float((1 / ranks).mean()), **hits}
