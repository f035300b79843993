"""Banded attention: who is seen, through any depth, with a cache, packed; dense layers between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Cache, Clock, Transformer
from cloze.networks.blocks.visibility import narrow, visibility
from tests.making import network_of

CPU = torch.device("cpu")
HIDDEN = frozenset({"hidden"})


def build(layers: int = 2, **changed: Any) -> Transformer:
    arguments: dict[str, Any] = {"width": 16, "heads": 2, "positions.max_length": 32, "dropout": 0.0, "initial.std": 0.4}
    torch.manual_seed(1)
    return network_of("transformer", **{**arguments, **changed}, layers=layers, vocab_size=13, clock=Clock(3)).double()


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 13, (rows, length), generator=torch.Generator().manual_seed(seed))


def mask(order: str, band: int, length: int, past: int = 0) -> Tensor:
    seen = visibility(order, None, length=length, past=past, device=CPU)
    cut = narrow(seen, order, band, length=length, past=past, device=CPU)
    assert cut.mask is not None
    return cut.mask[0, 0]


def test_the_bands_are_the_published_ones() -> None:
    distance = torch.arange(8)[:, None] - torch.arange(8)
    assert torch.equal(mask("left_to_right", 3, 8), (distance >= 0) & (distance < 3))
    assert torch.equal(mask("right_to_left", 3, 8), (distance <= 0) & (distance > -3))
    assert torch.equal(mask("open", 4, 8), distance.abs() <= 2)
    assert torch.equal(mask("open", 5, 8), distance.abs() <= 2)
    assert torch.equal(mask("left_to_right", 3, 2, past=6), mask("left_to_right", 3, 8)[6:])


@pytest.mark.parametrize(("order", "band"), [("left_to_right", 8), ("right_to_left", 8), ("open", 14)])
def test_a_band_over_everything_is_dense(order: str, band: int) -> None:
    seen = visibility(order, None, length=8, past=0, device=CPU)
    assert narrow(seen, order, band, length=8, past=0, device=CPU) is seen
    assert narrow(seen, order, band - 2, length=8, past=0, device=CPU) is not seen


def moved(network: Transformer, place: int, length: int, **fields: Any) -> Tensor:
    tokens = ids(1, length)
    other = tokens.clone()
    other[0, place] = (tokens[0, place] + 1) % 13
    states = [network(want=HIDDEN, tokens=t, **fields)["hidden"] for t in (tokens, other)]
    return (states[0] - states[1]).abs().amax(-1)[0]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.sampled_from(["left_to_right", "right_to_left", "open"]), st.integers(0, 8))
def test_through_any_depth_a_token_reaches_exactly_what_bands_let_it(layers: int, band: int, order: str, place: int) -> None:
    network = build(layers, **{"attention.band.width": band})
    reached = torch.linalg.matrix_power(mask(order, band, 9).double(), layers) > 0
    change = moved(network, place, 9, order=order)
    assert change[~reached[:, place]].eq(0).all(), "leak"
    assert change[reached[:, place]].gt(0).all(), "not seen"


def test_dense_layers_stand_at_the_stated_depths() -> None:
    network = build(5, **{"attention.band.width": 2, "attention.band.dense_every": 2})
    assert [network.layer_inputs.banded(layer) for layer in range(5)] == [False, True, False, True, False]
    assert [build(4, **{"attention.band.width": 2,
        "attention.band.dense_every": 3}).layer_inputs.banded(layer) for layer in range(4)] == [False, True, True, False]
    assert all(build(3, **{"attention.band.width": 2}).layer_inputs.banded(layer) for layer in range(3))
    for place in range(9):
        change = moved(network, place, 9, order="left_to_right")
        assert change[:place].eq(0).all() and change[place:].gt(0).all()


@pytest.mark.parametrize("positions", ["learned", "rotary", "functional"])
@pytest.mark.parametrize("dense_every", [None, 2])
def test_cached_generation_equals_the_full_forward(positions: str, dense_every: int | None) -> None:
    network, tokens = build(3, positions=positions, **{"attention.band.width": 3,
        "attention.band.dense_every": dense_every}).eval(), ids(2, 12)
    full = network(want=HIDDEN, tokens=tokens, order="left_to_right")["hidden"]
    cache, parts = Cache(3), []
    for start, stop in ((0, 5), (5, 6), (6, 7), (7, 12)):
        place = torch.arange(start, stop).expand(2, -1)
        states = network(want=HIDDEN, tokens=tokens[:, start:stop], position_ids=place, order="left_to_right", cache=cache)
        parts.append(states["hidden"])
    torch.testing.assert_close(torch.cat(parts, dim=1), full, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["open", "left_to_right"])
def test_packed_and_padded_rows_equal_single_ones(order: str) -> None:
    network, first, second = build(**{"attention.band.width": 3}), ids(1, 6, seed=2), ids(1, 5, seed=3)
    packed = network(
        want=HIDDEN, tokens=torch.cat([first, second, ids(1, 2)], dim=1), order=order,
        block=torch.tensor([[1] * 6 + [2] * 5 + [0] * 2]), position_ids=torch.tensor([[*range(6), *range(5), 0, 0]]),
    )["hidden"]
    for part, tokens in ((packed[:, :6], first), (packed[:, 6:11], second)):
        alone = network(want=HIDDEN, tokens=tokens, order=order)["hidden"]
        torch.testing.assert_close(part, alone, rtol=0, atol=1e-12)


def test_a_gpu_would_be_told_the_reach_with_the_packed_runs() -> None:
    seen = visibility("left_to_right", torch.tensor([[1, 1, 1, 2, 2]]), length=5, past=0, device=CPU)
    assert narrow(seen, "left_to_right", 2, length=5, past=0, device=CPU).reach == (1, 0)
    assert narrow(seen, "open", 2, length=5, past=0, device=CPU).reach == (1, 1)


def test_an_order_token_by_token_is_refused() -> None:
    with pytest.raises(RecipeError, match="given token by token"):
        build(**{"attention.band.width": 2})(want=HIDDEN, tokens=ids(1, 3), order=torch.tensor([[0, 2, 1]]))


@pytest.mark.parametrize(("changed", "words"), [
    ({"share.weights": "all", "share.groups": 3}, "3 groups of 2 layers"),
    ({"positions": "rotary", "width": 6}, "Give an even width of heads"),
])  # fmt: skip
def test_sizes_that_do_not_go_together_are_refused_with_a_way_out(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        build(**changed)


def test_a_band_hides_tokens_and_saves_no_products() -> None:
    dense, banded = build(4), build(4, **{"attention.band.width": 8, "attention.band.dense_every": 2})
    tokens, want = {"tokens": torch.zeros(1, 32)}, frozenset({"hidden"})
    assert dense.flops(tokens, want=want) == banded.flops(tokens, want=want) > 0
