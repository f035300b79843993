"""Triple classification: whether a triple is a fact (Socher et al., 2013, §4.2), on files of labelled triples.

A network that reads triples as text says so itself (KG-BERT). Where plausibility is a distance, a triple is a fact if its score
reaches the threshold of its relation, which is chosen on other labelled triples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, counted
from cloze.knowledge.triple_files import read_labelled_triples
from cloze.tasks.intrinsic.link_prediction import Floats, Int64, LinkScorer
from cloze.tasks.task import Evaluation, Report, silent


@dataclass(frozen=True)
class LabelledTriples:
    """Triples as numbers (N, 3), and which of them are facts (N,); `remarks` are about triples that are left out."""

    triples: Int64
    facts: NDArray[np.bool_]
    remarks: tuple[str, ...]


def read_labelled(scorer: LinkScorer, path: str | Path) -> LabelledTriples:
    """The labelled triples of a file whose ids the scorer knows. None at all is a `TaskError`."""
    entity = {name: number for number, name in enumerate(scorer.entities)}
    relation = {name: number for number, name in enumerate(scorer.relations)}
    triples, facts, unknown = [], [], list[str]()
    for line, (head, name, tail), fact in read_labelled_triples(path):
        lacking = next((part for part, of in ((head, entity), (name, relation), (tail, entity)) if part not in of), None)
        if lacking is None:
            triples.append((entity[head], relation[name], entity[tail]))
            facts.append(fact)
        else:
            unknown.append(f"{path}:{line}: {lacking!r}")
    if not triples:
        examples = ", ".join(map(repr, scorer.entities[:2]))
        raise TaskError(f"{path}: no triple whose ids the model knows (first: {unknown[0]}).\n  Give ids such as {examples}.")
    total = len(triples) + len(unknown)
    remark = f"{len(unknown):,} of {counted(total, 'triple')} have an unknown id and are left out (first: {''.join(unknown[:1])})"
    return LabelledTriples(np.array(triples, np.int64), np.array(facts, np.bool_), (remark,) if unknown else ())


def plausibilities(scorer: LinkScorer, triples: Int64, report: Report = silent) -> Floats:
    """The scores of triples (N, 3), (N,)."""
    step = min(scorer.at_once, 1024)
    parts = []
    for low in range(0, len(triples), step):
        batch = triples[low : low + step]
        parts.append(scorer.scores(batch, 2, batch[:, 2:]).double().cpu().numpy()[:, 0])
        report(len(batch))
    return np.concatenate(parts)


def best_threshold(scores: Floats, facts: NDArray[np.bool_]) -> float:
    """The threshold that most triples are on the right side of: facts reach it, others do not. In the middle between two scores,
    the highest of equally good ones.

    >>> best_threshold(np.array([0.9, 0.4, 0.2]), np.array([True, True, False]))
    0.30000000000000004
    """
    order = np.argsort(-scores, kind="stable")
    scores, facts = scores[order], facts[order]
    right = np.concatenate([[0], np.cumsum(facts)]) + np.concatenate([np.cumsum(~facts[::-1])[::-1], [0]])
    right[1:-1][scores[1:] == scores[:-1]] = -1  # equal scores are on the same side
    count = int(right.argmax())
    if count in (0, len(scores)):
        return float("inf") if count == 0 else float("-inf")
    return float((scores[count - 1] + scores[count]) / 2)


def classify_triples(
    scorer: LinkScorer, labelled: LabelledTriples, dev: LabelledTriples | None, *, report: Report = silent
) -> Evaluation:
    """The share of triples that are classified correctly, of all and by relation. A scorer that `decides` takes a score above 0
    for a fact, any other one the threshold of its relation in `dev`, or that of all of `dev` for a relation that it lacks."""
    scores = plausibilities(scorer, labelled.triples, report)
    relations, remarks = labelled.triples[:, 1], labelled.remarks
    if scorer.decides:
        predicted = scores > 0
    else:
        assert dev is not None
        dev_scores, remarks = plausibilities(scorer, dev.triples), (*remarks, *dev.remarks)
        thresholds = np.full(len(scorer.relations), best_threshold(dev_scores, dev.facts))
        for relation in np.unique(dev.triples[:, 1]):
            of_relation = dev.triples[:, 1] == relation
            thresholds[relation] = best_threshold(dev_scores[of_relation], dev.facts[of_relation])
        predicted = scores >= thresholds[relations]
    right = predicted == labelled.facts
    rows: list[Mapping[str, Any]] = [
        {"relation": scorer.relations[relation], "accuracy": float(right[relations == relation].mean()),
         "examples": int((relations == relation).sum())}
        for relation in np.unique(relations)
    ]  # fmt: skip
    share = float(labelled.facts.mean())
    return Evaluation(
        examples=len(right), metrics={"accuracy": float(right.mean())},
        baseline={"always": "a fact" if share >= 0.5 else "no fact", "accuracy": max(share, 1 - share)},
        remarks=remarks, by_class=rows,
    )


def require_decision(scorer: LinkScorer, checkpoint: Path, dev: str | None) -> None:
    """Refuse a scorer of relations alone, and thresholds that are missing or not needed."""
    if 0 not in scorer.columns:
        raise TaskError(f"{checkpoint}: predicts the relation of two entities; it cannot say whether a triple is a fact.")
    if scorer.decides and dev is not None:
        raise TaskError(f"--thresholds {dev}: {checkpoint} says itself whether a triple is a fact. Omit the option.")
    if not scorer.decides and dev is None:
        raise TaskError(
            f"{checkpoint}: scores triples by a distance; labelled triples must set the threshold of each relation.\n"
            "  Name their file: --thresholds dev.tsv"
        )
