"""The optimizers there are; importing this registers them."""

from __future__ import annotations

from cloze.training import adafactor, averaged, muon, optimizers, stable_adamw, static_optimizers  # noqa: F401
