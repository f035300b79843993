"""The softmax of attention with what is added before and dropped after: the path of a CPU.

torch's own passes, or for bfloat16 and where numba is installed one pass of compiled code (`softmax_kernels.py`). On one
core that is as fast as torch's on two for rows of 128 numbers, and twice as fast for rows of 111. The way back is torch's:
there it is three times faster.

Differs: compiled code rounds to bfloat16 after the softmax alone, torch after the sum as well.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cloze.networks.blocks.dropout import kept
from cloze.networks.fast.handing import bits, pays

_SIMD_WIDTH = 16  # the widest register of compiled code, in floats


def soften(scores: Tensor, added: Tensor | None, keep: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """The softmax of scores (B·H, Q, K) with `added`, (B or 1, H or 1, Q or 1, K), and what of it `keep` lets through.

    Both are new or in the memory of the scores; without `keep` they are one.
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
    """(B or 1, H or 1, Q or 1, K) of what broadcasts to it."""
    added = added.detach().expand(*added.shape[:-1], keys)
    return added.view(*[1] * (4 - added.dim()), *added.shape).contiguous()


def _steps(added: Tensor) -> tuple[int, ...]:
    """How many rows of what is added a step along batch, head and query takes."""
    rows = [size if added.shape[axis] > 1 else 0 for axis, size in enumerate(added.stride()[:3])]
    return tuple(size // added.shape[-1] for size in rows)
