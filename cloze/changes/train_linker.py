"""`change: [train_linker]` and `[invert_linkers]`: the beginnings of the two stages of KnowBert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloze.changes.change import Change, Tensors, Transition
from cloze.errors import CheckpointError, propose
from cloze.networks.linked import way_back
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
        linkers = linkers_of(network, "train_linker")
        network.requires_grad_(False)
        for name in linkers if self.only is None else self.only:
            if name not in linkers:
                raise CheckpointError(f"train_linker: the network has no linker {name!r}. {propose(name, linkers)}")
            linkers[name].requires_grad_(True)


@register("change", "invert_linkers")
@dataclass(frozen=True)
class InvertLinkers(Change):
    """Let the way back of each trained linker, from entities to states, start again: as the pseudo-inverse of the way in.

    With it KnowBert's second stage begins, in which everything is trained: `unfreeze` in the authors' code (allenai/kb,
    kb/knowbert.py) does so after it has loaded the linker of the first.
    """

    def apply(self, network: Any) -> None:
        """Refuse a network without linkers."""
        linkers_of(network, "invert_linkers")

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The tensors, with those of each `outward` computed from `inward`."""
        inverted = dict(state)
        for name in linkers_of(transition.new_network, "invert_linkers"):
            inward, outward = ([f"linkers.{name}.{side}.{part}" for part in ("weight", "bias")] for side in ("inward", "outward"))
            inverted.update(zip(outward, way_back(*(state[part] for part in inward)), strict=True))
        return inverted


def linkers_of(network: Any, change: str) -> Any:
    """The linkers of a network by name; a network without linkers is refused."""
    linkers = dict(network.named_children()).get("linkers")
    if linkers is None:
        raise CheckpointError(f"{change}: {type(network).__name__} has no entity linker. Use a network of part linked.")
    return linkers
