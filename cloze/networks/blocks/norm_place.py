"""Where the norm of a residual connection stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn


class NormPlace(Protocol):
    """Where the norm of a residual connection stands."""

    pre: bool

    def around(
        self, x: Tensor, change: Callable[..., Tensor], norm: nn.Module, drop: Callable[[Tensor], Tensor],
        take: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """x with `change` of it; `take` gives the tokens of x that `change` gives."""


class Post:
    """norm(x + drop(change(x))) (Vaswani et al., 2017, §3.1)."""

    pre = False

    def around(
        self, x: Tensor, change: Callable[..., Tensor], norm: nn.Module, drop: Callable[[Tensor], Tensor],
        take: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The norm last."""
        made: Tensor = norm(take(x) + drop(change(x)))
        return made


class Pre:
    """x + drop(change(norm(x))) (Radford et al., 2019, §2.3)."""

    pre = True

    def around(
        self, x: Tensor, change: Callable[..., Tensor], norm: nn.Module, drop: Callable[[Tensor], Tensor],
        take: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The norm first."""
        return take(x) + drop(change(norm(x)))
