"""When fast functions are used (`CLOZE_FAST=0` in the environment turns them off), and which kernel takes a tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cloze import kernels

_on = os.environ.get("CLOZE_FAST", "1") != "0"


def enabled() -> bool:
    """Whether fast functions may be used."""
    return _on


def takes_device(x: Tensor) -> bool:
    """Whether they may be used on the device of `x`: a CPU, outside of torch.compile."""
    return _on and x.device.type == "cpu" and not torch.compiler.is_compiling()


def usable(x: Tensor) -> bool:
    """Whether they may be used on `x`: as `takes_device`, and under autocast only in its dtype."""
    if not takes_device(x):
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


def kernel_for(name: str, x: Tensor) -> Any:
    """The kernel of this name if it takes `x`, contiguous bfloat16 numbers, and is faster than torch; else None."""
    if not _on or x.dtype != torch.bfloat16 or not x.is_contiguous():
        return None
    return kernels.find(name, size=x.numel(), threads=torch.get_num_threads())


def bits(x: Tensor) -> Any:
    """The bits of a contiguous tensor of bfloat16 as int16 of the same shape, in its memory."""
    return x.view(torch.int16).numpy()
