"""Penalties on large states of a recurrent network, or on states that change fast (AR and TAR)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.objectives.objective import SEQUENCES, Loss, Objective
from cloze.registry import register


@register("objective", "activation_penalty")
class ActivationPenalty(Objective):
    """The mean square of a state's numbers, or of their changes from token to token (Merity et al., 2018, §4.6).

    `of: size` is AR and reads `hidden` (B, L, D), after its dropout; `of: change` is TAR and reads `undropped`. Padding and
    the boundaries of texts do not count. The penalty acts in training only, so that held-out losses do not include it. No
    parameters.
    """

    def __init__(self, *, of: Literal["size", "change"] = "size") -> None:
        super().__init__()
        self.of = of
        self.reads = ("hidden",) if of == "size" else ("undropped",)
        self.takes, self.optional = frozenset(), SEQUENCES | {"block"}
        self.head = nn.Identity()

    def count(self, batch: Batch) -> Tensor:
        """The number of tokens, or of neighbours in one text."""
        return self._counted(batch).sum(dtype=torch.float32)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The mean square of every token's numbers (B, L), or of their changes (B, L - 1), in float32 or wider."""
        state = states[self.reads[0]]
        state = state if state.dtype == torch.float64 else state.float()
        if self.of == "change":
            state = state[:, 1:] - state[:, :-1]
        return state.square().mean(-1)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum over what counts; zero when not training."""
        if not self.training:
            return Loss(scores.sum() * 0.0, {})
        return Loss(torch.where(self._counted(batch), scores, 0.0).sum(), {})

    def _counted(self, batch: Batch) -> Tensor:
        block = batch["block"] if "block" in batch else torch.ones(sequence(batch).shape[:2], device=sequence(batch).device)
        if self.of == "size":
            return block > 0
        return (block[:, 1:] == block[:, :-1]) & (block[:, 1:] > 0)
