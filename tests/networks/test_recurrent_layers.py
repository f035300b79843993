"""Recurrent layers against torch's own, finite differences, and each row alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.networks.blocks.recurrence.gru import GRULayer
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.blocks.recurrence.stepping import step_product
from cloze.networks.clock import Clock


def lstm(**changed: Any) -> LSTMLayer:
    torch.manual_seed(0)
    return LSTMLayer(**{"input_width": 9, "cell": 16, "biases": "two", "clock": Clock(), **changed})


def as_torch(layer: LSTMLayer) -> nn.LSTM:
    """torch's layer with the same weights."""
    width, cell = layer.input.in_features, layer.cell
    theirs = nn.LSTM(width, cell, batch_first=True, proj_size=layer.width if layer.projection is not None else 0)
    with torch.no_grad():
        for own, other in zip(weights(layer), theirs.parameters(), strict=True):
            other.copy_(own)
    return theirs


def weights(layer: LSTMLayer) -> list[Tensor]:
    assert layer.recurrent.bias is not None
    own = [layer.input.weight, layer.recurrent.weight, layer.bias, layer.recurrent.bias]
    return own if layer.projection is None else [*own, layer.projection.weight]


def gradients(out: Tensor, last: list[Tensor], of: list[Tensor]) -> list[Tensor]:
    wave = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view(out.shape)
    total = (out * wave).sum() + sum((state.square().sum() for state in last), torch.zeros(()))
    return list(torch.autograd.grad(total, of))


@pytest.mark.parametrize("projection", [None, 7])
def test_an_lstm_layer_is_torchs_forward_and_backward(projection: int | None) -> None:
    layer = lstm(projection=projection)
    theirs = as_torch(layer)
    x, h, c = (torch.randn(*shape, requires_grad=True) for shape in ((5, 11, 9), (5, layer.width), (5, 16)))
    out, (last_h, last_c) = layer(x, (h, c))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that oneDNN has no projections
        expected, (their_h, their_c) = theirs(x, (h[None], c[None]))
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close((last_h, last_c), (their_h[0], their_c[0]), atol=1e-5, rtol=1e-5)
    mine = gradients(out, [last_h, last_c], [x, h, c, *weights(layer)])
    other = gradients(expected, [their_h, their_c], [x, h, c, *theirs.parameters()])
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_a_gru_layer_is_torchs_forward_and_backward() -> None:
    torch.manual_seed(0)
    layer, theirs = GRULayer(input_width=9, width=16), nn.GRU(9, 16, batch_first=True)
    own = [layer.input.weight, layer.recurrent.weight, layer.input.bias, layer.recurrent.bias]
    with torch.no_grad():
        for mine, other in zip(own, theirs.parameters(), strict=True):
            mine.copy_(other)
    x, h = torch.randn(5, 11, 9, requires_grad=True), torch.randn(5, 16, requires_grad=True)
    out, (last,) = layer(x, (h,))
    expected, their_last = theirs(x, h[None])
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        gradients(out, [last], [x, h, *own]), gradients(expected, [their_last], [x, h, *theirs.parameters()]),
        atol=1e-5, rtol=1e-4,
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 2, 0]])
@pytest.mark.parametrize("clips", [{}, {"cell_clip": 0.3, "projection_clip": 0.1, "projection": 2}])
def test_lstm_gradients_agree_with_finite_differences(reverse: bool, lengths: list[int] | None, clips: dict[str, Any]) -> None:
    layer = lstm(input_width=3, cell=4, biases="one", reverse=reverse, **clips).double()
    x, h, c = (torch.randn(*s, dtype=torch.double, requires_grad=True) for s in ((3, 5, 3), (3, layer.width), (3, 4)))
    real = None if lengths is None else torch.tensor(lengths)

    def run(x: Tensor, h: Tensor, c: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, (h, c) = layer(x, (h, c), real)
        return out, h, c

    assert torch.autograd.gradcheck(run, (x, h, c, *layer.parameters()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 2, 0]])
def test_gru_gradients_agree_with_finite_differences(reverse: bool, lengths: list[int] | None) -> None:
    torch.manual_seed(0)
    layer = GRULayer(input_width=3, width=4, reverse=reverse).double()
    x, h = (torch.randn(*shape, dtype=torch.double, requires_grad=True) for shape in ((3, 5, 3), (3, 4)))
    real = None if lengths is None else torch.tensor(lengths)

    def run(x: Tensor, h: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        out, (h,) = layer(x, (h,), real)
        return out, h

    assert torch.autograd.gradcheck(run, (x, h, *layer.parameters()))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
def test_padding_and_neighbours_change_nothing(kind: str, reverse: bool) -> None:
    torch.manual_seed(0)
    made = {"lstm": lambda: LSTMLayer(input_width=3, cell=4, reverse=reverse, clock=Clock()),
            "gru": lambda: GRULayer(input_width=3, width=4, reverse=reverse)}
    layer = made[kind]()
    x, lengths = torch.randn(3, 6, 3), torch.tensor([6, 2, 4])
    out, last = layer(x, None, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, alone_last = layer(x[row : row + 1, :length])
        torch.testing.assert_close(out[row, :length], alone[0], atol=1e-6, rtol=0)
        assert out[row, length:].eq(0).all()
        for whole, part in zip(last, alone_last, strict=True):
            torch.testing.assert_close(whole[row : row + 1], part, atol=1e-6, rtol=0)


def test_reading_backwards_is_reading_the_turned_row() -> None:
    forwards, backwards = lstm(), lstm(reverse=True)
    x = torch.randn(2, 5, 9)
    torch.testing.assert_close(backwards(x)[0], forwards(x.flip(1))[0].flip(1))


def test_a_row_in_pieces_is_the_row_in_one() -> None:
    layer, x = lstm(projection=5, cell_clip=3.0, projection_clip=3.0), torch.randn(2, 12, 9)
    whole, end = layer(x)
    state, parts = None, []
    for piece in x.split(5, dim=1):
        out, state = layer(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(state, end, atol=1e-6, rtol=1e-5)


def test_clips_bound_the_cell_and_the_output() -> None:
    layer = lstm(projection=3, cell_clip=0.05, projection_clip=0.01)
    out, (h, c) = layer(10 * torch.randn(2, 8, 9))
    assert float(out.detach().abs().max()) == pytest.approx(0.01) and float(c.detach().abs().max()) == pytest.approx(0.05)
    torch.testing.assert_close(h, out[:, -1])


def test_the_forget_bias_is_added_to_what_is_drawn() -> None:
    plain, forgetful = lstm(), lstm(forget_bias=1.0)
    difference = forgetful.bias - plain.bias
    torch.testing.assert_close(difference, torch.cat([torch.zeros(16), torch.ones(16), torch.zeros(32)]))


def test_ends_asks_for_an_earlier_state() -> None:
    layer, x = lstm(), torch.randn(2, 6, 9)
    _, before = layer(x[:, :4])
    out, state = layer(x, None, None, torch.tensor([4, 4]))
    torch.testing.assert_close(state, before)
    assert out.shape[1] == 6


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gradients_in_bfloat16_are_close_at_widths_where_autocast_of_torchs_own_is_wrong(kind: str) -> None:
    torch.manual_seed(0)
    layer: Any = LSTMLayer(input_width=64, cell=1024, clock=Clock())
    if kind == "gru":
        layer = GRULayer(input_width=64, width=1024)
    x = torch.randn(4, 6, 64, requires_grad=True)
    found = {}
    for fast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fast):
            out, _ = layer(x)
        found[fast] = torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()])
    for exact, near in zip(found[False], found[True], strict=True):
        assert float((exact - near).norm() / exact.norm()) < 0.01


def test_dropped_recurrent_weights_are_the_same_at_every_step_and_act_from_the_second_on() -> None:
    layer, x = lstm(weight_dropout=0.5), torch.randn(1, 1, 9).expand(2, 4, 9)
    clock = layer.weight_dropout.clock
    first, _ = layer(x)
    again, _ = layer(x)
    clock.set(first_row=7)
    elsewhere, _ = layer(x)
    clock.set(step=1, first_row=0)
    other, _ = layer(x)
    assert torch.equal(first, again) and torch.equal(first, elsewhere)  # one mask a step, however it is dealt
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[:, 0], other[:, 0]) and not torch.allclose(first[:, 1], other[:, 1])


def test_weight_dropout_survives_evaluation_and_keeps_the_state() -> None:
    layer, x = lstm(weight_dropout=0.5), torch.randn(2, 4, 9)
    names = list(layer.state_dict())
    layer(x)[0].sum().backward()
    with torch.no_grad():
        whole, _ = layer.eval()(x)
    torch.testing.assert_close(whole, as_torch(layer)(x)[0], atol=1e-6, rtol=1e-5)
    layer.train()(x)[0].sum().backward()
    assert list(layer.state_dict()) == names == ["bias", "input.weight", "recurrent.weight", "recurrent.bias"]


def test_a_dropped_weight_gets_no_gradient_and_a_kept_one_the_scaled() -> None:
    layer = lstm(weight_dropout=0.5)
    dropped = layer.weight_dropout(layer.recurrent.weight)
    (gradient,) = torch.autograd.grad(dropped.sum(), layer.recurrent.weight)
    assert torch.equal(gradient == 0, dropped == 0) and gradient.max() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [1, 8])
def test_a_step_product_is_a_product(dtype: torch.dtype, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x, added = (torch.randn(*s, generator=generator).to(dtype) for s in ((12, 7), (3, 7), (3, 12)))
    multiply = step_product(weight, rows=3, steps=steps)
    torch.testing.assert_close(multiply(x, None), x @ weight.t())
    expected = (added.double() + x.double() @ weight.double().t()).to(dtype)
    torch.testing.assert_close(multiply(x, added), expected, atol=1e-5 if dtype == torch.float32 else 0.05, rtol=0.02)
