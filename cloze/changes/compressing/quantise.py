"""`change: [quantise: 8]`: weights of a few bits, as floats that have no other values than those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from cloze.bounds import Count
from cloze.changes.change import Change
from cloze.changes.maps import whole_maps
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import compute_weight
from cloze.networks.blocks.projections import STACKED
from cloze.registry import register


class Rounded(NamedTuple):
    """A rounded weight: `integers` (out, in), the `step` of each row (out, 1), and what a 0 stands for, `zero` (out, 1)."""

    integers: Tensor
    step: Tensor
    zero: Tensor

    @property
    def floats(self) -> Tensor:
        """What the integers stand for, (out, in)."""
        return self.integers * self.step + self.zero


def round_weight(weight: Tensor, *, bits: int, groups: int = 1, symmetric: bool = True) -> Rounded:
    """A weight (out, in) with 2^bits values, or one less if they are symmetric, in each of `groups` groups of its rows.

    Symmetric (Zafrir et al., 2019, §3.1): the integers −(2^(bits−1) − 1) … 2^(bits−1) − 1, the largest of them for the largest
    magnitude of the group. Otherwise (Shen et al., 2020, §3): 0 … 2^bits − 1, from the smallest to the largest weight of the
    group. Groups are of consecutive rows and equally large up to one row. The error is at most half a step.
    """
    rows = len(weight)
    group = torch.arange(rows, device=weight.device) * groups // rows
    most = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1

    def extreme(values: Tensor, of: str) -> Tensor:
        extremes = values.new_zeros(groups).scatter_reduce(0, group, values, of, include_self=False)
        return extremes[group][:, None]

    high = extreme((weight.abs() if symmetric else weight).amax(1), "amax")
    low = torch.zeros_like(high) if symmetric else extreme(weight.amin(1), "amin")
    step = (high - low) / most
    step = torch.where(step > 0, step, 1.0)  # a group of equal weights has no range
    return Rounded(((weight - low) / step).round().clamp(-most if symmetric else 0, most), step, low)


class _Through(torch.autograd.Function):
    """The rounded weight forward, the gradient unchanged backward (the straight-through estimator)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rounded: Tensor) -> Tensor:
        return rounded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def pass_gradient(x: Tensor, rounded: Tensor) -> Tensor:
    """The values of `rounded` with the gradient of x, as if nothing were rounded."""
    output: Tensor = _Through.apply(x, rounded)
    return output


class Rounding(nn.Module):
    """A weight with the values of `bits` bits; its gradient passes unchanged. See `round_weight`."""

    def __init__(self, *, bits: int, groups: int, symmetric: bool) -> None:
        super().__init__()
        self.bits, self.groups, self.symmetric = bits, groups, symmetric

    def rounded(self, weight: Tensor) -> Rounded:
        """The integers that stand for a weight (out, in)."""
        return round_weight(weight.detach().float(), bits=self.bits, groups=self.groups, symmetric=self.symmetric)

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) to (out, in)."""
        if weight.is_meta:
            return weight
        return pass_gradient(weight, self.rounded(weight).floats.to(weight.dtype))


@register("change", "quantise")
@dataclass(frozen=True)
class Quantise(Change):
    """Weights of `bits` bits in every linear map above the embeddings, and in the table of tokens (`embeddings`).

    A network of vectors, such as `word_vectors`, has tables alone: the rows of words and n-grams, and of contexts, each table
    with `groups` groups of consecutive rows.

    `symmetric` rounding with one range per map is that of Q8BERT (Zafrir et al., 2019, §3.1); Q-BERT (Shen et al., 2020, §3) has
    asymmetric ranges for each of `groups` groups of output rows, for example one per head. Stacked projections have these groups
    in each of queries, keys and values. `on` names linear maps as in `lora`. In training the own weights stay exact, the network
    computes with the rounded ones, and gradients pass unchanged. Export writes the rounded weights as floats.

    `bits` may also be a list with a number for each layer, in the order of the network; maps outside of layers get the largest.
    `cloze compress --bits 2,4` chooses it by the curvature of the loss. `embeddings` may be a number of bits for the table alone.

    Differs: in Q-BERT, no gradient passes where a weight is out of range; the ranges here are those of the weights themselves, so
    no weight is. A group without a range keeps its value.
    """

    bits: Count | tuple[Count, ...] = 8
    groups: Count = 1
    symmetric: bool = True
    embeddings: bool | Count = True
    on: tuple[str, ...] | None = None

    lasts: ClassVar[bool] = True

    @property
    def needs_checkpoint(self) -> bool:
        """A network may learn from the start with few bits."""
        return False

    def apply(self, network: Any) -> None:
        """Round every chosen map, and the table of tokens."""
        of_maps, largest = self._bits_of_maps(network)
        tables = network.compressible if self.embeddings else ()
        maps = whole_maps(network, self.on, of="quantise", tables=tables)
        for path, linear in maps:
            name = path.rpartition(".")[2]
            groups = self.groups * len(STACKED.get(name, (name,)))
            self._round(linear, of_maps.get(id(linear), largest), groups, name)
        for table in tables:
            bits = largest if self.embeddings is True else self.embeddings
            self._round(table, bits, 1 if maps else self.groups, "the table of tokens" if maps else "its table of vectors")

    def _bits_of_maps(self, network: Any) -> tuple[dict[int, int], int]:
        """The bits of the maps of each layer, by identity, and the largest number."""
        layers = network.depth_groups()[1:]
        levels = [self.bits] * max(len(layers), 1) if isinstance(self.bits, int) else list(self.bits)
        fewest = 2 if self.symmetric else 1
        embedding_bits = [] if isinstance(self.embeddings, bool) else [self.embeddings]
        if wrong := [bits for bits in (*levels, *embedding_bits) if not fewest <= bits <= 16]:
            raise CheckpointError(f"quantise: {wrong[0]} bits; expected {fewest} to 16.")
        if not isinstance(self.bits, int) and len(levels) != len(layers):
            raise CheckpointError(
                f"quantise: bits for {len(levels)} layers; {type(network).__name__} has {len(layers)}. Write one number for each "
                "of them, or one for all."
            )
        of_maps = {id(module): bits for bits, layer in zip(levels, layers, strict=False) for module in layer.modules()}
        return of_maps, max(levels, default=0)

    def _round(self, owner: Any, bits: int, groups: int, name: str) -> None:
        height = len(next(owner.parameters()))
        if groups > height:
            raise CheckpointError(f"quantise: {self.groups} groups are more than the rows of {name} ({height}). Write fewer.")
        compute_weight(owner, "quantise", Rounding(bits=bits, groups=groups, symmetric=self.symmetric))
