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


class _Chunk:
    """Some steps of all rows. The chunks of a call share their memory: fresh memory costs more than what is computed in it."""

    def __init__(
        self, at: slice, x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, restarts: Tensor | None
    ) -> None:
        self.at, self.rates = at, rates
        self.x, self.steps, self.write, self.read = (tensor[:, at].contiguous() for tensor in (x, steps, write, read))
        self.restarts = None if restarts is None else restarts[:, at, None]

    def run(self, state: Tensor, decays: Tensor, states: Tensor) -> None:
        """Fill the decays and the states of all steps, (B, Q, N, E) both, after the state (B, N, E)."""
        lengths = self.steps if self.restarts is None else self.steps.masked_fill(self.restarts, _FORGET)
        torch.mul(lengths[:, :, None], self.rates, out=decays).exp_()
        torch.mul((self.steps * self.x)[:, :, None], self.write[..., None], out=states)
        for t in range(states.shape[1]):
            state = states[:, t].addcmul_(decays[:, t], state)


def _chunks(x: Tensor, *tensors: Tensor | None) -> Iterator[_Chunk]:
    size = _CHUNK if x.device.type == "cpu" else _CHUNK_OFF_CPU
    return (_Chunk(slice(first, first + size), x, *tensors) for first in range(0, x.shape[1], size))  # type: ignore[arg-type]


def _room(room: list[Tensor], count: int, chunk: _Chunk) -> list[Tensor]:
    """So many tensors (B, Q, N, E) for a chunk: those of the chunk before, if they fit."""
    shape = (*chunk.x.shape[:2], *chunk.rates.shape)
    return room if room and room[0].shape == shape else [chunk.x.new_empty(shape) for _ in range(count)]


def _over_state(weights: Tensor, of_states: Tensor) -> Tensor:
    """Weights (B, Q, N) and (B, Q, N, E) to the sums (B, Q, E) over the state."""
    return torch.bmm(weights.flatten(0, 1)[:, None], of_states.flatten(0, 1)).view(*of_states.shape[:2], -1)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, restarts: Tensor | None, start: Tensor
    ) -> tuple[Tensor, Tensor]:
        before, outputs, state = [], torch.empty_like(x), start
        room: list[Tensor] = []
        for chunk in _chunks(x, steps, rates, write, read, restarts):
            before.append(state)
            decays, states = room = _room(room, 2, chunk)
            chunk.run(state, decays, states)
            outputs[:, chunk.at] = _over_state(chunk.read, states)
            state = states[:, -1].clone()
        ctx.save_for_backward(x, steps, rates, write, read, restarts, *before)
        ctx.mark_non_differentiable(state)
        return outputs, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(d_output.device.type, enabled=False):
            return _gradients(d_output, *ctx.saved_tensors)


def _gradients(
    d_output: Tensor, x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, restarts: Tensor | None,
    *before: Tensor,
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs of `_Scan`; `before` are the states before each chunk."""
    d_x, d_steps, d_write, d_read = (torch.empty_like(tensor) for tensor in (x, steps, write, read))
    d_rates, carried = torch.zeros_like(rates), torch.zeros_like(before[0])
    room: list[Tensor] = []
    for chunk, start in reversed(list(zip(_chunks(x, steps, rates, write, read, restarts), before, strict=True))):
        decays, states, gradient = room = _room(room, 3, chunk)
        chunk.run(start, decays, states)
        at, d_out = chunk.at, d_output[:, chunk.at].contiguous()
        torch.mul(chunk.read[..., None], d_out[:, :, None], out=gradient)  # of the states
        gradient[:, -1] += carried
        for t in range(gradient.shape[1] - 2, -1, -1):
            gradient[:, t].addcmul_(decays[:, t + 1], gradient[:, t + 1])
        carried = decays[:, 0] * gradient[:, 0]
        product = (chunk.steps * chunk.x).flatten(0, 1)
        d_write[:, at] = torch.bmm(gradient.flatten(0, 1), product[..., None]).view_as(chunk.write)
        d_product = _over_state(chunk.write, gradient)  # of Δ x
        d_x[:, at] = d_product * chunk.steps
        gradient.mul_(decays)  # from here on that of Δ A
        gradient[:, 1:].mul_(states[:, :-1])
        gradient[:, 0].mul_(start)
        d_read[:, at] = states.mul_(d_out[:, :, None]).sum(3)
        d_rates += torch.mul(gradient, chunk.steps[:, :, None], out=decays).sum((0, 1))
        d_steps[:, at] = gradient.mul_(rates).sum(2).addcmul_(d_product, chunk.x)
    return d_x, d_steps, d_rates, d_write, d_read, None, None
