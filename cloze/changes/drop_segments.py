"""`change: [drop_segments]`: a network without segments from one with them, as DistilBERT is from BERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloze.changes.change import Change, Shape, Tensors, Transition
from cloze.errors import CheckpointError
from cloze.registry import lookup, parameters, register

_TABLE = ".segments.weight"


@register("change", "drop_segments")
@dataclass(frozen=True)
class DropSegments(Change):
    """Leave out the table of segments, without a replacement (DistilBERT; Sanh et al., 2019, §3).

    The authors' `extract_distilbert.py` does not copy it either. A network that has none stays as it is.
    """

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments with no segments."""
        if "segments" not in parameters(lookup("network", shape.part)):
            raise CheckpointError(
                f"{shape.origin}: drop_segments: {shape.part} has no segments.\n"
                "  Start from a Transformer encoder, or leave the change out in a recipe of your own."
            )
        return {**shape.arguments, "segments": 0}

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The network's tensors without the table, and without that of n-grams (ZEN)."""
        return {name: tensor for name, tensor in state.items() if not name.endswith(_TABLE)}
