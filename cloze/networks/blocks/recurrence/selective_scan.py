"""The selective scan of Mamba as one autograd function (Gu and Dao, 2023, §3.2 and §3.3.2), in plain torch.

h[t] = exp(Δ[t] A) h[t-1] + Δ[t] B[t] x[t] and y[t] = C[t] h[t], for every channel with N numbers of state. A row is read in
chunks: what does not depend on the state before is computed for a chunk at once, and a step is one multiply-add in place. Decays
are multiplied, never divided by, so nothing overflows. As in the paper, only the state before each chunk is kept for the backward
pass, which computes the others again. On a CPU this takes a third to a quarter of the time of a loop that autograd records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloze.uncompiled import uncompiled

_CHUNK, _CHUNK_OFF_CPU = 8, 64  # steps: so that a chunk stays in a cache, or kernels are few
_FORGET = 1e30  # a step so long that nothing of the state before is left


@uncompiled
def selective_scan(
    x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, *, restarts: Tensor | None = None,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs (B, L, E) and the last state (B, N, E), in float32 or, for doubles, float64.

    `x` (B, L, E); `steps` Δ > 0 (B, L, E); `rates` A < 0 (N, E); `write` B and `read` C (B, L, N). Where `restarts` (B, L) is
    true, the state before counts as zero. `start` (B, N, E) is the state before the row, zero if not given. Neither it nor the
    last state passes gradients on.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        x, steps, rates, write, read = (tensor.to(dtype) for tensor in (x, steps, rates, write, read))
        if start is None:
            start = x.new_zeros(len(x), *rates.shape)
        outputs: tuple[Tensor, Tensor] = _Scan.apply(x, steps, rates, write, read, restarts, start.to(dtype))
    return outputs


def _chunks(x: Tensor) -> Iterator[slice]:
    size = _CHUNK if x.device.type == "cpu" else _CHUNK_OFF_CPU
    return (slice(first, first + size) for first in range(0, x.shape[1], size))


def _run(x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, restarts: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """The decays and the states of a chunk, (B, Q, N, E) both, after the state (B, N, E)."""
    lengths = steps if restarts is None else steps.masked_fill(restarts[:, :, None], _FORGET)
    decays = (lengths[:, :, None] * rates).exp_()
    states = (steps * x)[:, :, None] * write[..., None]
    for t in range(x.shape[1]):
        state = states[:, t].addcmul_(decays[:, t], state)
    return decays, states


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, restarts: Tensor | None, start: Tensor
    ) -> tuple[Tensor, Tensor]:
        before, outputs, state = [], [], start
        for at in _chunks(x):
            before.append(state)
            of_chunk = None if restarts is None else restarts[:, at]
            _, states = _run(x[:, at], steps[:, at], rates, write[:, at], of_chunk, state)
            state = states[:, -1].clone()
            outputs.append(states.mul_(read[:, at, :, None]).sum(2))
        ctx.save_for_backward(x, steps, rates, write, read, restarts, *before)
        ctx.mark_non_differentiable(state)
        return torch.cat(outputs, 1), state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, steps, rates, write, read, restarts, *before = ctx.saved_tensors
        d_x, d_steps, d_write, d_read = (torch.empty_like(tensor) for tensor in (x, steps, write, read))
        d_rates, carried = torch.zeros_like(rates), torch.zeros_like(before[0])
        for at, start in reversed(list(zip(_chunks(x), before, strict=True))):
            xs, lengths, d_out = x[:, at], steps[:, at], d_output[:, at, None]
            of_chunk = None if restarts is None else restarts[:, at]
            decays, states = _run(xs, lengths, rates, write[:, at], of_chunk, start)
            gradient = read[:, at, :, None] * d_out  # of the states
            gradient[:, -1] += carried
            for t in range(gradient.shape[1] - 2, -1, -1):
                gradient[:, t].addcmul_(decays[:, t + 1], gradient[:, t + 1])
            carried = decays[:, 0] * gradient[:, 0]
            d_read[:, at] = (states * d_out).sum(3)
            d_write[:, at] = (gradient * (lengths * xs)[:, :, None]).sum(3)
            d_product = (gradient * write[:, at, :, None]).sum(2)  # of Δ x
            d_x[:, at] = d_product * lengths
            gradient.mul_(decays)  # from here on that of Δ A
            gradient[:, 1:].mul_(states[:, :-1])
            gradient[:, 0].mul_(start)
            d_rates += (gradient * lengths[:, :, None]).sum((0, 1))
            d_steps[:, at] = gradient.mul_(rates).sum(2).addcmul_(d_product, xs)
        return d_x, d_steps, d_rates, d_write, d_read, None, None
