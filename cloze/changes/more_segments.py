"""`change: [more_segments]`: a network gets further segments for a task, such as those of answers and of second pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cloze.bounds import Count, Natural
from cloze.changes.change import Change, Shape, Tensors, Transition
from cloze.errors import CheckpointError
from cloze.registry import lookup, parameters, register

_TABLE = ".segments.weight"


@register("change", "more_segments")
@dataclass(frozen=True)
class MoreSegments(Change):
    """Give the network `to` segments; those that it lacks begin as copies of the segment `like` (ChenRocks/UNITER,
    `init_type_embedding` in `model/vcr.py` and `model/nlvr2.py`). A network that has as many stays as it is."""

    to: Count
    like: Natural = 0

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments with as many segments."""
        if "segments" not in parameters(lookup("network", shape.part)):
            raise CheckpointError(
                f"{shape.origin}: more_segments: {shape.part} has no segments.\n"
                "  Start from a Transformer encoder, or leave the change out in a recipe of your own."
            )
        count = int(shape.arguments["segments"])
        self._require(shape.origin, count)
        return {**shape.arguments, "segments": max(count, self.to)}

    def _require(self, origin: str, count: int) -> None:
        """A `CheckpointError` unless a network with so many segments has the one that is copied."""
        if self.like >= count:
            raise CheckpointError(
                f"{origin}: more_segments: like: {self.like}, and the network has {count} segments, counted from 0.\n"
                f"  Write a number below {count}, or start from a checkpoint with segments."
            )

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The network's tensors, its tables of segments with further rows."""
        count = int(transition.new_arguments["segments"])
        self._require(transition.old_shape.origin, int(transition.old_shape.arguments["segments"]))
        return {
            name: torch.cat([tensor, tensor[self.like].expand(count - len(tensor), -1)]) if name.endswith(_TABLE) else tensor
            for name, tensor in state.items()
        }
