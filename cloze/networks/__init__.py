"""Networks: tensors in, states out. Part of the model tower.

May import: fields, batch, registry, rng, errors and torch; never the data tower, never objectives.
To add one: one file with a class decorated `@register("network", name)`, and its import line below.
Contract: tests/networks/ (leaks, padding, packing, gradients, state-dict round trip).
"""

from __future__ import annotations

from cloze.networks.clock import Clock
from cloze.networks.network import Network, StateKind, States
from cloze.networks.transformer import Cache, Transformer

__all__ = ["Cache", "Clock", "Network", "StateKind", "States", "Transformer"]
