"""`change: [train_linker]`: train the entity linker of KnowBert alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloze.changes.change import Change
from cloze.errors import CheckpointError
from cloze.registry import register


@register("change", "train_linker")
@dataclass(frozen=True)
class TrainLinker(Change):
    """Train the entity linker of a `linked` network, and freeze all its other parameters (KnowBert, Peters et al., 2019, §3.4).

    It holds for one run: the network of a later stage is trained as a whole again. Heads are trained, too, if an objective
    teaches them.
    """

    @property
    def needs_checkpoint(self) -> bool:
        """No: a linker can be trained in any network."""
        return False

    def apply(self, network: Any) -> None:
        """Freeze what is not the linker."""
        linker = dict(network.named_children()).get("linker")
        if linker is None:
            raise CheckpointError(f"train_linker: {type(network).__name__} has no entity linker. Use a network of part linked.")
        network.requires_grad_(False)
        linker.requires_grad_(True)
