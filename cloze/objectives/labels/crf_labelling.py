"""Label words as a sequence: a conditional random field over the words of a text (Lafferty et al., 2001; Lample et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count, OptionalWidth
from cloze.networks.clock import Clock
from cloze.objectives.labels.chain import FORBIDDEN, Moves, best_path, chains_of, log_total, marginals, path_score
from cloze.objectives.labels.sequence_labelling import LabellingHead, SequenceLabelling
from cloze.objectives.objective import Loss, at_least_float32
from cloze.registry import Given, register
from cloze.schemes import in_form, may_follow, standard

Scheme = Literal["none", "bio", "bioes"]


class CrfLabelling(SequenceLabelling):
    """Sum over texts of the negative log-likelihood of their labels `targets/<set>`, at flat `positions/<set>`.

    The targets of a row form one chain, in order; positions without a target (pieces that continue a word, special tokens,
    padding) are not part of it. Parameters: those of `LabellingHead`, `start` (C,), `end` (C,), `moves` (C, C).
    """

    chained = True
    weighs_classes = False

    def __init__(self, head: LabellingHead, *, set: str, classes: int, scheme: Scheme) -> None:
        super().__init__(head, set=set)
        self.by_row = True
        self.scheme = scheme
        self.start, self.end = nn.Parameter(torch.zeros(classes)), nn.Parameter(torch.zeros(classes))
        self.moves = nn.Parameter(torch.zeros(classes, classes))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32 or float64; targets of weight 0 are in no chain. No metrics."""
        positions, labels = batch[self.positions_field].long(), batch[self.targets_field].long()
        scores = at_least_float32(scores)
        if self.weights_field in batch:
            counts = batch[self.weights_field] > 0
            positions, labels, scores = positions[counts], labels[counts], scores[counts]
        if not len(positions):
            return Loss(sum((part.sum() for part in self.parameters()), scores.sum()) * 0.0, {})
        chains = chains_of(positions // sequence(batch).shape[1])
        laid, moves = chains.laid(scores), self._moves(scores)
        total = log_total(laid, chains.sizes, moves) - path_score(laid, chains.sizes, moves, chains.laid(labels))
        return Loss(total.sum(), {})

    def loss_per_target(self, scores: Tensor, batch: Batch) -> Loss:
        """The loss of independent labels, which that of chains is while all moves are 0."""
        return super().loss(scores, batch)

    def decided(self, scores: Tensor, sizes: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The labels of the best sequence of each text that `scheme` allows, and the probability of each among such sequences.

        In float64, so that the probabilities of a long text do not drift.
        """
        scores = scores.double()
        moves = self._moves(scores)
        if self.scheme != "none":
            moves = Moves(*(a + b.to(a) for a, b in zip(moves, scheme_moves(names, self.scheme), strict=True)))
        chains = chains_of(torch.repeat_interleave(sizes))
        laid = chains.laid(scores)
        path = best_path(laid, chains.sizes, moves)
        probability = marginals(laid, chains.sizes, moves).gather(2, path[:, :, None]).squeeze(2)
        return path[chains.chain, chains.place], probability[chains.chain, chains.place]

    def _moves(self, scores: Tensor) -> Moves:
        return Moves(*(part.to(scores) for part in (self.start, self.end, self.moves)))


def scheme_moves(names: Sequence[str], scheme: Scheme) -> Moves:
    """0 for moves that a scheme allows and `FORBIDDEN` for others; `names` are the labels in the order of their numbers.

    In both schemes I- and E- continue a span of their kind; in `bioes` nothing else follows a span that is still open.
    """
    closed = scheme == "bioes"
    names = in_form(names, standard(names))

    def cost(before: str | None, after: str | None) -> float:
        return 0.0 if may_follow(before, after, closed=closed) else FORBIDDEN

    return Moves(
        torch.tensor([cost(None, name) for name in names]), torch.tensor([cost(name, None) for name in names]),
        torch.tensor([[cost(before, after) for after in names] for before in names]),
    )  # fmt: skip


@register("objective", "crf_labelling")
def crf_labelling(
    *,
    classes: Count = 2,
    set: str = "label",
    encoder: OptionalWidth = 0,
    scheme: Scheme = "bio",
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> CrfLabelling:
    """A label for each word by a conditional random field above a linear map on `hidden`, or on a task model's LSTMs.

    `encoder` and `dropout` as in `sequence_labelling`. `scheme` restricts the sequences that are predicted: `bio` forbids an
    I- (or E-) that continues nothing, `bioes` also a span without its end, `none` forbids nothing. Training is not
    restricted: the sum runs over all sequences. Labels without a prefix, such as parts of speech, may follow one another in
    any scheme. All moves start at 0, which equals `sequence_labelling`.

    Differs: Lample et al. (2016) train by SGD with learning rates that train the moves, too; at rates for fine-tuning they
    hardly change, so a recipe gives heads a higher rate (`layerwise_rates: {heads: 20}`).
    """
    head = LabellingHead(width=width, classes=classes, encoder=encoder, dropout=dropout, clock=clock)
    return CrfLabelling(head, set=set, classes=classes, scheme=scheme)
