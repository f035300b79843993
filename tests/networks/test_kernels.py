"""Attention by kernels that hide their scores is the plain attention; scaled_dot_product_attention runs on a CPU too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cloze.networks import Clock
from cloze.networks.blocks.attention import Attention, AttentionInputs, QueryKeyValue
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.gpu_attention import attend_by_kernel
from cloze.networks.blocks.positions.buckets import Bias
from cloze.networks.blocks.positions.relation import NONE
from cloze.networks.blocks.recurrence.locked import LockedDropout
from cloze.networks.blocks.visibility import Visibility, visibility

CPU = torch.device("cpu")
BLOCK = torch.tensor([[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]])


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]), dtype=torch.double)


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("seen", [
    Visibility("all"), visibility("left_to_right", None, length=5, past=0, device=CPU),
    visibility("open", BLOCK, length=5, past=0, device=CPU), visibility("left_to_right", BLOCK, length=5, past=0, device=CPU),
], ids=["all", "causal", "packed", "packed-causal"])  # fmt: skip
@pytest.mark.parametrize("locked", [False, True])
def test_kernels_give_what_plain_attention_gives(seen: Visibility, biased: bool, scale: float | None, locked: bool) -> None:
    dropout = LockedDropout(0.3, Clock()) if locked else Dropout(0.3, Clock()).eval()
    attention = Attention(width=12, heads=3, dropout=dropout, scale=scale)
    query, key, value = drawn(2, 3, 5, 4), drawn(3, 2, 5, 4).transpose(0, 1), drawn(2, 3, 5, 4) + 1
    relation = Bias(drawn(1, 3, 5, 5)) if biased else NONE
    plain = attention._attend(QueryKeyValue(query, key, value, relation), AttentionInputs(seen), dropout)
    made = attend_by_kernel(query, key, value, replace(seen), relation.bias, attention.scale, dropout)
    torch.testing.assert_close(made, plain)
