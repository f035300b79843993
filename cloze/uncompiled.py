"""Functions that torch.compile leaves as they are, and optimizers that do not load it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import unwrap
from typing import Any, ParamSpec, TypeVar

import torch

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)


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


class Eager(torch.optim.Optimizer):
    """The base class of optimizers, before one of torch's, that do not load the compiler.

    torch wraps some methods of its optimizers in functions that import torch.compile, which takes two seconds, to say that it
    leaves them alone. Here what is inside of these functions is called.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        return unwrap(super(Eager, type(self)).step)(self, closure)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their settings."""
        unwrap(super(Eager, type(self)).add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        unwrap(super(Eager, type(self)).zero_grad)(self, set_to_none)


@cache
def eager(kind: type[_Optimizer]) -> type[_Optimizer]:
    """A kind of torch's optimizers that does not load the compiler."""
    return type(kind.__name__, (Eager, kind), {})
