"""`change: [arguments: …]`: other arguments than the checkpoint's, such as dropouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloze.changes.change import Change, Shape
from cloze.errors import CheckpointError
from cloze.registry import lookup, names, parameters, register


@register("change", "arguments")
@dataclass(frozen=True)
class Arguments(Change):
    """Give arguments of the network other values than in the checkpoint, `to`: dropout rates, where gradients end.

    In the recipe that is trained they are ordinary values: `--set network.dropout=0.2`.
    """

    to: dict[str, Any]

    only_arguments: ClassVar[bool] = True

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments with these in place; a network without one of them is refused."""
        lacks = [name for name in self.to if name not in parameters(lookup("network", shape.part))]
        if lacks:
            networks = [name for name in names("network") if self.to.keys() <= parameters(lookup("network", name)).keys()]
            kinds = f"a checkpoint whose network is {' or '.join(networks)}" if networks else "another checkpoint"
            raise CheckpointError(
                f"{shape.origin}: {shape.part} has no {', '.join(lacks)}, which this change sets.\n"
                f"  Use {kinds}, or a recipe without this change, such as --task sentence_classification."
            )
        return {**shape.arguments, **self.to}
