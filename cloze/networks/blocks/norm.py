"""The two norms of the family: layer norm, with or without an offset, and the norm by root mean square."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Normalisation = Literal["layer", "rms"]


class RootMeanSquare(nn.RMSNorm):
    """`nn.RMSNorm` in float32 whatever comes in, as in T5's code; what goes out has the dtype of what came in."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return F.rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps).to(x.dtype)


def make_norm(kind: Normalisation, width: int, epsilon: float, *, bias: bool = True) -> nn.Module:
    """`layer`: Ba et al., 2016, its offset only with `bias`. `rms`: Zhang & Sennrich, 2019, §3, a gain and no offset."""
    return RootMeanSquare(width, eps=epsilon) if kind == "rms" else nn.LayerNorm(width, eps=epsilon, bias=bias)
