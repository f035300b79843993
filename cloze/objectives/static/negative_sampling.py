"""Distinguish the observed word from randomly drawn ones: the objective of word2vec and fastText."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import uniform_by_row
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations
from cloze.objectives.objective import Kind, Loss
from cloze.objectives.static.output_words import OutputWords
from cloze.registry import Given, register

_UNKNOWN = ("[UNK]", "<unk>")
_BLIND = "all_but_itself"  # what a state sees that a word may be predicted from
_TRIES = 8  # after so many draws of the target itself a negative is left out


@register("objective", "negative_sampling")
class NegativeSampling(OutputWords):
    """-log σ(h · u_target) - Σ log σ(-h · u_n) over `negatives` words n (Mikolov et al., 2013b, §2.2), summed over the targets.

    Negatives are drawn by the words' counts to the `power` (word2vec 0.75; fastText's code 0.5), never roles such as [UNK].
    A negative that equals the target is left out, as in word2vec's code, or with `redraw` drawn again (fastText's). `share` draws
    once for neighbouring targets with the same id or at the same position, that is for all the pairs of a centre (Differs from
    both codes; the fast kernels do so). With `unknown` [UNK] is a word like others, as frequent as all rare words together
    (context2vec's code). Draws are a pure function of seed, step, row and the target's number in it.

    Reads `hidden`, or another state by `read:` (`context` for CBOW). Metric `correct`: targets that score above all their
    negatives. Parameters: `head.weight` (V, D), zero at first, so that the first loss is (negatives + 1) ln 2 per target.
    """

    likelihood = False
    vectors_from = "windows"

    def __init__(
        self,
        *,
        negatives: Count = 5,
        power: float = 0.75,
        redraw: bool = False,
        share: bool = False,
        unknown: bool = False,
        set: str = "main",
        width: Given[int],
        vocab_size: Given[int],
        clock: Given[Clock],
        counts: Given[NDArray[np.int64] | None] = None,
        spellings: Given[Sequence[str] | None] = None,
    ) -> None:
        if negatives < 1:
            raise RecipeError(f"negative_sampling: negatives {negatives}; expected at least 1.")
        super().__init__(
            set=set, rows=vocab_size, width=width, vocab_size=vocab_size, counts=counts, spellings=spellings
        )
        if unknown and counts is not None and spellings is not None:
            rare = next((number for number, spelling in enumerate(spellings) if spelling in _UNKNOWN), None)
            if rare is not None:
                self.counts[rare] = max(int(counts[rare]), 1)
        self.negatives = negatives
        self.power = power
        self.redraw = redraw
        self.share = share
        self.clock = clock
        self._shares: Tensor | None = None

    def counts_changed(self) -> None:
        """Recompute the probabilities of the words when they are next needed."""
        self._shares = None

    @property
    def noise(self) -> Tensor:
        """The probability of drawing each id (V,), float64 on the CPU."""
        raised = self.counts.cpu().double().pow(self.power) * (self.counts.cpu() > 0)
        return raised / raised.sum()

    def draw(self, targets: Tensor, positions: Tensor, length: int) -> Tensor:
        """The negatives of each target (M, negatives); -1 where one is left out."""
        if self._shares is None or self._shares.device != targets.device:
            self._shares = self.noise.cumsum(0).to(targets.device)
        row = torch.div(positions, max(length, 1), rounding_mode="floor")
        slot = self._slots(targets, positions, row)
        drawn = self._words(row, slot, 0)
        for attempt in range(1, _TRIES if self.redraw else 0):
            hit = drawn == targets[:, None]
            if hit.device.type == "cpu" and not bool(hit.any()):  # elsewhere the answer would have to be waited for
                break
            drawn = torch.where(hit, self._words(row, slot, attempt), drawn)
        return torch.where(drawn == targets[:, None], -1, drawn)

    def _slots(self, targets: Tensor, positions: Tensor, row: Tensor) -> Tensor:
        """The number of each target, or of its group, within its row (M,); targets come row by row."""
        number = torch.arange(len(targets), device=targets.device)
        if self.share and len(targets):
            follows = (targets[1:] == targets[:-1]) | (positions[1:] == positions[:-1])
            begins = torch.cat([follows.new_ones(1), ~follows | (row[1:] != row[:-1])])
            number = begins.long().cumsum(0) - 1
        if not len(number):
            return number
        another = torch.cat([row.new_zeros(1), row.diff()]) != 0  # whether a row begins: its first number is its smallest
        return number - torch.where(another, number, 0).cummax(0).values

    def _words(self, row: Tensor, slot: Tensor, attempt: int) -> Tensor:
        assert self._shares is not None  # set by `draw`
        columns = torch.arange(self.negatives, device=row.device)
        # (M, negatives), flattened: the address of each draw is its row and its number in the row.
        column = (slot[:, None] * self.negatives + columns).flatten()
        rows = row[:, None].expand(-1, self.negatives).flatten()
        high = uniform_by_row(self.clock, f"{self.set}.negatives.{attempt}", rows, column).double()
        # 24 bits are few for words
        low = uniform_by_row(self.clock, f"{self.set}.negatives.{attempt}.low", rows, column).double()
        words = torch.searchsorted(self._shares, (high + low * 2.0**-24) * self._shares[-1], right=True)
        return words.clamp_(max=len(self._shares) - 1).view(-1, self.negatives)

    def usable_as(self, sees: Sequence[str]) -> Kind | None:
        """Token prediction, if it reads a state that does not see the word itself (context2vec, CBOW)."""
        return "token_prediction" if list(sees) == [_BLIND] else None

    def predict(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, V): the logarithm of the probability of each word, up to a constant.

        At the optimum h · u_w is log P(w | h) - log P_n(w) - log k, with k negatives drawn from P_n (Levy and Goldberg, 2014,
        §3.1; for contexts Melamud et al., 2016, §2.4). So the softmax of h · u_w + log P_n(w) is the probability of w. Ids that
        are never drawn, such as [PAD], have none.
        """
        rows = self.rows(states, batch)
        return rows @ self.head.weight.to(rows.dtype).T + self.noise.log().to(rows.device, rows.dtype)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Every target meets its word and the negatives."""
        weight = self.head.weight
        products = batch[self.positions_field].shape[0] * (1 + self.negatives)
        counted.add_weight_products(products * weight.shape[1], trained=weight.requires_grad)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, 1 + negatives): the target's score, then the negatives'; minus infinity for one that is left out."""
        state = states[self.reads[0]]
        targets = batch[self.targets_field].long()
        negatives = self.draw(targets, batch[self.positions_field].long(), state.shape[1])
        words = torch.cat([targets[:, None], negatives.clamp(min=0)], dim=1)
        rows = self.rows(states, batch)[:, :, None].to(self.head.weight.dtype)
        # (M, 1 + negatives, D) by (M, D, 1).
        scores = torch.bmm(F.embedding(words, self.head.weight), rows)
        gone = F.pad(negatives < 0, (1, 0))
        return scores.squeeze(2).masked_fill(gone, -torch.inf)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        logits = scores if scores.dtype == torch.float64 else scores.float()
        losses = F.softplus(-logits[:, 0]) + F.softplus(logits[:, 1:]).sum(1)
        right = logits[:, 0] > logits[:, 1:].amax(1) if self.negatives else logits[:, 0] > 0
        return self.summed(losses, right.detach(), batch)
