"""BM25: how well passages match queries by their words alone (Robertson et al., 1995, "Okapi at TREC-3")."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.tasks.linear.cutting import Cutter

K1, B = 0.9, 0.4  # the defaults of Anserini


def bm25(queries: Sequence[str], passages: Sequence[str]) -> NDArray[np.float64]:
    """The score of each passage for the query next to it, (N,). How rare a term is follows from the different passages.

    Terms are words in lower case, in scripts without spaces n-grams of characters. The weight of a term is that of Lucene, which
    is never negative.
    """
    cutter = Cutter.of(passages)

    def terms(text: str) -> Counter[str]:
        return Counter(term for term in cutter.words(text) or cutter.characters(text) if " " not in term)

    counts = {passage: terms(passage) for passage in dict.fromkeys(passages)}
    lengths = {passage: sum(bag.values()) for passage, bag in counts.items()}
    mean = max(sum(lengths.values()) / max(len(lengths), 1), 1e-9)
    frequency = Counter(term for bag in counts.values() for term in bag)
    wanted = {query: terms(query) for query in dict.fromkeys(queries)}
    scores = []
    for query, passage in zip(queries, passages, strict=True):
        bag, norm = counts[passage], K1 * (1 - B + B * lengths[passage] / mean)
        scores.append(math.fsum(
            times * math.log1p((len(counts) - frequency[term] + 0.5) / (frequency[term] + 0.5)) * bag[term] / (bag[term] + norm)
            for term, times in wanted[query].items() if term in bag
        ))
    return np.array(scores, np.float64)
