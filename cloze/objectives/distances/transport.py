"""Align words and items by optimal transport: what a text and its picture cost to move into each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count, Positive
from cloze.networks.cost import Operations, size_of
from cloze.objectives.objective import Loss, TargetsAtPositions, at_least_float32
from cloze.registry import Given, register

_SMALLEST_LENGTH = 1e-5


@register("objective", "transport")
class Transport(TargetsAtPositions):
    """The cost of transporting the tokens of a row to its items, minimised where they match and maximised where not (word-region
    alignment of UNITER; Chen et al., 2020, §3.2).

    Each token has the same weight in its row, and so has each item; moving one to the other costs 1 - cosine of their states. The
    plan is found by `steps` of the proximal point method IPOT with the factor exp(-cost/`beta`) (Xie et al., 2018), without a
    gradient. `targets/<set>` (M,) at the rows `positions/<set>` are 1 where text and items belong together: the loss of a row is
    the cost of its plan, with a minus for 0. It reads `hidden` (B, L, D) and `item_hidden` (B, R, D), which must be equally wide;
    padding has no weight, and a row without items costs nothing. Metric `distance`: the cost without its sign.
    """

    likelihood = False
    training_only = True
    reads = ("hidden", "item_hidden")

    def __init__(
        self, *, set: str = "match", items: str = "regions", beta: Positive = 0.5, steps: Count = 50, width: Given[int]
    ) -> None:
        super().__init__(set=set)
        self.beta, self.steps, self.width = beta, steps, width
        self.length, self.vectors = f"item_length/{items}", f"item_vectors/{items}"
        self.optional = self.optional | {"block", self.length, self.vectors}
        self.head = nn.Identity()

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The cosines of tokens and items, and the products of rows in the steps of the plan."""
        text, items = size_of(batch), batch[self.vectors].shape[1] if self.vectors in batch else 0
        counted.add_row_products(text.tokens * items * self.width)
        steps = counted.branch(needs_grad=False)
        steps.add_row_products(2 * self.steps * text.tokens * items)
        counted.add_branches(steps)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The cost of each target's row (M,)."""
        # One problem per target: `text` (M, L, D) and its real `words` (M, L), `items` (M, R, D) and which of
        # them are `real` (M, R), `costs` and `plan` (M, L, R).
        rows = batch[self.positions_field].long()
        text, items = (at_least_float32(states[name]).index_select(0, rows) for name in self.reads)
        words = torch.ones(text.shape[:2], dtype=torch.bool, device=text.device)
        if "block" in batch:
            words = batch["block"][rows] > 0
        real = torch.ones(items.shape[:2], dtype=torch.bool, device=items.device)
        if self.length in batch:
            real = torch.arange(items.shape[1], device=items.device) < batch[self.length][rows][:, None]
        costs = costs_of(text, items).masked_fill(~(words[:, :, None] & real[:, None]), 0.0)
        with torch.no_grad():
            plan = transport_plan(costs, words, real, beta=self.beta, steps=self.steps)
        return (costs * plan).sum((1, 2))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of the signed costs."""
        sign = 2.0 * (batch[self.targets_field] > 0).to(scores.dtype) - 1.0
        weights = batch.get(self.weights_field)
        signed = scores * sign if weights is None else scores * sign * weights
        distance = scores.detach() if weights is None else scores.detach() * weights
        return Loss(signed.sum(), {"distance": distance.sum()})


def costs_of(x: Tensor, y: Tensor) -> Tensor:
    """1 - cosine of every pair: (B, M, D) and (B, N, D) to (B, M, N)."""
    left, right = (F.normalize(z, dim=-1, eps=_SMALLEST_LENGTH) for z in (x, y))
    return 1.0 - left @ right.transpose(1, 2)


def transport_plan(costs: Tensor, rows: Tensor, columns: Tensor, *, beta: float, steps: int) -> Tensor:
    """How much of each of the real `rows` (B, M) moves to each of the real `columns` (B, N), by IPOT: (B, M, N).

    Rows sum to exactly 1/number of rows, columns to about 1/number of columns: columns are scaled first, as in `ipot` of UNITER's
    code (model/ot.py). All zero where one side has nothing.
    """
    # IPOT scales a kernel times the plan so far by a factor per row, `across` (B, M), and one per column,
    # `down` (B, N); the product is the next plan, (B, M, N) as are `real`, `kernel` and `weighed`.
    real = rows[:, :, None] & columns[:, None]
    number_of_rows, number_of_columns = (side.sum(1, keepdim=True).clamp(min=1).to(costs.dtype) for side in (rows, columns))
    kernel = torch.exp(-costs / beta) * real
    plan, across = real.to(costs.dtype), rows.to(costs.dtype) / number_of_rows
    for _ in range(steps):
        weighed = kernel * plan
        down = _shares(number_of_columns * (across[:, None] @ weighed).squeeze(1), columns)
        across = _shares(number_of_rows * (weighed @ down[..., None]).squeeze(-1), rows)
        plan = across[..., None] * weighed * down[:, None]
    return plan


def _shares(sums: Tensor, real: Tensor) -> Tensor:
    """One over each of the sums, zero where there is nothing real."""
    return torch.where(real & (sums > 0), 1.0 / sums.where(sums > 0, 1.0), 0.0)
