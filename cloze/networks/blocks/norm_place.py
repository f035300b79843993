"""Where the norm of a residual connection stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Change = Callable[..., Any]


class Post:
    """norm(x + drop(change(x))) (Vaswani et al., 2017, §3.1); `take` gives the tokens of x that `change` gives."""

    pre = False

    def around(self, x: Tensor, change: Change, norm: Change, drop: Change, take: Change) -> Tensor:
        """x with `change` of it."""
        made: Tensor = norm(take(x) + drop(change(x)))
        return made


class Pre(Post):
    """x + drop(change(norm(x))) (Radford et al., 2019, §2.3)."""

    pre = True

    def around(self, x: Tensor, change: Change, norm: Change, drop: Change, take: Change) -> Tensor:
        """x with `change` of its norm."""
        made: Tensor = take(x) + drop(change(norm(x)))
        return made


NormPlace = Post | Pre
