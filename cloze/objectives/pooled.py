"""Classify texts by all of their tokens: pooling, and the heads of ULMFiT and SiATL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, OptionalWidth, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, size_of
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.objective import ClassWeights, Loss, TargetsAtPositions, weights_of
from cloze.registry import Given, register

Pool = Literal["concat", "attention", "mean", "max", "last", "ends"]


def pooled(states: Tensor, real: Tensor, pool: Literal["concat", "mean", "max", "last", "ends"]) -> Tensor:
    """One vector (B, D) of the tokens (B, L, D) that are `real` (B, L); with `concat` [last; max; mean] (B, 3 D).

    `ends` is for states of two directions side by side: the forward half at the last token, the backward half at the first. A
    text without tokens gives zeros.
    """
    seen = real[..., None]
    if pool == "ends":
        forward, backward = states.chunk(2, dim=-1)
        return torch.cat([pooled(forward, real, "last"), torch.where(real[:, :1], backward[:, 0], 0.0)], dim=1)
    if pool == "mean":
        return torch.where(seen, states, 0.0).sum(1) / seen.sum(1).clamp(min=1)
    if pool == "max":
        highest = states.masked_fill(~seen, -torch.inf).amax(1)
        return torch.where(real.any(1)[:, None], highest, 0.0)
    if pool == "last":
        columns = torch.arange(states.shape[1], device=states.device)
        last = torch.where(real, columns, 0).amax(1)
        return torch.where(real.any(1)[:, None], states[torch.arange(len(states), device=states.device), last], 0.0)
    return torch.cat([pooled(states, real, "last"), pooled(states, real, "max"), pooled(states, real, "mean")], dim=1)


def attention_weights(energies: Tensor, real: Tensor) -> Tensor:
    """Softmax of energies (B, L) over the tokens that are `real`, zero elsewhere; all zero for a text without tokens."""
    weights = torch.softmax(energies.masked_fill(~real, torch.finfo(energies.dtype).min), dim=1)
    return torch.where(real, weights, 0.0)


class SelfAttention(nn.Module):
    """One energy tanh(w · h + b) per token, and the mean of the tokens by its softmax (Chronopoulou et al., 2019).

    Dropout acts on the energies, as in the authors' code: a dropped token has energy 0 and remains in the mean.
    """

    def __init__(self, width: int, dropout: Dropout) -> None:
        super().__init__()
        self.energy = nn.Linear(width, 1)
        self.dropout = dropout

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """(B, L, D) to (B, D)."""
        energies = self.dropout(torch.tanh(self.energy(states).squeeze(-1)).float())
        return (attention_weights(energies, real)[..., None] * states).sum(1)


class RowBatchNorm(nn.Module):
    """Batch normalisation of rows (B, D); a batch of one row, which has no variance, is normalised by the running statistics."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) to (B, D)."""
        if len(x) > 1 or not self.training:
            normalised: Tensor = self.norm(x)
            return normalised
        norm = self.norm
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps)


class PooledHead(nn.Module):
    """[an LSTM,] pooling, [normalisation, dropout, dense, ReLU,] [normalisation,] dropout, output: (B, L, D) to (B, classes)."""

    def __init__(
        self, *, width: int, classes: int, pool: Pool, hidden: int | None, norm: bool, recurrent: int,
        dropouts: tuple[float, ...], clock: Clock,
    ) -> None:
        super().__init__()
        entering, energies, leaving = (Dropout(rate, clock) for rate in dropouts)
        self.pool = pool
        self.recurrent: Any = None
        if recurrent:
            from cloze.networks.blocks.recurrence.lstm import LSTMLayer

            self.recurrent, width = LSTMLayer(input_width=width, cell=recurrent, clock=clock), recurrent
        self.attention = SelfAttention(width, energies) if pool == "attention" else None
        width *= 3 if pool == "concat" else 1
        self.first_norm = RowBatchNorm(width) if norm and hidden else None
        self.first_dropout = entering if hidden else None
        self.dense = nn.Linear(width, hidden) if hidden else None
        self.norm = RowBatchNorm(hidden or width) if norm else None
        self.dropout = leaving
        self.output = nn.Linear(hidden or width, classes)

    @property
    def after_pooling(self) -> list[nn.Module | None]:
        """The maps after the pooling."""
        return [self.dense, self.output]

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """Tokens (B, L, D), of which `real` (B, L) count, to scores (B, classes)."""
        if self.recurrent is not None:
            states, _ = self.recurrent(states, None, _reach(real))
        if self.attention is not None:
            x = self.attention(states, real)
        else:
            x = pooled(states, real, self.pool)  # type: ignore[arg-type]
        if self.dense is not None and self.first_dropout is not None:
            x = x if self.first_norm is None else self.first_norm(x)
            x = F.relu(self.dense(self.first_dropout(x)))
        x = x if self.norm is None else self.norm(x)
        scores: Tensor = self.output(self.dropout(x))
        return scores


def _reach(real: Tensor) -> Tensor:
    """The number of tokens of each row up to its last real one, (B,)."""
    return torch.where(real, torch.arange(1, real.shape[1] + 1, device=real.device), 0).amax(1)


class PooledClassification(TargetsAtPositions):
    """Sum of cross-entropies of `targets/<set>` for texts, the rows `positions/<set>`, from all of their tokens.

    Reads `hidden` (B, L, D); tokens of block 0 are padding. A head with batch normalisation has the scope `batch`.
    Metrics: `correct`.
    """

    weighs_classes = True
    fittable = True
    by_row = True

    def __init__(self, head: nn.Module, *, set: str, smoothing: float = 0.0) -> None:
        super().__init__(set=set)
        self.head, self.smoothing = head, smoothing
        normed = any(isinstance(module, nn.BatchNorm1d) for module in head.modules())
        self.scope = "batch" if normed else "row"
        self.reads: tuple[str, ...] = ("hidden",)
        self.optional |= {"block"}

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """What stands before the pooling for every token, what stands after it for every text."""
        head: Any = self.head
        size = size_of(batch)
        counted.add(size, *head.children(), without=head.after_pooling)
        counted.add(size.rows, *head.after_pooling)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        state = states["hidden"]
        everywhere = torch.ones(state.shape[:2], dtype=torch.bool, device=state.device)
        real = batch["block"] > 0 if "block" in batch else everywhere
        scored: Tensor = self.head(state, real)
        return scored.index_select(0, batch[self.positions_field].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        weights = self.target_weights(batch)
        total, correct = cross_entropy_sum(scores, batch[self.targets_field].long(), weights, self.smoothing)
        return self.with_accuracy(total, correct, scores, batch)


@register("objective", "pooled_classification")
def pooled_classification(
    *,
    classes: Count = 2,
    set: str = "label",
    pool: Pool = "concat",
    hidden: Width | None = None,
    norm: bool = False,
    recurrent: OptionalWidth = 0,
    dropout: BelowOne = 0.0,
    pooled_dropout: BelowOne = 0.0,
    energy_dropout: BelowOne = 0.0,
    smoothing: BelowOne = 0.0,
    class_weights: ClassWeights = None,
    width: Given[int],
    clock: Given[Clock],
) -> PooledClassification:
    """Cross-entropy over `classes` of a text, from all of its tokens without padding.

    ULMFiT: `pool: concat`, the last state with maximum and mean, then `hidden: 50` with `norm`, `pooled_dropout: 0.4` and
    `dropout: 0.1` (Howard and Ruder, 2018, §3.3; fastai `lm_rnn.py`). SiATL: a new LSTM of 100 (`recurrent`), `pool: attention`
    and `energy_dropout: 0.3` (Chronopoulou et al., 2019; alexandra-chron/siatl `modules.py`). A distilled BiLSTM: `pool: ends`,
    the last state of each direction, and `hidden: 200` (Tang et al., 2019, §3.1). Parameters: `head.output.*`, and where present
    `head.recurrent.*`, `head.attention.*`, `head.dense.*`, `head.first_norm.*`, `head.norm.*`. `class_weights` are as in
    `relation_prediction`.

    Differs: ULMFiT's code pools over padding too, so that a prediction depends on the other texts of the batch.
    """
    if norm and hidden is None and pool == "attention":
        raise RecipeError("pooled_classification: norm with pool: attention needs `hidden`.")
    head = PooledHead(
        width=width, classes=classes, pool=pool, hidden=hidden, norm=norm, recurrent=recurrent,
        dropouts=(pooled_dropout, energy_dropout, dropout), clock=clock,
    )
    objective = PooledClassification(head, set=set, smoothing=smoothing)
    objective.class_weights = weights_of(class_weights, classes)
    return objective
