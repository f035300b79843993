"""A long short-term memory layer as one autograd function: float32 cell, products in the precision of the run.

`nn.LSTM` under bfloat16 autocast gives wrong gradients on some CPUs for hidden sizes from 1024 on, and cannot clip cells. A
layer that is written out does neither. All inputs are multiplied at once, a step is one product and a handful of elementwise
passes, and the gradients of weights are one product at the end.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.recurrence import stepping
from cloze.networks.blocks.recurrence.locked import WeightDropout
from cloze.networks.blocks.recurrence.stepping import RecurrentLayer, State
from cloze.networks.clock import Clock


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output, None for none."""

    cell: float | None
    projection: float | None


class LSTMLayer(RecurrentLayer):
    """One direction of one layer (Hochreiter and Schmidhuber, 1997; forget gates: Gers et al., 2000).

    i, f, o = σ(W x + R h + b), g = tanh(…), c ← f c + i g, h = o tanh(c), and with a `projection` h = P (o tanh(c)) (Sak et
    al., 2014). `cell_clip` and `projection_clip` bound c and h, as in ELMo. `weight_dropout` drops numbers of R, the same ones
    for all rows and steps (DropConnect: Merity et al., 2018, §2). Parameters: `input.weight` (4C, I), `recurrent.weight`
    (4C, H), gates in the order i, f, g, o; `bias` (4C,), and with `biases: two` `recurrent.bias` (4C,) as in `torch.nn.LSTM`;
    `projection.weight` (H, C). `forget_bias` is added to what `reset_parameters` draws for the bias of f.

    >>> layer = LSTMLayer(input_width=3, cell=5, projection=2, clock=Clock())
    >>> out, (h, c) = layer(torch.zeros(4, 7, 3))
    >>> tuple(out.shape), tuple(h.shape), tuple(c.shape)
    ((4, 7, 2), (4, 2), (4, 5))
    """

    def __init__(
        self, *, input_width: int, cell: int, projection: int | None = None, cell_clip: float | None = None,
        projection_clip: float | None = None, forget_bias: float = 0.0, biases: Literal["one", "two"] = "one",
        weight_dropout: float = 0.0, reverse: bool = False, clock: Clock,
    ) -> None:
        super().__init__(cell=cell, state_widths=(projection or cell, cell), reverse=reverse)
        self.clips, self.forget_bias = Clips(cell_clip, projection_clip), forget_bias
        self.input = nn.Linear(input_width, 4 * cell, bias=False)
        self.recurrent = nn.Linear(self.width, 4 * cell, bias=biases == "two")
        self.bias = nn.Parameter(torch.empty(4 * cell))
        self.projection = nn.Linear(cell, projection, bias=False) if projection else None
        self.weight_dropout: Dropout = WeightDropout(weight_dropout, clock)
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """As any recurrent layer; then the forget bias is added."""
        super().reset_parameters(bound)
        with torch.no_grad():
            self.bias[self.cell : 2 * self.cell] += self.forget_bias

    def run_cell(self, x: Tensor, weight: Tensor, state: State, ends: Tensor | None) -> tuple[Tensor, State]:
        """Outputs are the states h, projected where there is a projection."""
        bias = self.bias if self.recurrent.bias is None else self.bias + self.recurrent.bias
        out, h, c = _Recurrence.apply(
            x, weight, self.weight_dropout(self.recurrent.weight), bias,
            None if self.projection is None else self.projection.weight,
            state[0].to(x.dtype), state[1].to(self.bias.dtype), ends, self.clips,
        )
        return out, (h, c)


class _Recurrence(torch.autograd.Function):
    """x (L, B, I), R (4C, H) dropped beforehand → h (L, B, H), and h (B, H), c (B, C) at the rows' ends. Any dtype."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, r: Tensor, b: Tensor, p: Tensor | None, h: Tensor, c: Tensor,
        lengths: Tensor | None, clips: Clips,
    ) -> tuple[Tensor, Tensor, Tensor]:
        length, batch, dtype, size = x.shape[0], x.shape[1], x.dtype, c.shape[1]
        with torch.autocast(x.device.type, enabled=False):
            x = x.contiguous()
            projected = torch.addmm(b.to(dtype), x.view(length * batch, -1), w.to(dtype).t()).view(length, batch, -1)
            step = stepping.step_product(r.to(dtype), rows=batch, steps=length)
            project = None if p is None else stepping.step_product(p.to(dtype), rows=batch, steps=length)
            outs, cells = h.new_empty(length + 1, batch, h.shape[1]), c.new_empty(length + 1, batch, size)
            bent = c.new_empty(length, batch, size)  # tanh of the cells
            unprojected = outs[1:] if project is None else h.new_empty(length, batch, size)  # what is projected
            gates = projected if dtype == c.dtype else c.new_empty(projected.shape)
            outs[0], cells[0] = h, c
            for t in range(length):
                now = gates[t].copy_(step(outs[t], projected[t]))
                i, f, g, o = now.split(size, 1)
                now[:, : 2 * size].sigmoid_()
                g.tanh_()
                o.sigmoid_()
                after = torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, g)
                if clips.cell is not None:
                    after.clamp_(-clips.cell, clips.cell)
                torch.tanh(after, out=bent[t])
                if dtype == c.dtype:
                    torch.mul(o, bent[t], out=unprojected[t])
                else:
                    unprojected[t] = o * bent[t]
                if project is not None:
                    outs[t + 1] = project(unprojected[t], None)
                    if clips.projection is not None:
                        outs[t + 1].clamp_(-clips.projection, clips.projection)
            rows = torch.arange(batch, device=x.device)
            ends = (outs[length], cells[length]) if lengths is None else (outs[lengths, rows], cells[lengths, rows])
        ctx.save_for_backward(x, w, r, p, lengths, outs, cells, gates, bent, unprojected)
        ctx.clips = clips
        ctx.set_materialize_grads(False)
        return outs[1:].clone(), ends[0].clone(), ends[1].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_out: Tensor | None, d_h: Tensor | None, d_c: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, w, r, p, lengths, outs, cells, gates, bent, unprojected = ctx.saved_tensors
        clips: Clips = ctx.clips
        (length, batch, _), dtype, size = x.shape, x.dtype, cells.shape[2]
        step = stepping.step_product(r.to(dtype).t(), rows=batch, steps=length)
        project = None if p is None else stepping.step_product(p.to(dtype).t(), rows=batch, steps=length)
        d_gates, d_projected = torch.empty_like(gates, dtype=dtype), torch.empty_like(outs[1:]) if p is not None else None
        dh = None if d_h is None or lengths is not None else d_h
        dc = torch.zeros_like(cells[0]) if d_c is None or lengths is not None else d_c.clone()
        d_now = torch.empty_like(gates[0])
        for t in reversed(range(length)):
            if d_out is not None:
                dh = d_out[t] if dh is None else dh + d_out[t]
            if lengths is not None:
                dh, dc = _ending(lengths == t + 1, dh, dc, d_h, d_c)
            if dh is None:
                dh = torch.zeros_like(outs[0])
            if project is not None:
                assert d_projected is not None  # made with the projection
                if clips.projection is not None:
                    dh = dh * (outs[t + 1].abs() < clips.projection)
                d_projected[t] = dh
                dh = project(d_projected[t], None)
            i, f, g, o = gates[t].split(size, 1)
            d_i, d_f, d_g, d_o = d_now.split(size, 1)
            dh = dh.to(dc.dtype)
            through = torch.ops.aten.tanh_backward(dh * o, bent[t])
            dc += through
            if clips.cell is not None:
                dc *= cells[t + 1].abs() < clips.cell
            sigmoid, tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
            sigmoid(dh.mul(bent[t]), o, grad_input=d_o)
            sigmoid(dc * g, i, grad_input=d_i)
            sigmoid(dc * cells[t], f, grad_input=d_f)
            tanh(dc * i, g, grad_input=d_g)
            dc *= f
            d_gates[t] = d_now
            dh = step(d_gates[t], None)
        if lengths is not None:
            dh, dc = _ending(lengths == 0, dh, dc, d_h, d_c)
        flat = d_gates.view(length * batch, -1)
        return (
            (flat @ w.to(dtype)).view(x.shape) if ctx.needs_input_grad[0] else None,
            stepping.weight_gradient(flat, x, w) if ctx.needs_input_grad[1] else None,
            stepping.weight_gradient(flat, outs[:-1], r) if ctx.needs_input_grad[2] else None,
            stepping.bias_gradient(flat, r),
            stepping.weight_gradient(d_projected.flatten(0, 1), unprojected, p)
            if d_projected is not None and ctx.needs_input_grad[4] else None,
            dh, dc, None, None,
        )


def _ending(
    here: Tensor, dh: Tensor | None, dc: Tensor, d_h: Tensor | None, d_c: Tensor | None
) -> tuple[Tensor | None, Tensor]:
    """Add the gradients of the last states in the rows that end `here` (B,)."""
    ends = here[:, None]
    if d_h is not None:
        dh = d_h * ends if dh is None else dh + d_h * ends
    return dh, dc if d_c is None else dc + d_c * ends
