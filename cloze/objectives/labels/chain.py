"""Linear chains: the sum over all label sequences, the best of them and their marginals (Lafferty et al., 2001).

A batch of N chains has label scores (N, T, K) of which the first `sizes` (N,) count. A sequence scores the sum of its labels'
scores, of the `moves` (K, K) from each label to the next, and of `start` (K,) and `end` (K,) at its ends.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: The score of a move that is not allowed: far below any score of a network, but finite.
FORBIDDEN = -1e4


class Moves(NamedTuple):
    """The scores between labels: of the first one (K,), of the last one (K,), and from one to the next (K, K)."""

    start: Tensor
    end: Tensor
    between: Tensor


class Chains(NamedTuple):
    """Rows of different chains, laid out as (N, T, …): `chain` and `place` (M,) say where each goes; `sizes` (N,)."""

    chain: Tensor
    place: Tensor
    sizes: Tensor

    def laid(self, rows: Tensor) -> Tensor:
        """Rows (M, …) as (N, T, …), zeros after the end of each chain."""
        shape = (len(self.sizes), int(self.sizes.max()), *rows.shape[1:])
        return rows.new_zeros(shape).index_put((self.chain, self.place), rows)


def chains_of(owner: Tensor) -> Chains:
    """The chains of rows that belong to `owner` (M,): rows of one owner follow one another in their order. M is above 0."""
    _, chain, sizes = torch.unique(owner, return_inverse=True, return_counts=True)
    order = torch.argsort(chain, stable=True)
    offset = torch.empty_like(order)
    begins = torch.cumsum(sizes, 0) - sizes  # (N,): the first of each chain's rows in `order` (M,)
    offset[order] = torch.arange(len(owner), device=owner.device) - begins[chain[order]]
    return Chains(chain, offset, sizes)


def log_total(scores: Tensor, sizes: Tensor, moves: Moves) -> Tensor:
    """(N,): the logarithm of the sum over all sequences of the exponential of their scores."""
    # alpha (N, K): the same sum over the sequences up to this step that end with each label.
    alpha = scores[:, 0] + moves.start
    for step in range(1, scores.shape[1]):
        # (N, K before, K now), summed over the label before: (N, K).
        longer = torch.logsumexp(alpha[:, :, None] + moves.between, 1) + scores[:, step]
        alpha = torch.where((step < sizes)[:, None], longer, alpha)
    return torch.logsumexp(alpha + moves.end, 1)


def path_score(scores: Tensor, sizes: Tensor, moves: Moves, labels: Tensor) -> Tensor:
    """(N,): the score of one sequence of labels (N, T) per chain."""
    inside = torch.arange(scores.shape[1], device=scores.device) < sizes[:, None]
    emissions = scores.gather(2, labels[:, :, None]).squeeze(2)
    steps = moves.between[labels[:, :-1], labels[:, 1:]]
    last = labels.gather(1, sizes[:, None] - 1).squeeze(1)
    total = torch.where(inside, emissions, 0.0).sum(1) + torch.where(inside[:, 1:], steps, 0.0).sum(1)
    return total + moves.start[labels[:, 0]] + moves.end[last]


def best_path(scores: Tensor, sizes: Tensor, moves: Moves) -> Tensor:
    """(N, T): the sequence with the highest score (Viterbi), among equals the one with the lower labels at its end; 0 after
    its end."""
    best = scores[:, 0] + moves.start  # (N, K): of the sequences that end with each label
    back = []  # for each step after the first, (N, K): the label before in the best such sequence
    for step in range(1, scores.shape[1]):
        reached, came = (best[:, :, None] + moves.between).max(1)  # over the label before: (N, K) both
        running = (step < sizes)[:, None]
        best = torch.where(running, reached + scores[:, step], best)
        back.append(torch.where(running, came, torch.arange(scores.shape[2], device=scores.device)))
    label = (best + moves.end).argmax(1)  # (N,)
    path = [label]
    for came in reversed(back):  # after a chain's end every label came from itself
        label = came.gather(1, label[:, None]).squeeze(1)
        path.append(label)
    labels = torch.stack(path[::-1], 1)
    return torch.where(torch.arange(labels.shape[1], device=labels.device) < sizes[:, None], labels, 0)


def marginals(scores: Tensor, sizes: Tensor, moves: Moves) -> Tensor:
    """(N, T, K): the marginal probability of each label at each position; 0 after a chain's end.

    They are the gradient of `log_total` by the scores.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        total = log_total(leaf, sizes.clone(), Moves(*(part.detach().clone() for part in moves)))
        probabilities: Tensor = torch.autograd.grad(total.sum(), leaf)[0]
    return probabilities
