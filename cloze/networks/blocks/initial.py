"""How weights begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cloze.networks.choices import Normal, Truncated, Uniform

if TYPE_CHECKING:
    from cloze.networks.blocks.layer import Layer


Law = Literal["truncated", "normal"]


def draw(weight: Tensor, law: Law, std: float) -> None:
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
                    below.setdefault(weight, len(weights) * (len(layers) if initial.residual == "scaled" else number))
            for weight, number in below.items():
                weight.mul_(1.0 / math.sqrt(number))


#: How much higher a head's score of the token at its offset is than that of other tokens, about, before training.
LEAD = 8.0
GOLDEN = (math.sqrt(5) - 1) / 2


@torch.no_grad()
def attend_to_offsets(
    offsets: Sequence[int], table: nn.Module | None, other_tables: Sequence[Tensor], layers: Sequence[Layer], *, normed: bool,
    project: Tensor | None = None,
) -> None:
    """Let the scores of the first heads be highest, before training, for the tokens at these offsets, one offset for each head.

    `table` is that of learned positions; any other kind changes nothing. Its vectors (P, E) are added to those of `other_tables`
    (·, E). `normed`: the sum is normed; if neither that nor the first layer has a norm, the first layer stays as it is.

    Position p becomes sin(w p) and cos(w p) for E/2 frequencies w that fill (0, π): two positions are then nearly orthogonal, and
    a shift by an offset is a rotation R. The keys of a head are G x and its queries G R x, where G has orthogonal rows. With
    `project` (D, E), x is read back through its transpose. Weights that are zero or have no values stay as they are.
    """
    if not offsets or not isinstance(table, nn.Embedding) or table.weight.is_meta or not table.weight.any():
        return
    positions = table.weight
    deviation = positions.square().mean().sqrt().item()
    rows, pairs = positions.shape[0], positions.shape[1] // 2
    width, number = 2 * pairs, torch.arange(pairs, dtype=torch.float64)
    frequencies = math.pi * (number + number * GOLDEN % 1) / pairs  # evenly spaced ones would repeat after E positions
    angles = torch.arange(rows)[:, None] * frequencies
    share = deviation**2 / (deviation**2 + sum(vectors.square().mean().item() for vectors in other_tables))
    positions[:, :width] = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(positions) * (math.sqrt(2) * deviation)
    back = torch.eye(positions.shape[1]) if project is None else project.T * (positions.shape[1] / project.square().sum())
    attentions = dict.fromkeys(layer.attention for layer in layers[0 if normed or layers[0].place.pre else 1 :])
    heads = [(attention, head * attention.head_width) for attention in attentions for head in range(attention.heads)]
    for (attention, first), offset in zip(heads, offsets, strict=False):
        gain = math.sqrt(LEAD / (attention.head_width * share * attention.scale))
        keys = nn.init.orthogonal_(torch.empty(attention.head_width, positions.shape[1]), gain)
        queries = keys.clone()
        queries[:, :width] = _turned(keys[:, :width], frequencies * offset)
        for start, weight in ((first, queries), (attention.inner_width + first, keys)):
            attention.projections.weight[start : start + attention.head_width] = (weight @ back).to(positions)


def _turned(maps: Tensor, angles: Tensor) -> Tensor:
    """Maps (W, 2K) of sines and cosines that read from an angle what `maps` read from it plus one of the K `angles`."""
    sines, cosines = maps.unflatten(1, (-1, 2)).unbind(2)
    cos, sin = angles.cos().to(maps), angles.sin().to(maps)
    return torch.stack([sines * cos - cosines * sin, sines * sin + cosines * cos], 2).flatten(1)


class SkipInit(TorchFunctionMode):
    """Inside this context, draws by the functions in `_DRAWS` leave zeros.

    For modules whose weights are loaded next, and for those on the meta device, of which only the shapes are wanted. Drawing the
    weights of BERT-base takes seconds, and on the meta device torch imports its compiler for it.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Zeros instead of draws; everything else as it is."""
        arguments = dict(kwargs or {})
        if func not in _DRAWS:
            return func(*args, **arguments)
        drawn: Tensor = args[0] if args else arguments["tensor"]
        with torch.no_grad():
            return drawn if drawn.is_meta else drawn.zero_()


_DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_})
