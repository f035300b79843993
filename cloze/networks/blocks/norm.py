"""The two norms of the family: layer norm, with or without an offset, and the norm by root mean square."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.choices import Norm


class RootMeanSquare(nn.RMSNorm):
    """`nn.RMSNorm` in float32 whatever comes in, as in T5's code; what goes out has the dtype of what came in."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return F.rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps).to(x.dtype)


def make_norm(kind: Norm, width: int, epsilon: float) -> nn.Module:
    """`layer`: Ba et al., 2016, with or without offsets. `rms`: Zhang & Sennrich, 2019, §3, a gain and no offset."""
    if kind == "rms":
        return RootMeanSquare(width, eps=epsilon)
    return nn.LayerNorm(width, eps=epsilon, bias=kind == "layer")
