"""How weights begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


class Undrawn(TorchFunctionMode):
    """Inside this context, random draws leave zeros.

    For modules whose weights are loaded next, and for those on the meta device, of which only the shapes are wanted. Drawing the
    weights of BERT-base takes seconds, and on the meta device torch imports its compiler for it.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Zeros instead of draws; everything else as it is."""
        given = dict(kwargs or {})
        if func not in _DRAWS:
            return func(*args, **given)
        drawn: Tensor = args[0] if args else given["tensor"]
        with torch.no_grad():
            return drawn if drawn.is_meta else drawn.zero_()


_DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_})
