"""How well coreference chains agree with the right ones: MUC, B³, CEAF, LEA, and the mean that CoNLL-2012 ranks by.

Every metric is an F1 of two ratios, and sums numerators and denominators over documents before it divides, as the scorer of
CoNLL-2012 does (Pradhan et al., 2014; conll/reference-coreference-scorers, version 8.01).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mention = tuple[int, int]
Chains = Sequence[Sequence[Mention]]  # no mention twice
Floats = NDArray[np.float64]
#: The metrics that chains are counted for. `ceaf_m` weighs mentions (φ3), `ceaf_e` chains (φ4).
RATIOS = ("muc", "b_cubed", "ceaf_e", "ceaf_m", "lea", "mentions")
AVERAGED = RATIOS[:3]  # by CoNLL-2012


def count_agreement(truth: Chains, guess: Chains) -> Floats:
    """(6, 4): for each of `RATIOS`, numerator and denominator of recall, then of precision, of one document."""
    of_truth, of_guess = _chain_of(truth), _chain_of(guess)
    shared = Counter((chain, of_guess[mention]) for mention, chain in of_truth.items() if mention in of_guess)
    sizes, guess_sizes = [len(chain) for chain in truth], [len(chain) for chain in guess]
    turned = {(j, i): count for (i, j), count in shared.items()}
    mentions, guess_mentions = float(len(of_truth)), float(len(of_guess))
    by_chain, by_mention = _aligned(shared, sizes, guess_sizes)
    hits = float(sum(shared.values()))
    return np.array([
        [*_muc(shared, sizes), *_muc(turned, guess_sizes)],
        [_b_cubed(shared, sizes), mentions, _b_cubed(turned, guess_sizes), guess_mentions],
        [by_chain, len(sizes), by_chain, len(guess_sizes)],
        [by_mention, mentions, by_mention, guess_mentions],
        [_lea(shared, sizes, guess_sizes), mentions, _lea(turned, guess_sizes, sizes), guess_mentions],
        [hits, mentions, hits, guess_mentions],
    ], np.float64)  # fmt: skip


def compute_metrics(counts: Floats) -> dict[str, float]:
    """`conll`, the mean of MUC, B³ and CEAF over chains, then the F1 of each of `RATIOS`, from counts (N, 6, 4) of documents."""
    f1 = {name: row["f1"] for name, row in rows_by_metric(counts).items()}
    return {"conll": sum(f1[name] for name in AVERAGED) / len(AVERAGED), **f1}


def rows_by_metric(counts: Floats) -> dict[str, dict[str, Any]]:
    """Recall, precision and F1 of each metric; a ratio of nothing is 0."""
    total = np.asarray(counts, np.float64).reshape(-1, len(RATIOS), 4).sum(0)
    rows = {}
    for name, (found, of, correct, claimed) in zip(RATIOS, total.tolist(), strict=True):
        recall, precision = found / of if of else 0.0, correct / claimed if claimed else 0.0
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        rows[name] = {"recall": recall, "precision": precision, "f1": f1}
    return rows


def _chain_of(chains: Chains) -> dict[Mention, int]:
    return {(mention[0], mention[1]): number for number, chain in enumerate(chains) for mention in chain}


def _muc(shared: Mapping[tuple[int, int], int], sizes: Sequence[int]) -> tuple[float, float]:
    """Links of each chain that the other chains keep (Vilain et al., 1995): its size less the parts that they cut it into, where
    a mention that they lack is a part of its own."""
    parts = list(sizes)
    for (chain, _), count in shared.items():
        parts[chain] -= count - 1
    return float(sum(sizes) - sum(parts)), float(sum(sizes) - len(sizes))


def _b_cubed(shared: Mapping[tuple[int, int], int], sizes: Sequence[int]) -> float:
    """The sum over mentions of the share of its chain that is in one chain with it (Bagga and Baldwin, 1998)."""
    return sum(count * count / sizes[chain] for (chain, _), count in shared.items())


def _lea(shared: Mapping[tuple[int, int], int], sizes: Sequence[int], other_sizes: Sequence[int]) -> float:
    """The sum over chains of their size times the share of their links that the other chains have (Moosavi and Strube, 2016). The
    link of a chain of one mention is to itself."""
    total = 0.0
    for (chain, other), count in shared.items():
        size = sizes[chain]
        total += count * (count - 1) / (size - 1) if size > 1 else float(other_sizes[other] == 1)
    return total


def _aligned(shared: Mapping[tuple[int, int], int], sizes: Sequence[int], other_sizes: Sequence[int]) -> tuple[float, float]:
    """The similarity of chains in the best assignment of one to one (Luo, 2005): by φ4, 2 |K ∩ R| / (|K| + |R|), and by φ3,
    |K ∩ R|. Chains that share no mention with any other change neither."""
    rows, columns = (sorted({pair[side] for pair in shared}) for side in (0, 1))
    gains = np.zeros((2, len(rows), len(columns)))
    row_of, column_of = ({chain: number for number, chain in enumerate(chains)} for chains in (rows, columns))
    for (chain, other), count in shared.items():
        gains[:, row_of[chain], column_of[other]] = 2 * count / (sizes[chain] + other_sizes[other]), count
    return best_total(gains[0]), best_total(gains[1])


def best_total(gains: Floats) -> float:
    """The highest sum of gains (R, C), of which no two are in one row or one column (Kuhn, 1955; Munkres, 1957).

    Rows are assigned one after another, by shortest augmenting paths, with potentials that keep reduced costs at 0 or more.

    >>> best_total(np.array([[3.0, 2.0], [2.0, 0.0]]))
    4.0
    """
    cost = -(gains if gains.shape[0] <= gains.shape[1] else gains.T)
    rows, columns = cost.shape
    of_rows, of_columns = np.zeros(rows + 1), np.zeros(columns + 1)  # potentials; row 0 and column 0 stand for none
    row_at = np.zeros(columns + 1, np.int64)  # the row that each column is assigned to
    for row in range(1, rows + 1):
        row_at[0], column = row, 0
        least, before = np.full(columns + 1, np.inf), np.zeros(columns + 1, np.int64)
        reached = np.zeros(columns + 1, bool)
        while row_at[column]:
            reached[column] = True
            reduced = cost[row_at[column] - 1] - of_rows[row_at[column]] - of_columns[1:]
            shorter = np.flatnonzero(~reached[1:] & (reduced < least[1:])) + 1
            least[shorter], before[shorter] = reduced[shorter - 1], column
            column = int(np.where(reached, np.inf, least)[1:].argmin()) + 1
            step = least[column]
            of_rows[row_at[reached]] += step
            of_columns[reached] -= step
            least[~reached] -= step
        while column:
            row_at[column] = row_at[before[column]]
            column = int(before[column])
    assigned = np.flatnonzero(row_at[1:])
    return float(-cost[row_at[1:][assigned] - 1, assigned].sum())
