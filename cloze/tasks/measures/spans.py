"""How many spans of labelled words were found: in all, and of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cloze.schemes import Repair, spans
from cloze.tasks.measures.class_report import ClassCounts


class SpanCounts(NamedTuple):
    """How many spans there are, how many were found, and how many of these are right in bounds and kind."""

    true: int
    found: int
    right: int


def span_counts(
    truth: Sequence[str], guess: Sequence[str], *, repair: Repair = "begin", closed: bool = False
) -> SpanCounts:
    """The spans of one text, of whatever kind."""
    true, guessed = (spans(labels, repair=repair, closed=closed) for labels in (truth, guess))
    return SpanCounts(len(true), len(guessed), len(true & guessed))


def counts_by_kind(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair = "begin", closed: bool = False
) -> tuple[list[str], ClassCounts]:
    """The kinds of spans in many texts, in alphabetical order, and how many of each there are, were found, and are right."""
    counted: dict[str, list[int]] = {}
    for gold, predicted in zip(truth, guess, strict=True):
        true, guessed = (spans(labels, repair=repair, closed=closed) for labels in (gold, predicted))
        for index, group in enumerate((true, guessed, true & guessed)):
            for *_, kind in group:
                counted.setdefault(kind, [0, 0, 0])[index] += 1
    kinds = sorted(counted)
    return kinds, ClassCounts(*np.array([counted[kind] for kind in kinds], np.int64).reshape(-1, 3).T)


def f1_of(counts: Iterable[tuple[int, int, int]]) -> float:
    """F1 of many texts by what `span_counts` says of each; 0 where there is no span on either side."""
    true, guessed, right = np.array([(0, 0, 0), *counts]).sum(0).tolist()
    return 2 * right / (true + guessed) if true + guessed else 0.0
