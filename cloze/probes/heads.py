"""How important heads are, and what a network can do when some are closed.

Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?" (2019): the importance of a head is the mean over examples of
|∂L/∂ξ|, where the gate ξ multiplies its output (§4.1, eq. 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.errors import UserError
from cloze.probes.gates import HeadKind, closed, each_gate, head_kinds
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
    """The importance of every head (N, H) by the argument of its gates, the heads in the order in which they are closed, and the
    measure at each `share` of closed heads: in that order, and the mean and the deviation over random orders.

    `each`: the change of the measure if a head alone is closed; `only`: if all other heads of its layer are. Both are measured
    where the importance is, and empty if they were not asked for. `best`: for every layer the number of the head that keeps most
    if it is the only one, and the change of the measure of the curve with it alone.
    """

    kinds: Sequence[HeadKind]
    importance: Scores
    order: Sequence[AttentionHead]
    shares: Sequence[float]
    curve: Sequence[float]
    random: Sequence[float]
    deviation: Sequence[float]
    measure: str
    higher: bool
    each: Scores
    only: Scores
    best: Mapping[str, Sequence[tuple[int, float]]]
    remarks: Sequence[str] = ()

    @property
    def closable(self) -> float | None:
        """The largest share of heads that can be closed while the measure keeps 90 % of its value: of a loss, 110 %. None if the
        value is not above 0, as a correlation may be: a share of it is no measure of what is lost."""
        full = self.curve[0]
        if not full > 0:
            return None
        good = [y >= KEPT * full if self.higher else y <= full * (2 - KEPT) for y in self.curve]
        return max(share for share, fine in zip(self.shares, np.cumprod(good), strict=True) if fine)


def importance(examples: LossExamples, *, size: int = 32, shut: Sequence[AttentionHead] = ()) -> Scores:
    """The mean over examples of |∂L/∂ξ| of every head, (N, H) by the argument of its gates; the same whatever the batch. `shut`
    heads are closed meanwhile, and have no importance.

    Every example has gates of its own, so that one backward pass gives the gradients of all. Published code differs: it takes the
    absolute value of a batch's mean gradient, or per position.
    """
    kinds = head_kinds(examples.network)
    values = without(kinds, shut)
    sums = {kind.argument: np.zeros((kind.layers, kind.heads)) for kind in kinds}
    done = 0
    for index in examples.batches(size):
        with each_gate(examples.network, kinds, values) as calls:
            total = examples.losses(index).sum()
        gates = [gate for call in calls for gate in call.values()]
        gradients = iter(torch.autograd.grad(total, gates, allow_unused=True))
        for call in calls:
            for argument in call:
                gradient = next(gradients)
                sums[argument] += 0.0 if gradient is None else gradient.abs().sum(1).double().cpu().numpy()
        done += len(index)
    return {argument: values[argument].numpy() * scores / max(done, 1) for argument, scores in sums.items()}


def ordered(scores: Scores, *, spared: int = 0, shut: Collection[AttentionHead] = ()) -> list[AttentionHead]:
    """The heads from the least to the most important, each score divided by the length of its layer's scores (§4.1), without
    those that are `shut`.

    The `spared` most important heads of each layer are left out, too.
    """
    scaled = {
        argument: matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-30) for argument, matrix in scores.items()
    }
    return _ascending(scaled, spared, shut)


def _ascending(scores: Scores, spared: int, shut: Collection[AttentionHead] = ()) -> list[AttentionHead]:
    """The heads by their scores; see `ordered`."""
    scored: list[tuple[float, AttentionHead]] = []
    for argument, matrix in scores.items():
        for layer, row in enumerate(matrix.tolist()):
            heads = [AttentionHead(argument, layer, n) for n in range(len(row))]
            open_heads = sorted((row[head.head], head) for head in heads if head not in shut)
            scored += open_heads[: max(len(open_heads) - spared, 0)]
    return [head for _, head in sorted(scored, key=lambda pair: pair[0])]


def without(kinds: Sequence[HeadKind], heads: Iterable[AttentionHead]) -> dict[str, torch.Tensor]:
    """Gates that close these heads."""
    gates = {kind.argument: torch.ones(kind.layers, kind.heads) for kind in kinds}
    for head in heads:
        gates[head.argument][head.layer, head.head] = 0.0
    return gates


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """How heads are closed: in `parts` steps, against `draws` random orders drawn by `seed`; at least `spared` heads of every
    layer stay. `exact` measures the importance again after each step, with the closed heads closed."""

    parts: int = 10
    draws: int = 3
    seed: int = 0
    spared: int = 0
    exact: bool = False


def probe_heads(
    examples: LossExamples, *, by: LossExamples | None = None, pruning: Pruning = Pruning(), size: int = 32,
    each_alone: bool = False, only_one: bool = False,
) -> HeadImportance:
    """The importance of heads in the examples `by` (None: `examples`), and the measure as more and more are closed.

    `each_alone` also closes every head alone, `only_one` all heads of a layer but one (§3.2, §3.3).

    Raises:
        UserError: The network has no attention, or has no more heads in a layer than stay.
    """
    network, by = examples.network, by or examples
    kinds = head_kinds(network)
    fewest = min(kind.heads for kind in kinds)
    if pruning.spared >= fewest:
        raise UserError(f"--spare {pruning.spared}: the layers of this network have {fewest} heads. Give a smaller number.")
    scores = importance(by, size=size)
    total = sum(matrix.size for matrix in scores.values())
    order = ordered(scores, spared=pruning.spared)
    most = len(order)
    counts = sorted({min(round(total * part / pruning.parts), most) for part in range(pruning.parts + 1)})
    if pruning.exact:
        order = _reordered(by, scores, counts, pruning.spared, size)

    def value(heads: Iterable[AttentionHead], among: LossExamples = examples) -> float:
        with closed(network, without(kinds, heads)):
            return among.value(size=size)

    curve = [value(order[:count]) for count in counts]
    draw = np.random.default_rng(pruning.seed)
    random_orders = [
        _ascending({argument: draw.random(matrix.shape) for argument, matrix in scores.items()}, pruning.spared)
        for _ in range(pruning.draws)
    ]
    every = most == total  # all orders end alike
    random = np.array([
        [curve[0], *(value(heads[:count]) for count in counts[1:-1]), curve[-1] if every else value(heads)]
        for heads in random_orders
    ])  # fmt: skip
    full = value([], by) if each_alone or only_one else 0.0
    alone, others, best = {}, {}, {}
    for kind in kinds:
        rows = [[AttentionHead(kind.argument, n, h) for h in range(kind.heads)] for n in range(kind.layers)]
        if each_alone:
            alone[kind.argument] = np.array([[value([head], by) - full for head in row] for row in rows])
        if only_one:
            changes = np.array([[value(set(row) - {head}, by) - full for head in row] for row in rows])
            others[kind.argument] = changes
            chosen = (changes if examples.higher else -changes).argmax(1).tolist()
            best[kind.argument] = [
                (head, value(set(row) - {row[head]}) - curve[0]) for row, head in zip(rows, chosen, strict=True)
            ]
    return HeadImportance(
        kinds, scores, order, [count / total for count in counts], curve, random.mean(0).tolist(), random.std(0).tolist(),
        examples.measure, examples.higher, alone, others, best, examples.remarks,
    )


def _reordered(by: LossExamples, scores: Scores, counts: Sequence[int], spared: int, size: int) -> list[AttentionHead]:
    """The order in which heads are closed if the importance is measured again at each of the counts."""
    order: list[AttentionHead] = []
    for count in counts[1:]:
        if order:
            scores = importance(by, size=size, shut=order)
        order += ordered(scores, spared=spared, shut=order)[: count - len(order)]
    return order
