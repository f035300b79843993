"""Losses that compare all rows of a step that is divided into micro-batches or among processes.

A contrastive loss needs the vectors of all rows at once, but their graphs do not fit in memory. So they are computed twice:
first without graphs, for the loss of the whole step and its gradient with respect to each vector; then, micro-batch by
micro-batch, with graphs, through which these gradients reach the parameters. This is GradCache (Gao et al., 2021, "Scaling Deep
Contrastive Learning Batch Size under Memory Limited Setup", §3.2). Random numbers depend on addresses, so both times give the
same vectors. The result is the gradient of the undivided step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloze.batching import MicroBatch
from cloze.objectives import Loss, StepObjective
from cloze.training.trainee import Trainee

Kept = Mapping[str, Tensor]


@dataclass(frozen=True)
class StepPiece:
    """A micro-batch of an entry and the position of its rows in the step."""

    entry: str
    micro: MicroBatch
    first_row: int


class VectorCollector:
    """Replaces the loss while the vectors are computed: stores them piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[Kept] = []

    def __call__(self, vectors: Kept) -> Loss:
        """Store the vectors of a micro-batch; the loss is zero."""
        self.pieces.append({name: tensor.detach() for name, tensor in vectors.items()})
        return Loss(next(iter(vectors.values())).sum() * 0.0, {})


class GradientReplay:
    """Replaces the loss in the second pass: a number whose gradients are those of the whole loss, piece by piece.

    Its value is this process's share of the whole, in the first micro-batch, so that the sum over all is the loss of the step.
    """

    def __init__(self, gradients: Sequence[Kept], loss: Loss, world: int) -> None:
        self.gradients = iter(gradients)
        metrics, counts = ({name: value / world for name, value in sums.items()} for sums in (loss.metrics, loss.counts))
        self.unreported_loss: Loss | None = Loss(loss.total.detach() / world, metrics, counts)

    def __call__(self, vectors: Kept) -> Loss:
        """The next micro-batch's part."""
        gradients = next(self.gradients)
        # Each gradient has the shape of its vectors, such as (E, D). The gradient of their inner product () with respect to the
        # vectors is the stored one; its value means nothing and is subtracted.
        inner_product = sum(((vectors[name].float() * gradient).sum() for name, gradient in gradients.items()), torch.zeros(()))
        zero_with_gradient = inner_product - inner_product.detach()
        loss, self.unreported_loss = self.unreported_loss, None
        return Loss(zero_with_gradient, {}) if loss is None else loss._replace(total=zero_with_gradient + loss.total)


@contextmanager
def whole_step_losses(trainee: Trainee, pieces: Sequence[StepPiece], *, step: int, share: float) -> Iterator[None]:
    """A context in which the objectives that compare the rows of a step have the loss of the whole step.

    `pieces` are all micro-batches of one entry that this process has of the step. A step in one piece needs no change, nor one
    whose pieces are groups of rows that are compared with each other only (`training.group`).

    Entering the context is the first pass, without graphs. Its body is the second pass: it runs the same
    pieces in the same order, because `GradientReplay` takes their gradients one after another.
    """
    objectives = trainee.model.step_scope_objectives(pieces[0].entry)
    undivided = len(pieces) == 1 and trainee.ranks.world == 1
    if not objectives or undivided or trainee.run.training.group is not None:
        yield
        return
    collected = [VectorCollector() for _ in objectives]
    with ExitStack() as stack:
        for objective, collecting in zip(objectives, collected, strict=True):
            stack.enter_context(objective.loss_by(collecting))
        _collect_vectors(trainee, pieces, step=step, share=share)
        for objective, collecting in zip(objectives, collected, strict=True):
            stack.enter_context(objective.loss_by(replaying(objective, collecting.pieces, trainee.ranks)))
        yield


@torch.no_grad()
def _collect_vectors(trainee: Trainee, pieces: Sequence[StepPiece], *, step: int, share: float) -> None:
    """The forward pass of every piece, as it will be repeated; carried memory does not change."""
    carries = copy.deepcopy(trainee.carries) if trainee.model.carries else trainee.carries
    for piece in pieces:
        trainee.forward(
            trainee.model, piece.entry, piece.micro, step=step, share=share, first_row=piece.first_row, carries=carries
        )


@torch.enable_grad()
def replaying(objective: StepObjective, pieces: Sequence[Kept], ranks: Any) -> GradientReplay:
    """The loss of the whole step, and its gradients for the rows of this process, cut into its pieces.

    Shapes: tensors of piece i are (E_i, …). `tensors` joins the pieces of this process, (E, …); `compare`
    reads those of all processes, in the order of ranks. Only the own part requires a gradient, so that
    `gradients` are (E, …), and `split` gives (E_i, …) again.
    """
    names = list(pieces[0])
    sizes = [len(piece[names[0]]) for piece in pieces]
    tensors = {name: torch.cat([piece[name] for piece in pieces]) for name in names}
    vectors = [name for name in names if tensors[name].is_floating_point()]
    tensors = {name: tensor.float().requires_grad_() if name in vectors else tensor for name, tensor in tensors.items()}
    gathered = {name: ranks.gather(tensor.detach()) for name, tensor in tensors.items()}
    loss: Loss = objective.compare({
        name: torch.cat([*gathered[name][: ranks.rank], tensors[name], *gathered[name][ranks.rank + 1 :]]) for name in names
    })  # fmt: skip
    gradients = torch.autograd.grad(loss.total, [tensors[name] for name in vectors])
    cut = [
        dict(zip(vectors, parts, strict=True))
        for parts in zip(*(gradient.split(sizes) for gradient in gradients), strict=True)
    ]
    return GradientReplay(cut, loss, ranks.world)
