"""Functions that torch.compile leaves as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def uncompiled(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """`function`, which runs as it is inside a compiled network.

    Unlike `torch.compiler.disable` as a decorator, it does not load the compiler, which takes a second and a half, before
    anything is compiled.
    """

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        if torch.compiler.is_compiling():
            output: _Made = torch.compiler.disable(function)(*args, **kwargs)
            return output
        return function(*args, **kwargs)

    return call
