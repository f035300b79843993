"""What recurrent layers share: the order of reading, padding, the state at the ends, a product with one weight at every step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from cloze.networks.cost import Operations, SequenceSize

Product = Callable[[Tensor, Tensor | None], Tensor]
State = tuple[Tensor, ...]  # of a GRU h (B, H), of an LSTM h (B, H) and c (B, C)

_WORTH_PACKING = 4  # steps; packing a weight costs about as much as one product of few rows


class RecurrentLayer(nn.Module, ABC):
    """One direction of one layer, around the cell that a subclass has. `reverse` reads each row from its last real token.

    `cell` is the width C of the cell; `state_widths` are the widths of the state, of which the first is that of the output, H.
    Parameters: `input.*` and `recurrent.*`, the maps of all gates.
    """

    input: nn.Linear
    recurrent: nn.Linear

    def __init__(self, *, cell: int, state_widths: tuple[int, ...], reverse: bool) -> None:
        super().__init__()
        self.cell, self.width, self.state_widths, self.reverse = cell, state_widths[0], state_widths, reverse

    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw every weight and bias between -`bound` and `bound`, by default 1 / √C as torch does."""
        bound = 1 / math.sqrt(self.cell) if bound is None else bound
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, ends: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """(B, L, I) to (B, L, H), zero at padding, and the state after each row's last token in the order of reading.

        `state`: that before the first step, zeros if not given. `lengths` (B,): tokens before the padding, default L.
        `ends` (B,): after how many steps the state is wanted, if not after the last.
        """
        batch, length = x.shape[:2]
        weight = self.input.weight  # read once, as a change may compute it
        positions = columns_backwards(length, lengths, x.device) if self.reverse else None
        if positions is not None:
            x = reorder(x, positions)
        if state is None:
            state = tuple(x.new_zeros(batch, width) for width in self.state_widths)
        steps = x.to(product_dtype(weight)).transpose(0, 1)  # (L, B, I)
        out, last = self.run_cell(steps, weight, state, lengths if ends is None else ends)
        out = out.transpose(0, 1)
        if lengths is not None:
            out = torch.where(real_tokens(lengths, length), out, 0.0)
        return (out if positions is None else reorder(out, positions)), last

    @abstractmethod
    def run_cell(self, x: Tensor, weight: Tensor, state: State, ends: Tensor | None) -> tuple[Tensor, State]:
        """Steps x (L, B, I) to outputs (L, B, H), and the state after `ends` (B,) steps; `weight` is that of `input`."""

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The products of every token; the state that it meets depends on all weights."""
        counted.add(size, self.input)
        counted.pass_through(self)
        counted.add(size, *self.children(), without=[self.input])


def read_directions(
    layers: Sequence[RecurrentLayer], x: Tensor, state: State | None, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """x (B, L, I) read by a layer for each direction: their outputs and their last states, side by side."""
    outputs, states = zip(*(layer(x, state, lengths) for layer in layers), strict=True)
    return torch.cat(outputs, dim=2), tuple(torch.cat(parts, dim=1) for parts in zip(*states, strict=True))


def count_directions(counted: Operations, layers: Sequence[RecurrentLayer], size: SequenceSize) -> None:
    """Count the products of `read_directions`."""
    branches = [counted.branch() for _ in layers]
    for layer, branch in zip(layers, branches, strict=True):
        branch.add(size, layer)
    counted.add_branches(*branches)


def product_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of products: autocast's where it is on, else the weight's own."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def step_product(weight: Tensor, *, rows: int, steps: int) -> Product:
    """A function (x (rows, in), added (rows, out) or None) → x weightᵀ + added, for a weight (out, in) used `steps` times.

    On a CPU the weight is laid out once as oneDNN wants it: a plain product of few rows spends half of its time on that.
    """
    if steps >= _WORTH_PACKING and _packs(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
        linear = torch.ops.mkldnn._linear_pointwise

        def multiply(x: Tensor, added: Tensor | None) -> Tensor:
            if added is None:
                return linear(x, packed, None, "none", [], "")
            return linear.binary(x, added, packed, None, "add")

        return multiply
    other = weight.t()
    return lambda x, added: x @ other if added is None else torch.addmm(added, x, other)


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN multiplies this weight and torch can lay it out beforehand."""
    return weight.device.type == "cpu" and bool(torch.backends.mkldnn.enabled) and onednn_multiplies(weight.dtype)


@cache
def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Whether oneDNN is available, multiplies numbers of this dtype and adds a bias in the same pass."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def columns_backwards(length: int, lengths: Tensor | None, device: torch.device) -> Tensor:
    """The place that step l of a row reads when rows are read from their last real token: (1 or B, L); padding stays."""
    step = torch.arange(length, device=device)[None]
    if lengths is None:
        return length - 1 - step
    last = lengths[:, None]
    return torch.where(step < last, last - 1 - step, step)


def reorder(x: Tensor, positions: Tensor) -> Tensor:
    """Rows (B, L, D) read at positions (1 or B, L)."""
    return x.gather(1, positions[:, :, None].expand(x.shape))


def real_tokens(lengths: Tensor, length: int) -> Tensor:
    """True at real tokens, (B, L, 1)."""
    return (torch.arange(length, device=lengths.device) < lengths[:, None])[:, :, None]


def weight_gradient(gradient: Tensor, x: Tensor, like: Tensor) -> Tensor:
    """(N, out) and (L, B, in) to the gradient of a weight, in the weight's own dtype."""
    return (gradient.t() @ x.reshape(len(gradient), -1)).to(like.dtype)


def bias_gradient(gradient: Tensor, like: Tensor) -> Tensor:
    """Column sums (N, out), as a product with ones: accumulated in float32 and faster than `sum` in bfloat16."""
    return (gradient.new_ones(1, len(gradient)) @ gradient).view(-1).to(like.dtype)
