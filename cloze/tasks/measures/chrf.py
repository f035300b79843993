"""chrF: how many n-grams of characters two texts share. It needs no words, and so measures Chinese as it does English."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
ORDERS, BETA = 6, 2.0


def ngrams(text: str, n: int) -> Counter[str]:
    """The n-grams of a text's characters, white space left out."""
    plain = "".join(text.split())
    return Counter(plain[i : i + n] for i in range(len(plain) - n + 1))


def chrf_counts(written: str, references: Sequence[str]) -> Counts:
    """(6, 3): for n from 1 to 6 the n-grams of what was written, those of the reference and those that both have, each as often
    as the rarer has it; of several references the one with the best score."""
    written_ngrams = [ngrams(written, n) for n in range(1, ORDERS + 1)]
    counts = []
    for reference in references:
        reference_ngrams = [ngrams(reference, n) for n in range(1, ORDERS + 1)]
        counts.append(np.array([
            (grams.total() if other else 0, other.total(), (grams & other).total())
            for grams, other in zip(written_ngrams, reference_ngrams, strict=True)
        ], np.int64))  # fmt: skip
    return max(counts, key=chrf_of)


def chrf_of(counts: Counts) -> float:
    """The F score, with recall twice as important, of the mean precision and the mean recall over the n that both texts have.

    Popović, "chrF: character n-gram F-score for automatic MT evaluation", 2015, §3; over a corpus the counts of all texts are
    added first, as in mjpost/sacrebleu (metrics/chrf.py), whose score is this one times 100.
    """
    written, reference, both = counts[(counts[:, 0] > 0) & (counts[:, 1] > 0)].T
    if not both.any():
        return 0.0
    precision, recall = float((both / written).mean()), float((both / reference).mean())
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def chrf(written: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """chrF of a corpus: texts, and the references of each."""
    return chrf_of(np.sum([chrf_counts(ours, references) for ours, references in zip(written, wanted, strict=True)], axis=0))
