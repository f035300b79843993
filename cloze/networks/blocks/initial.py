"""How weights begin."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn

Initial = Literal["truncated", "normal", "uniform"]


def draw(weight: Tensor, initial: Initial, deviation: float) -> None:
    """Fill a weight from a normal distribution, cut at two deviations (`truncated`) or not."""
    if initial == "truncated":
        nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    else:
        nn.init.normal_(weight, std=deviation)


def initialise(root: nn.Module, initial: Initial, deviation: float) -> None:
    """Draw all maps and tables below `root` anew; offsets of norms are zero, and so are biases of maps.

    `uniform`: maps and their biases from ±1/√inputs, tables from a normal distribution of deviation 1/√width.
    """
    for module in root.modules():
        if isinstance(module, nn.Embedding):
            own = 1 / math.sqrt(module.embedding_dim) if initial == "uniform" else deviation
            draw(module.weight, initial, own)
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features) if initial == "uniform" else 0.0
            if initial == "uniform":
                nn.init.uniform_(module.weight, -bound, bound)
            else:
                draw(module.weight, initial, deviation)
            if module.bias is not None:
                nn.init.uniform_(module.bias, -bound, bound) if bound else nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
