"""Find the texts of a film, and the film of a text, where several neighbouring texts may be right (MIL-NCE)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.networks.cost import Operations
from cloze.objectives.objective import Loss, StepObjective, at_least_float32
from cloze.registry import Given, register


@register("objective", "mil_nce")
class MilNce(StepObjective):
    """Noise-contrastive estimation with several right answers (MIL-NCE; Miech et al., 2020, "End-to-End Learning of Visual
    Representations from Uncurated Instructional Videos", eq. 1), as UniVL's code computes it (`MILNCELoss`).

    `query` and `key` are vectors (E, D) of the text and of the frames of each clip; scores are dot products. `film` of the data
    says which clips are of one film, and which is the middle one of those that were drawn together. Only middle clips have a
    loss: -log of the share that the scores of their frames with the texts of all clips of their film have among these scores,
    those of their frames with the texts of other films, and those of their text with the frames of other films. Metric `correct`:
    the largest of these scores is one of the right ones.

    Like `contrast`, it compares all rows of the step, or those of a `training.group`.
    """

    reads = ("query", "key")
    least_rows = 2
    head: nn.ModuleDict

    def __init__(self, *, width: Given[int]) -> None:
        super().__init__()
        self.takes, self.width = frozenset({"film"}), width
        self.head = nn.ModuleDict()

    def count(self, batch: Batch) -> Tensor:
        """The number of middle clips."""
        return (batch["film"][:, 1] == 0).sum(dtype=torch.float32)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The products of every text with every film."""
        counted.add_row_products(len(batch["film"]) ** 2 * self.width)

    def vectors(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is multiplied: the states themselves."""
        return {name: states[name] for name in self.reads}

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(E, E): each text with the frames of each clip."""
        return states["query"] @ states["key"].t()

    def kept(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """What the other clips need of these: `query` and `key` (E, D), and `film` (E, 2)."""
        return {**self.vectors(states), "film": batch["film"]}

    def compare(self, rows: Mapping[str, Tensor]) -> Loss:
        """The sum of the losses of the middle clips that `kept` was called for."""
        return _loss_of(rows["query"] @ rows["key"].t(), rows["film"])

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The same of the clips of a batch."""
        return _loss_of(scores, batch["film"])


def _loss_of(scores: Tensor, film: Tensor) -> Loss:
    middle = film[:, 1] == 0
    together = film[middle, :1] == film[:, 0]  # (M, E) of M middle clips: the clips of the same film
    of_frames, of_text = at_least_float32(scores.t()[middle]), at_least_float32(scores[middle])  # (M, E) with every text, film
    right = of_frames.masked_fill(~together, float("-inf"))
    wrong = torch.cat([of_frames.masked_fill(together, float("-inf")), of_text.masked_fill(together, float("-inf"))], dim=1)
    losses = torch.cat([right, wrong], dim=1).logsumexp(1) - right.logsumexp(1)
    return Loss(losses.sum(), {"correct": (right.amax(1) > wrong.amax(1)).sum(dtype=torch.float32)})
