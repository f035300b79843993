"""Predict tokens of a large vocabulary by an adaptive softmax: first the cluster, then the token within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.inputs.adaptive import AdaptiveEmbedding, bounds, piece_widths
from cloze.networks.cost import Operations, is_trained
from cloze.objectives.objective import Loss
from cloze.objectives.tokens.token_prediction import TokenPrediction
from cloze.registry import Given, register

Table = nn.Embedding | AdaptiveEmbedding


class AdaptiveHead(nn.Module):
    """(M, D) to log-probabilities (M, V) (Grave et al., 2017), as Transformer-XL's code lays it out.

    The first softmax is over the first cluster's tokens and one entry for each later cluster. Rows are projected to the width
    of their cluster's vectors where these are narrower. `table` is the table that the head is tied to; it is not registered here.
    Parameters: `bias` (V,), `cluster_weight`, `cluster_bias`, `projections.i` (D, E_i) and `tables.i` (V_i, E_i) where not tied.
    """

    def __init__(
        self, *, width: int, vocab_size: int, cutoffs: Sequence[int], divide: int, embedding_width: int, table: Table | None,
        tie_projections: bool,
    ) -> None:
        super().__init__()
        self.width = width
        self.bounds = bounds(cutoffs, vocab_size)
        widths = piece_widths(embedding_width, divide, len(self.bounds))
        later = len(self.bounds) - 1
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.cluster_weight = nn.Parameter(torch.zeros(later, embedding_width)) if later else None
        self.cluster_bias = nn.Parameter(torch.zeros(later)) if later else None
        projected = divide > 1 or embedding_width != width
        tied = table.projections if tie_projections and isinstance(table, AdaptiveEmbedding) else None
        self._tied = (table, tied)  # in a tuple, so that modules of the network are not registered twice
        self.projections = nn.ParameterDict({
            str(number): nn.Parameter(torch.zeros(width, across))
            for number, across in enumerate(widths) if projected and (tied is None or number == 0)
        })
        self.tables = nn.ParameterDict({
            str(number): nn.Parameter(torch.zeros(high - low, across))
            for number, ((low, high), across) in enumerate(zip(self.bounds, widths, strict=True)) if table is None
        })
        self.projected = projected
        for name, parameter in self.named_parameters():
            if "bias" not in name:
                nn.init.normal_(parameter, std=0.01 if name.startswith("projections") else 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities of every token, (M, V)."""
        first = self._first(x)
        head = self.bounds[0][1]
        parts = [first[:, :head]]
        for number in range(1, len(self.bounds)):
            parts.append(first[:, head + number - 1, None] + self._within(number, x))
        return torch.cat(parts, dim=1)

    def count_clusters(self, counted: Operations, targets: Tensor) -> None:
        """The products for targets (M,): the first cluster's for all, a later one's for those in it."""
        for number, (low, high) in enumerate(self.bounds):
            vectors = self._vectors(number)
            rows = len(targets) if number == 0 else int(((targets >= low) & (targets < high)).sum())
            later = self.cluster_weight.numel() if number == 0 and self.cluster_weight is not None else 0
            down = self.width * vectors.shape[1] if self.projected else 0
            trained = vectors.requires_grad or is_trained(self)
            counted.add_weight_products(rows * (vectors.numel() + later + down), trained=trained)

    def losses(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropies, cluster by cluster, and the rows of `x` that they belong to: (M,) both, in another order."""
        first, head = self._first(x), self.bounds[0][1]  # (M, head + later clusters)
        losses, rows = [], []
        for number, (low, high) in enumerate(self.bounds):
            chosen = ((targets >= low) & (targets < high)).nonzero().view(-1)  # (M_i,) rows
            inside = (targets[chosen] - low)[:, None]  # (M_i, 1) ids within the cluster
            if number == 0:
                losses.append(-first[chosen].gather(1, inside).squeeze(1))
            else:  # computed for zero rows too, so that every rank takes part with all parameters
                within = self._within(number, x[chosen]).gather(1, inside).squeeze(1)
                losses.append(-first[chosen, head + number - 1] - within)
            rows.append(chosen)
        return torch.cat(losses), torch.cat(rows)

    def _first(self, x: Tensor) -> Tensor:
        weight, bias = self._vectors(0), self.bias[: self.bounds[0][1]]
        if self.cluster_weight is not None and self.cluster_bias is not None:
            weight, bias = torch.cat([weight, self.cluster_weight]), torch.cat([bias, self.cluster_bias])
        return _log_softmax(F.linear(self._down(0, x), weight, bias))

    def _within(self, number: int, x: Tensor) -> Tensor:
        low, high = self.bounds[number]
        return _log_softmax(F.linear(self._down(number, x), self._vectors(number), self.bias[low:high]))

    def _vectors(self, number: int) -> Tensor:
        """The rows of a cluster's tokens, (V_i, E_i)."""
        table = self._tied[0]
        if table is None:
            return self.tables[str(number)]
        if isinstance(table, AdaptiveEmbedding) and len(table.tables) > 1:
            weight: Tensor = table.tables[number].weight  # type: ignore[assignment]
            return weight
        rows: Tensor = table.tables[0].weight if isinstance(table, AdaptiveEmbedding) else table.weight  # type: ignore[assignment]
        low, high = self.bounds[number]
        return rows[low:high]

    def _down(self, number: int, x: Tensor) -> Tensor:
        if not self.projected:
            return x
        tied = self._tied[1]
        if tied is None or number == 0:
            return x @ self.projections[str(number)].to(x.dtype)
        weight: Tensor = tied[min(number, len(tied) - 1)].weight  # type: ignore[assignment]
        return x @ weight.to(x.dtype)


class AdaptivePrediction(TokenPrediction):
    """`Classify` whose loss skips the scores of clusters that hold no target."""

    head: AdaptiveHead
    over_vocabulary = False  # clusters have tables of their own

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The clusters that hold targets."""
        self.head.count_clusters(counted, batch[self.targets_field].long())

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The summed loss. Metrics: `beyond`, the targets that lie outside the first cluster."""
        targets, weights = batch[self.targets_field].long(), self.loss_weights(batch)
        losses, rows = self.head.losses(self.rows(states, batch), targets)
        beyond = (targets[rows] >= self.head.bounds[0][1]).float()
        if weights is not None:
            losses, beyond = losses * weights[rows], beyond * weights[rows]
        return Loss(losses.sum(), {"beyond": beyond.sum()})


@register("objective", "adaptive_prediction")
def adaptive_prediction(
    *,
    cutoffs: Sequence[int],
    divide: Count = 1,
    tie: bool = True,
    tie_projections: bool = True,
    embedding_width: Width | None = None,
    set: str = "main",
    width: Given[int],
    vocab_size: Given[int],
    table: Given[Table | None] = None,
) -> AdaptivePrediction:
    """Token prediction by an adaptive softmax with clusters of ids that begin at `cutoffs` (Grave et al., 2017).

    Ids must be sorted by frequency. `divide`: vectors of cluster i are `divide^i` times narrower. `tie` shares the vectors of
    the network's token table, adaptive or not; `tie_projections` also its projections, except that of the first cluster (Dai
    et al., 2019, the released wt103 model).
    """
    if tie and table is None:
        raise RecipeError("adaptive_prediction: tie is true, but the network it reads has no token table.")
    tied = table if tie else None
    if isinstance(tied, AdaptiveEmbedding):
        table_width, parts = tied.width, tied.bounds
    else:
        table_width = (embedding_width or width) if tied is None else tied.embedding_dim
        parts = [(0, vocab_size)]
    fits = tied is None or len(parts) == 1 and divide == 1 or parts == bounds(cutoffs, vocab_size) and tied.divide == divide
    if not fits:
        raise RecipeError(
            "adaptive_prediction: tie is true, but the network's embedding has other clusters. Write the same `cutoffs` and "
            "`divide` in both, or `tie: false`."
        )
    head = AdaptiveHead(
        width=width, vocab_size=vocab_size, cutoffs=cutoffs, divide=divide, embedding_width=table_width, table=tied,
        tie_projections=tie_projections,
    )
    return AdaptivePrediction(head, set=set)


def _log_softmax(scores: Tensor) -> Tensor:
    return torch.log_softmax(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)
