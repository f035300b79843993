"""The optimizers there are; importing this registers them."""

from __future__ import annotations

from cloze.training.optimizers import (
    adafactor,  # noqa: F401
    adamax,  # noqa: F401
    averaged,  # noqa: F401
    by_depth,  # noqa: F401
    muon,  # noqa: F401
    optimizers,  # noqa: F401
    stable_adamw,  # noqa: F401
    static_optimizers,  # noqa: F401
)
