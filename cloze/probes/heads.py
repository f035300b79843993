"""How important heads are, and what a network can do when some are closed.

Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?" (2019): the importance of a head is the mean over examples of
|∂L/∂ξ|, where the gate ξ multiplies its output (§4.1, eq. 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.probes.gates import Family, closed, each_gate, families
from cloze.probes.losses import LossExamples

Scores = Mapping[str, NDArray[np.float64]]
KEPT = 0.9  # of the measure, for the share of heads that can be closed


class AttentionHead(NamedTuple):
    """One head: the argument that gates it, its layer and number, from 0."""

    argument: str
    layer: int
    head: int


@dataclass(frozen=True)
class HeadImportance:
    """The importance of every head (N, H) by the argument of its gates, the heads from the least to the most important, and the
    measure at each `share` of closed heads: in that order, and the mean and the deviation over random orders.

    `each`: what the measure loses if a head alone is closed; empty if that was not asked.
    """

    families: Sequence[Family]
    importance: Scores
    order: Sequence[AttentionHead]
    shares: Sequence[float]
    curve: Sequence[float]
    random: Sequence[float]
    deviation: Sequence[float]
    measure: str
    higher: bool
    each: Scores
    remarks: Sequence[str] = ()

    @property
    def closable(self) -> float:
        """The largest share of heads that can be closed while the measure keeps 90 % of its value: of a loss, 110 %."""
        full = self.curve[0]
        good = [y >= KEPT * full if self.higher else y <= full * (2 - KEPT) for y in self.curve]
        return max(share for share, fine in zip(self.shares, np.cumprod(good), strict=True) if fine)


def importance(examples: LossExamples, *, size: int = 32) -> Scores:
    """The mean over examples of |∂L/∂ξ| of every head, (N, H) by the argument of its gates; the same whatever the batch.

    Every example has gates of its own, so that one backward pass gives the gradients of all. Published code differs: it takes the
    absolute value of a batch's mean gradient, or per position.
    """
    kinds = families(examples.network)
    sums = {kind.argument: np.zeros((kind.layers, kind.heads)) for kind in kinds}
    done = 0
    for index in examples.batches(size):
        with each_gate(examples.network, kinds) as calls:
            total = examples.losses(index).sum()
        gates = [gate for call in calls for gate in call.values()]
        gradients = iter(torch.autograd.grad(total, gates, allow_unused=True))
        for call in calls:
            for argument in call:
                gradient = next(gradients)
                sums[argument] += 0.0 if gradient is None else gradient.abs().sum(1).double().cpu().numpy()
        done += len(index)
    return {argument: scores / max(done, 1) for argument, scores in sums.items()}


def ordered(scores: Scores) -> list[AttentionHead]:
    """The heads from the least to the most important, each score divided by the length of its layer's scores (§4.1)."""
    heads, values = [], []
    for argument, matrix in scores.items():
        scaled = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-30)
        heads += [AttentionHead(argument, layer, head) for layer in range(len(matrix)) for head in range(matrix.shape[1])]
        values += scaled.ravel().tolist()
    return [heads[n] for n in np.argsort(values, kind="stable")]


def without(kinds: Sequence[Family], heads: Sequence[AttentionHead]) -> dict[str, torch.Tensor]:
    """Gates that close these heads."""
    gates = {kind.argument: torch.ones(kind.layers, kind.heads) for kind in kinds}
    for head in heads:
        gates[head.argument][head.layer, head.head] = 0.0
    return gates


def probe_heads(
    examples: LossExamples, *, parts: int = 10, draws: int = 3, seed: int = 0, size: int = 32, single_heads: bool = False
) -> HeadImportance:
    """The importance of heads, and the measure as more and more are closed, in `parts` steps, against `draws` random orders.

    `single_heads` also closes every head alone.

    Raises:
        UserError: The network has no attention.
    """
    kinds = families(examples.network)
    scores = importance(examples, size=size)
    order = ordered(scores)
    counts = sorted({round(len(order) * part / parts) for part in range(parts + 1)})

    def value(heads: Sequence[AttentionHead]) -> float:
        with closed(examples.network, without(kinds, heads)):
            return examples.value(size=size)

    curve = [value(order[:count]) for count in counts]
    draw = np.random.default_rng(seed)
    random = np.array([
        [curve[0], *(value([shuffled[n] for n in range(count)]) for count in counts[1:-1]), curve[-1]]
        for shuffled in ([order[i] for i in draw.permutation(len(order))] for _ in range(draws))
    ])  # fmt: skip
    alone = {}
    if single_heads:
        for kind in kinds:
            differences = [
                [value([AttentionHead(kind.argument, n, h)]) - curve[0] for h in range(kind.heads)]
                for n in range(kind.layers)
            ]
            alone[kind.argument] = np.array(differences)
    return HeadImportance(
        kinds, scores, order, [count / len(order) for count in counts], curve, random.mean(0).tolist(), random.std(0).tolist(),
        examples.measure, examples.higher, alone, examples.remarks,
    )
