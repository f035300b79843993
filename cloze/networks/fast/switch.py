"""Whether fast functions are used at all: `CLOZE_FAST=0` in the environment turns them off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

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
