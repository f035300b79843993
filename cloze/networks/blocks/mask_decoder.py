"""The enhanced mask decoder of DeBERTa: absolute positions join the states right before masked tokens are predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.inputs.embeddings import add_positions


class MaskDecoder(nn.Module):
    """The last layer, `steps` times, for queries that begin as the layer's input plus vectors of absolute positions; keys and
    values are always those of that input (He et al., 2021, §3.2; microsoft/DeBERTa, `EnhancedMaskDecoder`).

    Parameter: `positions` (P, D). The layer belongs to the network.
    """

    def __init__(self, *, steps: int, max_length: int, width: int) -> None:
        super().__init__()
        self.steps = steps
        self.positions = nn.Embedding(max_length, width)

    def forward(self, read: Tensor, layer: Any, inputs: AttentionInputs, position_ids: Tensor | None) -> Tensor:
        """(B, L, D), what the last `layer` reads, to (B, L, D)."""
        x = add_positions(read, self.positions, position_ids)
        inputs = replace(inputs, source=read, cache=None, record=None)
        for _ in range(self.steps):
            x = layer(x, inputs)
        return x
