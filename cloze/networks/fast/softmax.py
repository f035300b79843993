"""The softmax of attention on a CPU, with the addition before it and the dropout after it.

By torch, or for bfloat16 and with numba installed by one pass of compiled code (`softmax_kernels.py`). On one core that is as
fast as torch on two for rows of 128 numbers, and twice as fast for rows of 111. The backward pass is torch's, three times as
fast as compiled code.

Differs: compiled code rounds to bfloat16 only after the softmax, torch also after the addition.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cloze.networks.blocks.dropout import kept
from cloze.networks.fast.switch import bits, pays

_SIMD_WIDTH = 16  # the widest register of compiled code, in floats


def soften(scores: Tensor, added: Tensor | None, keep: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """The softmax of scores (B·H, Q, K) plus `added`, (B or 1, H or 1, Q or 1, K), and the same after dropout by `keep`.

    Either may reuse the memory of the scores; without `keep` both are the same tensor.
    """
    batch, queries, keys = len(scores) // heads, *scores.shape[1:]
    keep = None if keep is None else keep.view_as(scores)
    if pays(scores):
        from cloze.networks.fast.softmax_kernels import soften as soften_rows

        used = scores if keep is None else torch.empty_like(scores)
        wide = np.empty((1, keys + _SIMD_WIDTH), dtype=np.float32)
        whole = None if added is None else _whole_rows(added, keys)
        steps = (0, 0, 0) if whole is None else _steps(whole)
        nothing = np.empty((0, keys), dtype=np.int16)
        soften_rows(
            bits(scores, keys), nothing if whole is None else bits(whole, keys), steps, (heads, queries),
            nothing if keep is None else bits(keep, keys), nothing if keep is None else bits(used, keys), wide,
        )
        return scores, used
    if added is not None:
        scores.view(batch, heads, queries, -1).add_(added)
    probabilities = torch.softmax(scores, dim=-1, out=scores if keep is None else None)
    return probabilities, probabilities if keep is None else kept(probabilities, keep, into=scores)


def _whole_rows(added: Tensor, keys: int) -> Tensor:
    """`added` as (B or 1, H or 1, Q or 1, K), contiguous."""
    added = added.detach().expand(*added.shape[:-1], keys)
    return added.view(*[1] * (4 - added.dim()), *added.shape).contiguous()


def _steps(added: Tensor) -> tuple[int, ...]:
    """The stride of `added` along batch, head and query, in rows; 0 where it broadcasts."""
    rows = [size if added.shape[axis] > 1 else 0 for axis, size in enumerate(added.stride()[:3])]
    return tuple(size // added.shape[-1] for size in rows)
