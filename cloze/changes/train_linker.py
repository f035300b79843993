"""`change: [train_linker]`: train entity linkers of KnowBert alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloze.changes.change import Change
from cloze.errors import CheckpointError, propose
from cloze.registry import register


@register("change", "train_linker")
@dataclass(frozen=True)
class TrainLinker(Change):
    """Train the entity linkers of a `linked` network, and freeze all its other parameters (KnowBert, Peters et al., 2019, §3.4).

    `only` names the linkers to train; null: all of them. It holds for one run: the network of a later stage is trained as a whole
    again. Heads are trained, too, if an objective teaches them.
    """

    only: list[str] | None = None

    @property
    def needs_checkpoint(self) -> bool:
        """No: linkers can be trained in any network."""
        return False

    def apply(self, network: Any) -> None:
        """Freeze what is not one of these linkers."""
        linkers = dict(network.named_children()).get("linkers")
        if linkers is None:
            raise CheckpointError(f"train_linker: {type(network).__name__} has no entity linker. Use a network of part linked.")
        network.requires_grad_(False)
        for name in linkers if self.only is None else self.only:
            if name not in linkers:
                raise CheckpointError(f"train_linker: the network has no linker {name!r}. {propose(name, linkers)}")
            linkers[name].requires_grad_(True)
