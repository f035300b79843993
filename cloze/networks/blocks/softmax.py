"""The softmax of attention with what is added before and dropped after: the path of a CPU.

torch's own passes, or for bfloat16 and where numba is installed one pass of compiled code (`softmax_kernels.py`). On one
core that is as fast as torch's on two for rows of 128 numbers, and twice as fast for rows of 111. The way back is torch's:
there it is three times faster.

Differs: compiled code rounds to bfloat16 after the softmax alone, torch after the sum as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.compiled import has_numba
from cloze.networks.blocks.dropout import kept

_MANY = 1 << 16  # scores from which on compiled code pays
_FEW_THREADS = 2  # with more of them torch is faster
_LANES = 16  # the most that compiled code reads at once


def soften(scores: Tensor, added: Tensor | None, keep: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """The softmax of scores (B·H, Q, K) with `added`, (B or 1, H or 1, Q or 1, K), and what of it `keep` lets through.

    Both are new or in the memory of the scores; without `keep` they are one.
    """
    batch, queries, keys = len(scores) // heads, *scores.shape[1:]
    keep = None if keep is None else keep.view_as(scores)
    if _compiled(scores):
        from cloze.networks.blocks.softmax_kernels import soften as soften_rows

        used = scores if keep is None else torch.empty_like(scores)
        wide = np.empty((1, keys + _LANES), dtype=np.float32)
        whole = None if added is None else _whole_rows(added, keys)
        steps = (0, 0, 0) if whole is None else _steps(whole)
        arrays = [_bits(x, keys) for x in (scores, whole, keep, None if keep is None else used)]
        soften_rows(arrays[0], arrays[1], steps, (heads, queries), arrays[2], arrays[3], wide)
        return scores, used
    if added is not None:
        scores.view(batch, heads, queries, -1).add_(added)
    shares = torch.softmax(scores, dim=-1, out=scores if keep is None else None)
    return shares, shares if keep is None else kept(shares, keep, into=scores)


def _compiled(scores: Tensor) -> bool:
    many = scores.dtype == torch.bfloat16 and scores.numel() >= _MANY and torch.get_num_threads() <= _FEW_THREADS
    return many and has_numba()


def _bits(x: Tensor | None, keys: int) -> Any:
    """Rows of bits, none of nothing."""
    return np.empty((0, keys), dtype=np.int16) if x is None else x.view(torch.int16).view(-1, keys).numpy()


def _whole_rows(added: Tensor, keys: int) -> Tensor:
    """(B or 1, H or 1, Q or 1, K) of what broadcasts to it."""
    added = added.detach().expand(*added.shape[:-1], keys)
    return added.view(*[1] * (4 - added.dim()), *added.shape).contiguous()


def _steps(added: Tensor) -> tuple[int, ...]:
    """How many rows of what is added a step along batch, head and query takes."""
    rows = [size if added.shape[axis] > 1 else 0 for axis, size in enumerate(added.stride()[:3])]
    return tuple(size // added.shape[-1] for size in rows)
