"""Passing bfloat16 tensors to compiled code: when that pays, and in which form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloze.compiled import has_numba
from cloze.networks.fast.switch import enabled

_MANY = 1 << 16  # numbers from which on the cost of the call is negligible
_FEW_THREADS = 2  # with more of them torch's own passes are faster than one in compiled code


def can_be_handed(x: Tensor) -> bool:
    """Whether compiled code is available for `x`: many bfloat16 numbers, contiguous."""
    return x.dtype == torch.bfloat16 and x.numel() >= _MANY and x.is_contiguous() and has_numba() and enabled()


def pays(x: Tensor) -> bool:
    """Whether a pass of compiled code over `x` on one core is faster than torch's passes on all."""
    return torch.get_num_threads() <= _FEW_THREADS and can_be_handed(x)


def bits(x: Tensor, width: int) -> Any:
    """The bits of a contiguous tensor as rows of `width` int16, in its memory; a mask of int16 unchanged."""
    return x.view(torch.int16).view(-1, width).numpy()
