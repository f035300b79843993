"""Integrated gradients: how much each token of a text adds to a prediction.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks" (2017), §3: the gradient of the score by the token's vector,
averaged over the straight line from a baseline to the vector, times their difference. The attributions of all tokens sum to the
difference of the scores at both ends (completeness, §3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader, head_for

STEPS = 48  # points on the line
_ROWS = 16  # of them in a batch
MOST = 4  # predictions that are attributed


@dataclass(frozen=True)
class Attribution:
    """How much each token adds to the logarithm of the probability of a prediction: `shares` (L,), from `base` to `score`.

    `token` is the id that is predicted, `place` where.
    """

    token: int
    place: int
    shares: NDArray[np.float32]
    score: float
    base: float

    @property
    def error(self) -> float:
        """By how much the sum of the shares misses the difference of the scores."""
        return abs(float(self.shares.sum()) - (self.score - self.base))


def integrated_gradients(
    score: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, *, steps: int = STEPS
) -> tuple[Tensor, float, float]:
    """The attribution of every token (L,), and the scores of `vectors` and of `baseline`, both (L, D).

    `score` gives a number for each of several rows of vectors, (S, L, D) to (S,). The line is sampled at Gauss-Legendre points.
    """
    points, weights = np.polynomial.legendre.leggauss(steps)
    alphas = torch.from_numpy((points + 1) / 2).to(vectors)
    shares = torch.from_numpy(weights / 2).to(vectors)
    difference, total = vectors - baseline, torch.zeros_like(vectors)
    for some, own in zip(alphas.split(_ROWS), shares.split(_ROWS), strict=True):
        with torch.enable_grad():
            line = (baseline + some[:, None, None] * difference).requires_grad_()
            (gradient,) = torch.autograd.grad(score(line).sum(), line)
        total += (own[:, None, None] * gradient).sum(0)
    with torch.no_grad():
        ends = score(torch.stack([vectors, baseline]))
    return (total * difference).sum(-1), float(ends[0]), float(ends[1])


def attributions(loaded: Checkpoint, framed: Framed, *, steps: int = STEPS) -> list[Attribution]:
    """Attributions of a text's predictions: the best token at each mask; without a mask, the next token of a network that reads
    from left to right. None for a network without such a head, or whose tokens have no vectors that can be replaced.

    The baseline has the vector of [MASK], [UNK] or else zeros in place of every token of the text; the template stays.
    """
    reader = Reader.of(loaded)
    head, table = head_for(loaded, "token_prediction"), loaded.network.tables.get("tokens")
    if head is None or table is None or "vectors" not in loaded.network.takes or loaded.network.writes is not None:
        return []
    if tuple(head.reads) != ("hidden",):
        return []
    masks = np.flatnonzero(framed.ids == reader.tokenizer.roles.get("[MASK]", -1)) - reader.shift
    places = masks[masks >= 0].tolist() if reader.order == "open" else [len(framed) - 1]
    batch = reader.batch([framed])
    with torch.no_grad():
        own = table.weight[batch["tokens"][0]].float()
        role = next((reader.tokenizer.roles[name] for name in ("[MASK]", "[UNK]") if name in reader.tokenizer.roles), None)
        blank = torch.zeros_like(own[0]) if role is None else table.weight[role].float()
        inside = torch.from_numpy(framed.part >= 0).to(own.device)
        baseline = torch.where(inside[:, None], blank, own)
    return [_one(reader, head, batch, place, own, baseline, steps) for place in places[:MOST]]


def _one(
    reader: Reader, head: Any, batch: Batch, place: int, own: Tensor, baseline: Tensor, steps: int
) -> Attribution:
    def scores(vectors: Tensor) -> Tensor:
        rows, length = len(vectors), vectors.shape[1]
        repeated = {name: field.expand(rows, *field.shape[1:]) for name, field in batch.items() if field.dim() > 1}
        made = Batch({**repeated, "vectors": vectors.to(own)}, checked=True)
        positions = torch.arange(rows, device=vectors.device) * length + place
        return reader.token_scores(head, reader.states(made, {"hidden"}), made, positions).log_softmax(-1)

    with torch.no_grad():
        token = int(scores(own[None])[0].argmax())
    shares, score, base = integrated_gradients(lambda vectors: scores(vectors)[:, token], own, baseline, steps=steps)
    return Attribution(token, place, shares.detach().cpu().numpy(), score, base)

