"""Integrated gradients: how much each token of a text adds to a prediction.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks" (2017), §3: the gradient of the score by the token's vector,
averaged over the straight line from a baseline to the vector, times their difference. The attributions of all tokens sum to the
difference of the scores at both ends (completeness, §3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader, head_of_kind
from cloze.probes.pieces import shown
from cloze.tasks.texts import head_of_task
from cloze.tasks.tuned_folder import has_own_task, read_task_json

Scores = Callable[[Tensor], Tensor]

STEPS = 48  # points on the line
_ROWS = 16  # of them in a batch
_CLASSIFIED = ("sentence_classification", "pair_classification")
MOST = 4  # predictions that are attributed


@dataclass(frozen=True)
class Attribution:
    """How much each token adds to the logarithm of the probability of a prediction: `shares` (L,), from `base` to `score`.

    `what` is the token or the label that is predicted, `place` where; None for the text as a whole.
    """

    what: str
    place: int | None
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
    for alpha, share in zip(alphas.split(_ROWS), shares.split(_ROWS), strict=True):
        with torch.enable_grad():
            line = (baseline + alpha[:, None, None] * difference).requires_grad_()
            (gradient,) = torch.autograd.grad(score(line).sum(), line)
        total += (share[:, None, None] * gradient).sum(0)
    with torch.no_grad():
        ends = score(torch.stack([vectors, baseline]))
    return (total * difference).sum(-1), float(ends[0]), float(ends[1])


def attributions(loaded: Checkpoint, framed: Framed, *, steps: int = STEPS) -> list[Attribution]:
    """Attributions of a text's predictions: the label of a fine-tuned classifier; else the best token at each mask, up to `MOST`,
    or the next token of a network that reads from left to right. None for a network without such a head, or whose tokens have
    no vectors that can be replaced.

    The baseline has the vector of [MASK], [UNK] or else zeros in place of every token of the text; the template stays.
    """
    reader, table = Reader.of(loaded), loaded.network.token_tables.get("tokens")
    if table is None or "vectors" not in loaded.network.takes or loaded.network.writes is not None:
        return []
    ids = torch.from_numpy(framed.ids.astype(np.int64)).to(reader.device)
    with torch.no_grad():
        embeddings = table.weight[ids].float()
        role = next((reader.tokenizer.roles[name] for name in ("[MASK]", "[UNK]") if name in reader.tokenizer.roles), None)
        blank = torch.zeros_like(embeddings[0]) if role is None else table.weight[role].float()
        inside = torch.from_numpy(framed.part >= 0).to(embeddings.device)
        baseline = torch.where(inside[:, None], blank, embeddings)
    explanations = []
    for name, position, scores in _predictions(loaded, reader, framed):
        with torch.no_grad():
            best = int(scores(embeddings[None])[0].argmax())
        shares, score, base = integrated_gradients(_score_of(scores, best), embeddings, baseline, steps=steps)
        explanations.append(Attribution(name(best), position, shares.detach().cpu().numpy(), score, base))
    return explanations


def _score_of(scores: Scores, number: int) -> Callable[[Tensor], Tensor]:
    return lambda vectors: scores(vectors)[:, number]


def _predictions(
    loaded: Checkpoint, reader: Reader, framed: Framed
) -> Iterator[tuple[Callable[[int], str], int | None, Scores]]:
    """Of each prediction: how its numbers are called, its place, and the log probabilities (S, C) of vectors (S, L, D)."""
    tuned = read_task_json(Path(loaded.folder)) if has_own_task(Path(loaded.folder)) else {}
    labels = tuned.get("labels") if tuned.get("task") in _CLASSIFIED else None
    head = head_of_task(loaded, tuned, "relation_prediction") if labels else head_of_kind(loaded, "token_prediction")
    if head is None or head.of_texts:
        return
    if labels:
        yield (lambda number: str(labels[number])), None, _scores(reader, head, framed, None)
    elif tuple(head.reads) == ("hidden",):
        masks = np.flatnonzero(framed.ids == reader.tokenizer.roles.get("[MASK]", -1)) - reader.shift
        places = masks[masks >= 0].tolist() if reader.order == "open" else [len(framed) - 1]
        for position in places[:MOST]:
            yield (lambda number: shown(reader.tokenizer, number)), position, _scores(reader, head, framed, position)


def _scores(reader: Reader, head: Any, framed: Framed, position: int | None) -> Scores:
    """The log probabilities of a head for rows of vectors, at a place or of the text."""

    def scores(vectors: Tensor) -> Tensor:
        rows, length = len(vectors), vectors.shape[1]
        batch = Batch({**reader.batch([framed] * rows), "vectors": vectors}, checked=True)
        states = reader.states(batch, head.reads)
        numbers = torch.arange(rows, device=vectors.device)
        if position is None:
            return reader.scores(head, states, batch, numbers).log_softmax(-1)
        return reader.token_scores(head, states, batch, numbers * length + position).log_softmax(-1)

    return scores
