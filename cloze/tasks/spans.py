"""How many spans of labelled words were found: in all, and of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cloze.schemes import Repair, spans


def span_f1(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair = "begin", closed: bool = False
) -> float:
    """F1 of the spans of many texts, bounds and kind both right; 0 where there is none on either side."""
    pairs = zip(truth, guess, strict=True)
    return f1_of(span_counts(own, said, repair=repair, closed=closed) for own, said in pairs)


def span_counts(
    truth: Sequence[str], guess: Sequence[str], *, repair: Repair = "begin", closed: bool = False
) -> tuple[int, int, int]:
    """How many spans one text has, how many were found in it, and how many of these are right in bounds and kind."""
    true, guessed = (spans(labels, repair=repair, closed=closed) for labels in (truth, guess))
    return len(true), len(guessed), len(true & guessed)


def f1_of(counts: Iterable[tuple[int, int, int]]) -> float:
    """F1 of many texts by what `span_counts` says of each; 0 where there is no span on either side."""
    true, guessed, right = np.array([(0, 0, 0), *counts]).sum(0).tolist()
    return 2 * right / (true + guessed) if true + guessed else 0.0
