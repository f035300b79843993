"""The peak learning rate of a small run: one row for each kind of optimizer and of network.

A row without a peak keeps the published one: small runs have not been measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from cloze.recipe.parts import class_of
from cloze.recipe.recipe import PartSpec

if TYPE_CHECKING:
    from cloze.training.optimizers.optimizers import Family

NetworkKind = Literal["pre", "post", "offsets", "recurrent"]

#: The width that peaks are given for.
WIDTH = 128
#: The name of each kind of network in messages.
WORDS: dict[NetworkKind, str] = {
    "pre": "pre-norm layers", "post": "post-norm layers", "offsets": "post-norm layers that begin at offsets",
    "recurrent": "a recurrent network",
}


class PeakLaw(NamedTuple):
    """For families of optimizers and a kind of network: the `peak` at width 128, the power of the width that it is
    proportional to (None: keep the published peak), and the share of the budget for the warm-up (None: none). For models that
    read in one direction, without a memory of earlier rows: the factor of the peak (`causal`) and, if their positions are
    learned, the fewest rows of an update (`causal_rows`)."""

    families: tuple[Family, ...]
    network: NetworkKind
    peak: float | None
    power: float = 0.0
    warmup: float | None = None
    causal: float = 1.0
    causal_rows: int = 4

    def at(self, width: int, *, causal: bool = False) -> float | None:
        """The peak at a width."""
        return None if self.peak is None else self.peak * (width / WIDTH) ** self.power * (self.causal if causal else 1.0)


PEAKS: tuple[PeakLaw, ...] = (
    PeakLaw(("adam",), "pre", 3e-3, -0.5, 0.05, causal_rows=8),
    PeakLaw(("adam",), "post", 1.2e-3, -1.0, 0.1, causal=2.0),
    PeakLaw(("adam",), "offsets", 2e-3, -2.0, 0.1),
    PeakLaw(("adam",), "recurrent", 5e-3, -0.5, 0.05),
    PeakLaw(("muon",), "pre", 9e-3, -0.5, 0.05),
    PeakLaw(("muon",), "post", None, warmup=0.1),
    PeakLaw(("muon",), "offsets", None, warmup=0.1),
    PeakLaw(("muon",), "recurrent", None, warmup=0.05),
    PeakLaw(("lamb",), "post", 6e-3, 0.0, 0.1),
    PeakLaw(("lamb",), "offsets", 6e-3, 0.0, 0.1),
    PeakLaw(("adafactor",), "post", None, warmup=0.1),
    PeakLaw(("adafactor",), "offsets", None, warmup=0.1),
    PeakLaw(("adafactor",), "pre", 3e-2, 0.0, 0.05),
    PeakLaw(("lamb",), "pre", None, warmup=0.05),
    PeakLaw(("sgd", "adagrad"), "recurrent", None),
)


def network_kind(part: PartSpec) -> NetworkKind:
    """The kind of a network: recurrent, or by the place of its norms (post-norm if it does not state one) and its first heads."""
    if class_of("network", part.name).stack == "recurrent":
        return "recurrent"
    norm = part.arguments.get("norm")
    if isinstance(norm, PartSpec) and not class_of("norm", norm.name).norms_sum:
        return "pre"
    return "offsets" if offsets_of(part) else "post"


def offsets_of(part: PartSpec) -> list[int]:
    """The offsets that the heads of a network begin at, if it states some."""
    initial = part.arguments.get("initial")
    return list(initial.arguments.get("offsets") or ()) if isinstance(initial, PartSpec) else []


def learned_positions(part: PartSpec) -> bool:
    """Whether a network has a table of positions."""
    positions = part.arguments.get("positions")
    return isinstance(positions, PartSpec) and positions.name == "learned"


def peak_law(optimizer: str, network: NetworkKind) -> PeakLaw | None:
    """The row for an optimizer and a kind of network; None where there is none."""
    family = class_of("optimizer", optimizer).family
    return next((law for law in PEAKS if law.network == network and family in law.families), None)
