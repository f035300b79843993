"""What recurrent layers share: a product with one weight at every step, the order of reading, the states at the ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor | None], Tensor]

_WORTH_PACKING = 4  # steps; packing a weight costs about as much as one product of few rows


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
