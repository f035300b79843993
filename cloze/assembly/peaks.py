"""The peak learning rate of a small run: one row for each kind of optimiser and of network.

A row without a peak keeps the published one: small runs have not been measured.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cloze.assembly.recipe import PartSpec

NetworkKind = Literal["pre", "post", "recurrent"]

#: Networks that read one token after another.
RECURRENT = frozenset({"lstm", "bilstm", "two_sided_lstm", "gru", "lstm_encoder_decoder"})
#: The width that peaks are given for.
WIDTH = 128
#: The name of each kind of network in messages.
WORDS: dict[NetworkKind, str] = {
    "pre": "pre-norm layers", "post": "post-norm layers", "recurrent": "a recurrent network",
}


class PeakLaw(NamedTuple):
    """For optimisers whose names end alike and a kind of network: the `peak` at width 128, the power of the width that it is
    proportional to (None: keep the published peak), and the share of the budget for the warm-up (None: none)."""

    optimizers: tuple[str, ...]
    network: NetworkKind
    peak: float | None
    power: float = 0.0
    warmup: float | None = None

    def at(self, width: int) -> float | None:
        """The peak at a width."""
        return None if self.peak is None else self.peak * (width / WIDTH) ** self.power


_ADAM = ("adam", "adamw")
PEAKS: tuple[PeakLaw, ...] = (
    PeakLaw(_ADAM, "pre", 3e-3, -0.5, 0.05),
    PeakLaw(_ADAM, "post", 1.2e-3, -1.0, 0.1),
    PeakLaw(_ADAM, "recurrent", 5e-3, -0.5, 0.05),
    PeakLaw(("lamb", "adafactor"), "pre", None, warmup=0.05),
    PeakLaw(("lamb", "adafactor"), "post", None, warmup=0.1),
    PeakLaw(("sgd", "adagrad"), "recurrent", None),
)


def network_kind(part: PartSpec) -> NetworkKind:
    """The kind of a network: recurrent, or by the place of its norms (post-norm if it does not state one)."""
    if part.name in RECURRENT:
        return "recurrent"
    norm = part.arguments.get("norm")
    return "pre" if isinstance(norm, PartSpec) and norm.name == "pre" else "post"


def peak_law(optimizer: str, network: NetworkKind) -> PeakLaw | None:
    """The row for an optimiser and a kind of network; None where there is none."""
    return next((law for law in PEAKS if law.network == network and optimizer.endswith(law.optimizers)), None)
