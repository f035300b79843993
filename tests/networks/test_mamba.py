"""Mamba: the scan against a loop, what rows and directions see, the cache, and how weights begin."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.errors import RecipeError
from cloze.networks import Clock, Mamba
from cloze.networks.blocks.recurrence.selective_scan import selective_scan

HIDDEN = frozenset({"hidden"})
BOTH = pytest.mark.parametrize("directions", ["left_to_right", "both"])


def network(directions: Any = "left_to_right", **arguments: Any) -> Mamba:
    """Two layers of width 6 with random weights, in double precision."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 2, "width": 6, "state": 3, "vocab_size": 11, **arguments}
    return Mamba(directions=directions, clock=Clock(), **sizes).double().eval()


def hidden(model: Mamba, tokens: Tensor, **fields: Any) -> Tensor:
    return model(want=HIDDEN, tokens=tokens, order=model.order, **fields)["hidden"]


def ids(*shape: int) -> Tensor:
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


def loop(x: Tensor, steps: Tensor, rates: Tensor, write: Tensor, read: Tensor, restarts: Tensor, state: Tensor) -> Tensor:
    """The recurrence as it is written in the paper (equations 2a and 2b), token by token."""
    outputs = []
    for t in range(x.shape[1]):
        state = torch.where(restarts[:, t, None, None], 0.0, state)
        state = (steps[:, t, None] * rates).exp() * state + (steps[:, t] * x[:, t])[:, None] * write[:, t, :, None]
        outputs.append((read[:, t, :, None] * state).sum(1))
    return torch.stack(outputs, 1)


def inputs(length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x and Δ (2, L, 5), A (3, 5), B and C (2, L, 3)."""
    torch.manual_seed(2)
    shapes = [(2, length, 5), (2, length, 5), (3, 5), (2, length, 3), (2, length, 3)]
    drawn = [torch.randn(shape, dtype=dtype) for shape in shapes]
    drawn[1], drawn[2] = F.softplus(drawn[1]), -drawn[2].exp()
    return [tensor.requires_grad_() for tensor in drawn]


@pytest.mark.parametrize("length", [1, 8, 21])
def test_the_scan_and_its_gradients_are_those_of_a_loop(length: int) -> None:
    restarts = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.2
    state = torch.randn(2, 3, 5, dtype=torch.float64)
    given, same = inputs(length), inputs(length)
    outputs, last = selective_scan(*given, restarts=restarts, start=state)
    expected = loop(*same, restarts=restarts, state=state)
    torch.testing.assert_close(outputs, expected)
    weights = torch.randn_like(expected)
    (outputs * weights).sum().backward()
    (expected * weights).sum().backward()
    for tensor, other in zip(given, same, strict=True):
        torch.testing.assert_close(tensor.grad, other.grad)
    read = given[4][:, -1:, :, None].detach()
    torch.testing.assert_close(outputs[:, -1].detach(), (read[:, 0] * last).sum(1))


def test_the_scan_of_halves_is_that_of_the_whole() -> None:
    x, steps, rates, write, read = (tensor.detach() for tensor in inputs(20))
    whole, last = selective_scan(x, steps, rates, write, read)
    first, between = selective_scan(x[:, :7], steps[:, :7], rates, write[:, :7], read[:, :7])
    second, end = selective_scan(x[:, 7:], steps[:, 7:], rates, write[:, 7:], read[:, 7:], start=between)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(end, last)


def test_very_long_and_very_short_steps_overflow_nowhere_in_float32() -> None:
    x, steps, rates, write, read = inputs(64, torch.float32)
    with torch.no_grad():
        steps[:, ::3], steps[:, 1::3], rates[0], rates[1] = 1e4, 1e-12, -1e6, -1e-6
    restarts = torch.zeros(2, 64, dtype=torch.bool)
    restarts[:, 10] = True
    outputs, _ = selective_scan(x, steps, rates, write, read, restarts=restarts)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in (x, steps, rates, write, read))


@BOTH
def test_a_padded_row_has_the_states_that_it_has_alone(directions: str) -> None:
    model, tokens = network(directions), ids(2, 9)
    block = torch.ones_like(tokens)
    block[0, 5:] = 0
    tokens[0, 5:] = 0
    together = hidden(model, tokens, block=block)
    torch.testing.assert_close(together[:1, :5], hidden(model, tokens[:1, :5]))
    torch.testing.assert_close(together[1:], hidden(model, tokens[1:]))


@BOTH
@pytest.mark.parametrize("kernel", [1, 4])
def test_texts_of_a_packed_row_do_not_see_each_other(directions: str, kernel: int) -> None:
    model, tokens = network(directions, kernel=kernel), ids(1, 11)
    block = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 0]])
    packed = hidden(model, tokens, block=block)
    for start, stop in ((0, 5), (5, 7), (7, 10)):
        torch.testing.assert_close(packed[:, start:stop], hidden(model, tokens[:, start:stop]))


def test_rows_shorter_than_the_convolution_are_read() -> None:
    model, tokens = network("both"), ids(2, 2)
    torch.testing.assert_close(hidden(model, tokens, block=torch.ones_like(tokens)), hidden(model, tokens))


def test_directions_that_change_places_read_a_row_from_its_other_end() -> None:
    model, tokens = network("both"), ids(2, 7)
    forwards = hidden(model, tokens)
    for layer in model.layers:
        layer.forwards, layer.backwards = layer.backwards, layer.forwards  # type: ignore[assignment]
    torch.testing.assert_close(hidden(model, tokens.flip(1)).flip(1), forwards)


@pytest.mark.parametrize("kernel", [1, 4])
def test_a_text_read_in_pieces_with_a_cache_has_the_states_of_the_whole(kernel: int) -> None:
    model, tokens = network(kernel=kernel), ids(2, 12)
    cache, read = model.cache(), []
    for piece in tokens.split([5, 1, 1, 2, 3], 1):
        read.append(hidden(model, piece, cache=cache))
    torch.testing.assert_close(torch.cat(read, 1), hidden(model, tokens))
    assert cache.length == 12 and not cache.forgets
    sizes = [tuple(tensor.shape) for tensor in cache.layers[1]]
    assert sizes == [(2, kernel - 1, 12), (2, 3, 12)]  # whatever the length of the text


def test_weights_begin_as_in_the_authors_code() -> None:
    torch.manual_seed(0)
    model = Mamba(layers=4, width=64, vocab_size=50, clock=Clock())
    side = model.layers[1].forwards
    lengths = F.softplus(side.dt_proj.bias)
    assert side.dt_rank == 4 and 0.001 <= lengths.min() < 0.002 and 0.05 < lengths.max() <= 0.1
    assert side.dt_proj.weight.abs().max() <= 0.5
    torch.testing.assert_close(side.A_log.view(16, 128).exp(), torch.arange(1.0, 17)[:, None].expand(16, 128))
    assert side.D.eq(1).all()
    bound = 1 / math.sqrt(128) / math.sqrt(4)
    assert 0.9 * bound < model.layers[1].out_proj.weight.abs().max() <= bound
    assert [name for name, p in model.named_parameters() if p.dim() == 1 and "A_log" in name or ".D" in name] == [
        f"layers.{n}.forwards.{name}" for n in range(4) for name in ("A_log", "D")
    ]  # weight decay spares vectors


def test_the_residual_stream_is_float32_under_autocast() -> None:
    model = network().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = model(want=frozenset({"layers"}), tokens=ids(2, 5))["layers"]
    assert states.dtype == torch.float32
    torch.testing.assert_close(states[1], model(want=frozenset({"layers"}), tokens=ids(2, 5))["layers"][1], atol=2e-2, rtol=0)


@pytest.mark.parametrize(("directions", "order"), [("left_to_right", "open"), ("both", "left_to_right")])
def test_an_order_that_is_not_its_own_is_refused(directions: str, order: str) -> None:
    model = network(directions)
    with pytest.raises(RecipeError, match=f"mamba reads in the order {model.order} alone, and the recipe has {order}"):
        model(want=HIDDEN, tokens=ids(1, 3), order=order)
