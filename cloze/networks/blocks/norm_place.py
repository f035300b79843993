"""Where the norm of a residual connection is applied: after the sum, or before the function that is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Change = Callable[..., Any]


class Post:
    """norm(x + drop(change(x))) (Vaswani et al., 2017, §3.1); `take` selects the tokens of x that `change` returns."""

    pre = False

    def around(self, x: Tensor, change: Change, norm: Change, drop: Change, take: Change) -> Tensor:
        """The norm of x plus `change` of x."""
        made: Tensor = norm(take(x) + drop(change(x)))
        return made


class Pre(Post):
    """x + drop(change(norm(x))) (Radford et al., 2019, §2.3)."""

    pre = True

    def around(self, x: Tensor, change: Change, norm: Change, drop: Change, take: Change) -> Tensor:
        """x plus `change` of its norm."""
        made: Tensor = take(x) + drop(change(norm(x)))
        return made


NormPlace = Post | Pre
