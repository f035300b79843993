"""How weights begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cloze.networks.choices import Normal, Truncated, Uniform


def draw(weight: Tensor, law: Literal["truncated", "normal"], std: float) -> None:
    """Fill a weight from a normal distribution, cut at two standard deviations (`truncated`) or not."""
    if law == "truncated":
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
    else:
        nn.init.normal_(weight, std=std)


def initialise(root: nn.Module, initial: Truncated | Normal | Uniform) -> None:
    """Redraw all maps and tables below `root`; offsets of norms are zero, and so are biases of maps.

    `uniform`: maps and their biases from ±1/√inputs, tables from a normal distribution with standard deviation 1/√width.
    """
    for module in root.modules():
        if isinstance(module, nn.Embedding):
            if isinstance(initial, Uniform):
                draw(module.weight, "normal", 1 / math.sqrt(module.embedding_dim))
            else:
                draw(module.weight, initial.law, initial.std)
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features) if isinstance(initial, Uniform) else 0.0
            if isinstance(initial, Uniform):
                nn.init.uniform_(module.weight, -bound, bound)
            else:
                draw(module.weight, initial.law, initial.std)
            if module.bias is not None:
                nn.init.uniform_(module.bias, -bound, bound) if bound else nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)


def initialise_apart(
    initial: Truncated | Normal, positions: Sequence[nn.Module | None], stacks: Sequence[Sequence[Sequence[Tensor]]]
) -> None:
    """What `initial` draws in another way: learned positions, and of each layer of each stack the maps into the residual."""
    for table in positions:
        if initial.positions is not None and isinstance(table, nn.Embedding):
            draw(table.weight, initial.law, initial.positions)
    if initial.residual == "as_drawn":
        return
    with torch.no_grad():
        for layers in stacks:
            below: dict[Tensor, int] = {}  # a shared map once
            for number, weights in enumerate(layers, 1):
                for weight in weights:
                    below.setdefault(weight, len(weights) * (number if initial.residual == "scaled_by_depth" else len(layers)))
            for weight, number in below.items():
                weight.mul_(1.0 / math.sqrt(number))


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
