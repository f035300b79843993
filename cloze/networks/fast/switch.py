"""When fast functions are used (`CLOZE_FAST=0` in the environment turns them off), and when compiled code pays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cloze.compiled import has_numba

_on = os.environ.get("CLOZE_FAST", "1") != "0"


def enabled() -> bool:
    """Whether fast functions may be used."""
    return _on


def near(x: Tensor) -> bool:
    """Whether they may be used on the device of `x`: a CPU, outside of torch.compile."""
    return _on and x.device.type == "cpu" and not torch.compiler.is_compiling()


def usable(x: Tensor) -> bool:
    """Whether they may be used on `x`: as `near`, and under autocast only in its dtype."""
    if not near(x):
        return False
    return not torch.is_autocast_enabled("cpu") or x.dtype == torch.get_autocast_dtype("cpu")


@contextmanager
def switched(on: bool) -> Iterator[None]:
    """Fast functions on or off for a while, for tests and benchmarks."""
    global _on
    before, _on = _on, on
    try:
        yield
    finally:
        _on = before


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
