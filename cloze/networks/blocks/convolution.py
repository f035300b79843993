"""The convolution of what the first layer reads, which is added to what it gives (DeBERTa v2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.selected import Selected
from cloze.networks.choices import Convolution


class InputConvolution(nn.Module):
    """norm(y + activation(drop(convolution of x))) for the input x and the output y of the first layer, (B, L, D) each.

    Source: microsoft/DeBERTa, `ConvLayer` ("nGram Induced Input Encoding"). Parameters: `map`, a `Conv1d` with the weight
    (D, D / groups, kernel), which begins as torch draws it, as there, and `norm`.
    """

    def __init__(self, choice: Convolution, width: int, epsilon: float, dropout: Dropout) -> None:
        super().__init__()
        self.map = nn.Conv1d(width, width, choice.kernel, padding=choice.kernel // 2, groups=choice.groups)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout, self.choice = dropout, choice

    def forward(self, read: Tensor, states: Tensor, block: Tensor | None = None) -> Tensor:
        """The states behind the first layer. Tokens of other blocks (B, L), and padding (0), count as zeros."""
        near = self.dropout(self._convolved(read, block))
        kind = self.choice.activation
        if kind == "tanh":
            near = torch.tanh(near)
        else:
            near = F.relu(near) if kind == "relu" else F.gelu(near, approximate="tanh" if kind == "gelu_tanh" else "none")
        output: Tensor = self.norm(states + near)
        return output

    def _convolved(self, x: Tensor, block: Tensor | None) -> Tensor:
        """(B, L, D) to (B, L, D); with blocks one tap after the other, since what counts as zero depends on the token."""
        across = x.transpose(1, 2)
        if block is None:
            return self.map(across).transpose(1, 2)
        side, length = self.choice.kernel // 2, x.shape[1]
        padded, blocks = F.pad(across, (side, side)), F.pad(block, (side, side))
        weight, bias = self.map.weight, self.map.bias
        sums = None
        for tap in range(self.choice.kernel):
            same = (blocks[:, tap : tap + length] == block) & (block > 0)
            near = padded[..., tap : tap + length] * same[:, None]
            product = F.conv1d(near, weight[..., tap : tap + 1], bias if sums is None else None, groups=self.choice.groups)
            sums = product if sums is None else sums + product
        assert sums is not None  # a kernel has one tap at least
        return sums.transpose(1, 2)


class ConvolvedInput(LayerHook):
    """The hook of one pass that adds the convolution of the stack's input to the output of its first layer."""

    def __init__(self, convolution: InputConvolution, block: Tensor | None, layers: Sequence[nn.Module]) -> None:
        self.convolution, self.block = convolution, block
        self.per_token = len(layers) > 1  # the first layer computes all tokens unless it is also the last

    def enter(self, x: Tensor) -> Tensor:
        """x itself, which is remembered."""
        self.read = x
        return x

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """The states behind the first layer; those of other layers unchanged."""
        return self.convolution(self.read, x, self.block) if number == 0 else x
