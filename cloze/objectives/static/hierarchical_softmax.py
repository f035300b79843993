"""A softmax over the vocabulary as a walk down a Huffman tree: word2vec's other objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.networks.cost import Operations
from cloze.objectives.objective import Loss
from cloze.objectives.static.huffman import Codes, huffman
from cloze.objectives.static.output_words import OutputWords
from cloze.registry import Given, register


class _Paths(NamedTuple):
    points: Tensor  # (V, depth), 0 after the end of a path
    signs: Tensor   # (V, depth): +1 for bit 0, -1 for bit 1, 0 after the end


@register("objective", "hierarchical_softmax")
class HierarchicalSoftmax(OutputWords):
    """-Σ log σ(± h · v_node) along the target's Huffman path (Mikolov et al., 2013b, §2.1), summed over the targets.

    + for bit 0 as in word2vec's code; the probabilities of all words add up to 1. Roles such as [UNK] are not in the tree; as
    targets they cost nothing. Differs: word2vec puts its sentence end at the top of the tree whatever its count; here the tree
    is optimal.

    Reads `hidden`, or another state by `read:` (`context` for CBOW). Metric `correct`: targets for which every branch of the
    path is the more probable one. Parameters: `head.weight` (V - 1, D), one row per inner node, zero at first, so that each
    branch costs ln 2.
    """

    vectors_from = "windows"

    def __init__(
        self,
        *,
        set: str = "main",
        width: Given[int],
        vocab_size: Given[int],
        counts: Given[NDArray[np.int64] | None] = None,
        spellings: Given[Sequence[str] | None] = None,
    ) -> None:
        super().__init__(
            set=set, rows=max(vocab_size - 1, 1), width=width, vocab_size=vocab_size, counts=counts, spellings=spellings
        )
        self._paths: dict[torch.device, _Paths] = {}  # batches are counted on the CPU before they move

    def counts_changed(self) -> None:
        """Rebuild the tree when it is next needed."""
        self._paths = {}

    @property
    def codes(self) -> Codes:
        """The Huffman codes of the counts."""
        return huffman(self.counts.cpu().numpy())

    def _walks(self, device: torch.device) -> _Paths:
        if device not in self._paths:
            codes = self.codes
            signs = np.where(codes.bits < 0, 0, 1 - 2 * codes.bits).astype(np.int8)
            points = np.maximum(codes.points, 0)
            self._paths[device] = _Paths(torch.from_numpy(points).to(device), torch.from_numpy(signs).to(device))
        return self._paths[device]

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Every target meets as many nodes as the deepest word has above it."""
        depth = self._walks(batch[self.targets_field].device).points.shape[1]
        weight = self.head.weight
        counted.add_weight_products(batch[self.positions_field].shape[0] * depth * weight.shape[1], trained=weight.requires_grad)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, depth): the score of every correct branch, infinite after the end of a path."""
        targets = batch[self.targets_field].long()
        paths = self._walks(targets.device)
        points, signs = paths.points[targets].long(), paths.signs[targets]
        rows = self.rows(states, batch)[:, :, None].to(self.head.weight.dtype)
        # (M, depth, D) by (M, D, 1).
        scores = torch.bmm(F.embedding(points, self.head.weight), rows).squeeze(2)
        return (scores * signs).masked_fill(signs == 0, torch.inf)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        logits = scores if scores.dtype == torch.float64 else scores.float()
        return self.summed(F.softplus(-logits).sum(1), (logits.detach() > 0).all(1), batch)
