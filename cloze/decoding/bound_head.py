"""A head that reads states of a network under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cloze.batch import Batch


@dataclass(frozen=True)
class BoundHead:
    """A head that calls what it reads by other names than the network does.

    `read` maps its names (`Objective.reads`) to states of the network, as `read:` of a recipe does; "" means the first of them.
    """

    objective: Any
    read: Mapping[str, str]

    @property
    def head(self) -> Any:
        """The module between state and scores."""
        return self.objective.head

    @property
    def set(self) -> str:
        """The set of targets that it was trained on."""
        return str(self.objective.set)

    @property
    def at(self) -> tuple[str, ...]:
        """The fields with the positions it reads."""
        return tuple(self.objective.at)

    @property
    def takes(self) -> frozenset[str]:
        """The fields that it takes."""
        return frozenset(self.objective.takes)

    @property
    def of_texts(self) -> bool:
        """Whether its positions are the ends of two texts."""
        return bool(self.objective.of_texts)

    @property
    def independent(self) -> bool:
        """Whether each of its outputs is a yes or no of its own."""
        return bool(self.objective.independent)

    @property
    def weighs_classes(self) -> bool:
        """Whether its classes may have weights."""
        return bool(self.objective.weighs_classes)

    @property
    def reads(self) -> tuple[str, ...]:
        """The states that it reads."""
        first, *rest = self.objective.reads
        return (self.read.get("", self.read.get(first, first)), *(self.read.get(name, name) for name in rest))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The objective's scores from the network's states."""
        scores: Tensor = self.objective.scores(self._readings(states), batch)
        return scores

    def predict(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The predictions of the trained head from the network's states."""
        predictions: Tensor = self.objective.predict(self._readings(states), batch)
        return predictions

    def _readings(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: states[state] for name, state in zip(self.objective.reads, self.reads, strict=True)}


def bind_head(head: Any, read: Mapping[str, str] | None) -> Any:
    """The head as its network is read: a `BoundHead`, or the head itself if both use the same names."""
    return BoundHead(head, read) if read else head
