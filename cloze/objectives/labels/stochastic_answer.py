"""Read two texts in several steps and average the predictions of the steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze import fields
from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, TargetsAtPositions
from cloze.registry import Given, register


class Reasoning(nn.Module):
    """The weights of a stochastic answer network: hypothesis attention, bilinear attention, recurrent cell and output."""

    def __init__(self, *, width: int, classes: int) -> None:
        super().__init__()
        self.hypothesis = dense(width, 1, bias=False)
        self.attend = dense(width, width)
        self.cell = nn.GRUCell(width, width)
        self.output = dense(4 * width, classes)

    def start(self, states: Tensor, mask: Tensor) -> Tensor:
        """The state before the first step (M, D): the mean of the hypothesis' tokens, weighted by self-attention."""
        return attended(self.hypothesis(states).squeeze(-1), states, mask)

    def look(self, state: Tensor, keys: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """The mean of the premise that the state (M, D) attends to by its keys (M, L, D), (M, D)."""
        return attended((self.attend(state).unsqueeze(1) * keys).sum(-1), states, mask)

    def answer(self, compared: Tensor) -> Tensor:
        """The logarithms of the classes' probabilities (M, C) in one step, from what `compare` gives."""
        return self.output(compared).float().log_softmax(-1)


def compare(seen: Tensor, state: Tensor) -> Tensor:
    """The premise as it was seen, the state, and how they differ and agree, (M, 4D)."""
    return torch.cat([seen, state, (seen - state).abs(), seen * state], dim=-1)


def attended(scores: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states (M, L, D) where the mask (M, L) holds, weighed by the softmax of the scores (M, L)."""
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return (weights.unsqueeze(-1) * states).sum(1)


class StochasticAnswer(TargetsAtPositions):
    """A stochastic answer network on the tokens of two texts (Liu et al., 2018, "Stochastic Answer Networks for Natural Language
    Inference"; as a head of MT-DNN: Liu et al., 2019, §3).

    The state is a weighted mean of the second text's tokens, with the special token that ends it. In each of `steps` it attends
    to the first text and the special tokens around it, x = Σ softmax(p (W s + b)) p, the prediction of the step is
    softmax(V [x; s; |x - s|; x * s]), and a recurrent cell computes the next state from x. The result is the mean over the steps;
    in training each step is dropped with probability `step_dropout`, and `dropout` drops the tokens before both attentions, the
    same numbers of every token, the state before it attends and before the cell, and what is classified
    (namisan/mt-dnn v0.1, `module/san.py`, `module/similarity.py`).

    `positions/<set>` (M, 4) are the first and the last token of each text (`label: {of: texts}`). Metric: `correct`.
    Differs: if no step is left, all are kept; in the authors' code one step that is drawn first always stays. There the row
    begins with the hypothesis, so the first special token is one of its tokens; here it is one of the premise's.
    Parameters: `head.hypothesis.*`, `head.attend.*`, `head.cell.*`, `head.output.*`.
    """

    of_texts = True  # its positions are the ends of both texts
    reads = ("hidden",)
    head: Reasoning

    def __init__(
        self, *, set: str = "label", classes: Count = 2, steps: Count = 5, step_dropout: BelowOne = 0.1, dropout: BelowOne = 0.1,
        width: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__(set=set)
        self.optional |= {"block"}
        if steps < 1:
            raise RecipeError(f"stochastic_answer.steps: got {steps}, expected at least 1.")
        self.steps, self.width = steps, width
        self.left_out, self.dropout = Dropout(step_dropout, clock), Dropout(dropout, clock)
        self.head = Reasoning(width=width, classes=classes)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The maps of every step, and its attention over a row."""
        rows = batch[self.positions_field].shape[0] * self.steps
        length = 0 if fields.sequence(batch) is None else sequence(batch).shape[1]
        counted.add(rows, self.head.hypothesis, self.head.attend)
        counted.add_row_products(rows * 2 * self.width * length)
        counted.add(rows, self.head.cell, self.head.output)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The logarithm of the mean probability of every class (M, C), float32."""
        hidden, positions = states["hidden"], batch[self.positions_field].long()
        length = hidden.shape[1]
        row, border = positions[:, 0] // length, (positions[:, 2] % length).unsqueeze(1)
        rows = hidden.index_select(0, row)
        at = torch.arange(length, device=hidden.device)
        present = self._of_row(batch, rows, positions, row)
        first, second = present & (at < border), present & (at >= border)
        drop = iter(self._factors(hidden).index_select(0, row).unbind(1))
        state = self.head.start(rows * next(drop).unsqueeze(1), second)
        predicted = []
        for step in range(self.steps):
            seen = self.head.look(state * next(drop), rows * next(drop).unsqueeze(1), rows, first)
            factors = torch.cat([next(drop) for _ in range(4)], dim=-1)
            predicted.append(self.head.answer(compare(seen, state) * factors))
            carried = state * next(drop)
            if step + 1 < self.steps:
                state = self.head.cell(seen, carried).to(rows.dtype)
        return self._mean(torch.stack(predicted, 1), hidden, row)

    def _of_row(self, batch: Batch, rows: Tensor, positions: Tensor, row: Tensor) -> Tensor:
        """Which tokens belong to the examples, with their special tokens, (M, L)."""
        if "block" not in batch:
            return torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
        block = batch["block"]
        return block.index_select(0, row) == block.flatten()[positions[:, 0]].unsqueeze(1)

    def _factors(self, hidden: Tensor) -> Tensor:
        """What dropout multiplies numbers by at each of its K places, 0 or 1 / (1 - rate), (B, K, D)."""
        shape = (len(hidden), 1 + 7 * self.steps, self.width)
        return self.dropout(torch.ones(shape, dtype=hidden.dtype, device=hidden.device))

    def _mean(self, predicted: Tensor, hidden: Tensor, row: Tensor) -> Tensor:
        """The logarithm of the mean probability (M, C) over those of the steps (M, K, C) that are kept; over all if none is."""
        mask = self.left_out(torch.ones(len(hidden), self.steps, device=hidden.device)).index_select(0, row) > 0
        mask = mask | ~mask.any(1, keepdim=True)
        count = mask.sum(1, keepdim=True).float()
        return predicted.masked_fill(~mask.unsqueeze(-1), float("-inf")).logsumexp(1) - count.log()

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed cross-entropy."""
        total, correct = cross_entropy_sum(scores, batch[self.targets_field].long(), batch.get(self.weights_field))
        return Loss(total, {"correct": correct})


register("objective", "stochastic_answer")(StochasticAnswer)
