"""A gated recurrent layer as one autograd function: float32 state, products in the precision of the run."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.recurrence import stepping
from cloze.networks.blocks.recurrence.stepping import RecurrentLayer, State


class GRULayer(RecurrentLayer):
    """One direction of one layer (Cho et al., 2014), as `torch.nn.GRU` writes it: the reset gate acts behind the product.

    r, z = σ(W x + b + R h + a), n = tanh(W x + b + r (R h + a)), h ← (1 - z) n + z h. Parameters: `input.weight` (3C, I),
    `input.bias`, `recurrent.weight` (3C, C), `recurrent.bias`, in the order r, z, n; with `biases: one` a is left out.

    >>> out, (h,) = GRULayer(input_width=3, width=5)(torch.zeros(4, 7, 3))
    >>> tuple(out.shape), tuple(h.shape)
    ((4, 7, 5), (4, 5))
    """

    def __init__(
        self, *, input_width: int, width: int, biases: Literal["one", "two"] = "two", reverse: bool = False
    ) -> None:
        super().__init__(cell=width, state_widths=(width,), reverse=reverse)
        self.input = nn.Linear(input_width, 3 * width)
        self.recurrent = nn.Linear(width, 3 * width, bias=biases == "two")
        self.reset_parameters()

    def run_cell(self, x: Tensor, weight: Tensor, state: State, ends: Tensor | None) -> tuple[Tensor, State]:
        """Outputs are the states h."""
        moved = self.recurrent.bias
        outs = _Recurrence.apply(
            x, weight, self.input.bias, self.recurrent.weight, torch.zeros_like(self.input.bias) if moved is None else moved,
            state[0].to(weight.dtype),
        )
        last = outs[-1] if ends is None else outs[ends, torch.arange(x.shape[1], device=x.device)]
        return outs[1:], (last,)


class _Recurrence(torch.autograd.Function):
    """x (L, B, I) and h (B, C) → every state, the first one included: (L + 1, B, C). Any dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, r: Tensor, a: Tensor, h: Tensor) -> Tensor:
        length, batch, dtype, size = x.shape[0], x.shape[1], x.dtype, h.shape[1]
        with torch.autocast(x.device.type, enabled=False):
            x = x.contiguous()
            projected = torch.addmm(b.to(dtype), x.view(length * batch, -1), w.to(dtype).t()).view(length, batch, -1)
            step = stepping.step_product(r.to(dtype), rows=batch, steps=length)
            outs = h.new_empty(length + 1, batch, size)
            gates, inner = h.new_empty(projected.shape), h.new_empty(length, batch, size)
            outs[0] = h
            for t in range(length):
                moved = step(outs[t].to(dtype), None) + a
                now = gates[t]
                torch.add(projected[t], moved, out=now)
                now[:, : 2 * size].sigmoid_()
                reset, keep, new = now.split(size, 1)
                inner[t] = moved[:, 2 * size :]
                torch.addcmul(projected[t, :, 2 * size :].to(h.dtype), reset, inner[t], out=new).tanh_()
                torch.lerp(new, outs[t], keep, out=outs[t + 1])
        ctx.save_for_backward(x, w, b, r, a, outs, gates, inner)
        return outs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outs: Tensor) -> tuple[Tensor | None, ...]:
        x, w, b, r, a, outs, gates, inner = ctx.saved_tensors
        (length, batch, _), dtype, size = x.shape, x.dtype, outs.shape[2]
        step = stepping.step_product(r.to(dtype).t(), rows=batch, steps=length)
        d_projected, d_moved = torch.empty_like(gates, dtype=dtype), torch.empty_like(gates, dtype=dtype)
        d_now = torch.empty_like(gates[0])
        dh = d_outs[length]
        for t in reversed(range(length)):
            reset, keep, new = gates[t].split(size, 1)
            d_reset, d_keep, d_new = d_now.split(size, 1)
            torch.ops.aten.tanh_backward(dh * (1 - keep), new, grad_input=d_new)
            torch.ops.aten.sigmoid_backward(dh * (outs[t] - new), keep, grad_input=d_keep)
            torch.ops.aten.sigmoid_backward(d_new * inner[t], reset, grad_input=d_reset)
            d_projected[t] = d_now
            d_new.mul_(reset)
            d_moved[t] = d_now
            dh = torch.addcmul(d_outs[t], dh, keep) + step(d_moved[t], None)
        flat, flat_moved = d_projected.view(length * batch, -1), d_moved.view(length * batch, -1)
        return (
            (flat @ w.to(dtype)).view(x.shape) if ctx.needs_input_grad[0] else None,
            stepping.weight_gradient(flat, x, w) if ctx.needs_input_grad[1] else None, stepping.bias_gradient(flat, b),
            stepping.weight_gradient(flat_moved, outs[:-1].to(dtype), r) if ctx.needs_input_grad[3] else None,
            stepping.bias_gradient(flat_moved, a), dh,
        )
