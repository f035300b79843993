"""Modules that observe their inputs in the forward passes of a step, and learn from that once the step is done."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Observer(nn.Module, ABC):
    """A module that notes the largest number of a step in `seen` (), a buffer that no checkpoint holds.

    After the update of a step, training gives every observer the largest number of all micro-batches and ranks, so that what it
    learns does not depend on how a step is divided.
    """

    seen: Tensor

    @abstractmethod
    def learn(self, largest: float) -> None:
        """Take over the largest number of a step, which is above 0."""
