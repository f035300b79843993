"""Attention by GPU kernels, which do not return scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.visibility import Visibility


def attend_by_kernel(
    query: Tensor, key: Tensor, value: Tensor, seen: Visibility, bias: Tensor | None, scale: float, dropout: Dropout
) -> Tensor:
    """Flash attention where it is available, also for packed rows; else the kernel that takes a mask or a `bias` of scores.

    Differs: the kernels draw dropout from the device's generator, which a stack seeds by the clock; the numbers depend on the
    row's place in the micro-batch, not on the row alone.
    """
    value, rate = dropout.for_kernel(value)
    if seen.starts is not None and bias is None and _flash_takes(query):
        longest = query.shape[2]
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
        causal = seen.order == "left_to_right"
        back, ahead = seen.reach or (None, None)
        outputs = torch.ops.aten._flash_attention_forward(
            *rows, seen.starts, seen.starts, longest, longest, rate, causal, False, scale=scale, window_size_left=back,
            window_size_right=ahead,
        )
        return outputs[0].view(query.shape[0], longest, *query.shape[1::2]).transpose(1, 2)
    if bias is None:
        mask, causal = seen.mask, seen.kind == "causal"
    else:
        hidden = seen.bias(query.dtype, key.shape[2], query.device)
        mask, causal = bias.to(query.dtype) if hidden is None else bias.to(query.dtype) + hidden, False
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=rate, is_causal=causal, scale=scale
    )


def _flash_takes(query: Tensor) -> bool:
    width, half = query.shape[-1], query.dtype in (torch.bfloat16, torch.float16)
    return half and width % 8 == 0 and width <= 256 and torch.backends.cuda.is_flash_attention_available()
