"""The network contract: leaks, padding, packing, rows, gradients, state dictionaries, caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Cache, Clock, Transformer
from tests.making import network_of

VOCABULARY, LENGTH = 13, 7
HIDDEN = frozenset({"hidden"})


def build(norm: str = "post", **changed: Any) -> Transformer:
    arguments: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "segments": 2, "positions.max_length": 16, "norm": norm,
        "dropout": 0.0, "initial.std": 0.4}
    torch.manual_seed(1)
    return network_of("transformer", **{**arguments, **changed}, vocab_size=VOCABULARY, clock=Clock(3)).double()


def ids(rows: int = 1, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def moved(network: Transformer, place: int, **fields: Any) -> Tensor:
    """Whether each position's output moves when the token at `place` changes (one row), and by how much."""
    tokens = ids()
    other = tokens.clone()
    other[0, place] = (tokens[0, place] + 1) % VOCABULARY
    with torch.no_grad():
        before = network(want=HIDDEN, tokens=tokens, **fields)["hidden"]
        after = network(want=HIDDEN, tokens=other, **fields)["hidden"]
    return (before - after).abs().amax(-1)[0]


def assert_only_seen_moves(network: Transformer, sees: Tensor, **fields: Any) -> None:
    """`sees` (T, T) of the first T tokens, which are not padding."""
    for place in range(len(sees), LENGTH):
        assert moved(network, place, **fields)[: len(sees)].eq(0).all(), f"padding {place} leaks"
    for place in range(len(sees)):
        change = moved(network, place, **fields)[: len(sees)]
        assert change[~sees[:, place]].eq(0).all(), f"token {place} leaks"
        assert change[sees[:, place]].gt(1e-9).all(), f"token {place} is not seen"


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("order", ["open", "left_to_right", "right_to_left"])
def test_a_token_reaches_exactly_the_positions_that_may_see_it(norm: str, order: str) -> None:
    every = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    sees = {"open": every, "left_to_right": every.tril(), "right_to_left": every.triu()}[order]
    assert_only_seen_moves(build(norm), sees, order=order)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=LENGTH, max_size=LENGTH))
def test_no_order_leaks_at_any_depth(order: list[int]) -> None:
    numbers = torch.tensor(order)
    assert_only_seen_moves(build(layers=3), numbers[None, :] <= numbers[:, None], order=numbers[None])


@pytest.mark.parametrize("order", ["open", "left_to_right", "integers"])
def test_packed_blocks_do_not_see_each_other(order: str) -> None:
    block = torch.tensor([1, 1, 1, 2, 2, 0, 0])
    real = block[block > 0]  # what stands at padding is not specified
    sees = real[:, None] == real[None, :]
    numbers = torch.tensor([[0, 2, 1, 0, 1, 0, 0]])
    if order == "left_to_right":
        sees = sees.tril()
    if order == "integers":
        sees = sees & (numbers[0, :5][None, :] <= numbers[0, :5][:, None])
    assert_only_seen_moves(build(), sees, order=numbers if order == "integers" else order, block=block[None])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("order", ["open", "left_to_right"])
def test_padding_does_not_change_real_outputs(norm: str, order: str) -> None:
    network = build(norm)
    tokens = ids(2)
    wide = torch.cat([tokens, ids(2, 4, seed=9)], dim=1)
    block = torch.zeros_like(wide)
    block[:, :LENGTH] = 1
    alone = network(want=HIDDEN, tokens=tokens, order=order)["hidden"]
    padded = network(want=HIDDEN, tokens=wide, order=order, block=block)["hidden"][:, :LENGTH]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["open", "left_to_right"])
def test_packing_does_not_change_outputs(order: str) -> None:
    network = build()
    first, second = ids(1, 4, seed=2), ids(1, 3, seed=3)
    packed = network(
        want=HIDDEN, tokens=torch.cat([first, second], dim=1), order=order, block=torch.tensor([[1, 1, 1, 1, 2, 2, 2]]),
        position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2]]),
    )["hidden"]
    for part, tokens in ((packed[:, :4], first), (packed[:, 4:], second)):
        torch.testing.assert_close(part, network(want=HIDDEN, tokens=tokens, order=order)["hidden"], rtol=0, atol=1e-12)


def test_the_order_of_rows_is_irrelevant() -> None:
    network, tokens = build(), ids(4)
    turned = torch.tensor([2, 0, 3, 1])
    states = network(want=HIDDEN, tokens=tokens)["hidden"]
    torch.testing.assert_close(network(want=HIDDEN, tokens=tokens[turned])["hidden"], states[turned], rtol=0, atol=1e-12)


@pytest.mark.parametrize("changed", [{"norm": "post"}, {"norm": "pre"}, {"embedding.width": 8}, {"positions": "none"}])
def test_every_parameter_receives_a_gradient(changed: dict[str, Any]) -> None:
    network = build(**changed)
    tokens = torch.arange(VOCABULARY)[None]
    segments = (torch.arange(VOCABULARY) % 2)[None]
    hidden = network(want=HIDDEN, tokens=tokens, segments=segments)["hidden"]
    (hidden * torch.randn_like(hidden)).sum().backward()
    for name, parameter in network.named_parameters():
        used = parameter.grad
        assert used is not None and used.abs().sum() > 0, name
        used = used[:VOCABULARY] if name == "embeddings.positions.weight" else used  # the others have no token here
        if name != "layers.0.attention.projections.bias":  # a bias of keys moves every score alike: its gradient is zero
            assert used.flatten(1).abs().sum(1).gt(0).all() if used.dim() > 1 else used.abs().gt(0).float().mean() > 0.6, name


def test_state_dict_round_trip_gives_the_same_outputs() -> None:
    first, second = build(), build(**{"initial.std": 0.1})
    second.load_state_dict(first.state_dict(), strict=True)
    torch.testing.assert_close(second(want=HIDDEN, tokens=ids())["hidden"], first(want=HIDDEN, tokens=ids())["hidden"])


def test_parameter_names_are_those_that_interop_relies_on() -> None:
    names = set(build("pre", layers=1, **{"embedding.width": 8}).state_dict())
    assert names == {
        "embeddings.tokens.weight", "embeddings.positions.weight", "embeddings.segments.weight", "project.weight",
        "project.bias", "norm.weight", "norm.bias",
    } | {
        f"layers.0.{part}.{kind}"
        for part in ("attention.projections", "attention.out", "attention_norm", "inner", "outer", "inner_norm")
        for kind in ("weight", "bias")
    }
    assert {"embeddings.norm.weight", "embeddings.norm.bias"} <= set(build("post").state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_cached_generation_equals_the_full_forward(norm: str) -> None:
    network, tokens = build(norm).eval(), ids(2, 9)
    full = network(want=HIDDEN, tokens=tokens, order="left_to_right")["hidden"]
    cache = Cache(2)
    parts = []
    for start, stop in ((0, 4), (4, 5), (5, 8), (8, 9)):
        position_ids = torch.arange(start, stop).expand(2, -1)
        states = network(
            want=HIDDEN, tokens=tokens[:, start:stop], position_ids=position_ids, order="left_to_right", cache=cache
        )
        parts.append(states["hidden"])
        assert cache.length == stop
    torch.testing.assert_close(torch.cat(parts, dim=1), full, rtol=0, atol=1e-12)


def test_summary_is_the_first_token_or_the_given_place() -> None:
    network, tokens = build(), ids(2)
    states = network(want=frozenset({"hidden", "summary"}), tokens=tokens)
    assert torch.equal(states["summary"], states["hidden"][:, 0])
    last = network(want=frozenset({"hidden", "summary"}), tokens=tokens, summaries=torch.tensor([6, 13, 3]))
    assert torch.equal(last["summary"], last["hidden"].flatten(0, 1)[[6, 13, 3]])


def test_layers_are_the_embeddings_then_every_layer_and_end_in_hidden() -> None:
    states = build("pre")(want=frozenset({"hidden", "layers"}), tokens=ids(2))
    assert states["layers"].shape == (3, 2, LENGTH, 16)
    assert torch.equal(states["layers"][-1], states["hidden"])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("summaries", [None, [3, 8]])
def test_chosen_positions_get_the_states_and_gradients_of_the_full_run(norm: str, dropout: float, summaries: Any) -> None:
    network, tokens = build(norm, dropout=dropout), ids(3)
    wanted = torch.tensor([20, 1, 9, 9, 0, 0])
    chosen = None if summaries is None else torch.tensor(summaries)
    results = []
    for positions in (None, wanted):
        network.zero_grad()
        states = network(
            want=frozenset({"hidden", "summary"}), tokens=tokens, positions=positions, summaries=chosen, order="left_to_right"
        )
        read = states["hidden"].flatten(0, 1)[wanted]
        ((read * torch.linspace(-1, 1, 16)).sum() + (states["summary"] ** 2).sum()).backward()
        results.append((read, states["summary"], {k: p.grad for k, p in network.named_parameters()}))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-10)


def test_nothing_asked_gives_no_error_and_connected_zeros() -> None:
    network = build()
    hidden = network(want=HIDDEN, tokens=ids(2), positions=torch.zeros(0, dtype=torch.long))["hidden"]
    hidden.sum().backward()
    assert hidden.eq(0).all() and network.layers[1].inner.weight.grad is not None


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_agree_with_finite_differences(norm: str) -> None:
    network = build(norm, layers=1, width=4, **{"feed_forward.activation": "gelu_tanh"})
    vectors = torch.randn(1, 3, 4, dtype=torch.double, requires_grad=True)
    order = torch.tensor([[0, 2, 1]])

    def run(vectors: Tensor) -> Tensor:
        return network(want=HIDDEN, tokens=ids(1, 3), vectors=vectors, order=order)["hidden"]

    assert torch.autograd.gradcheck(run, (vectors,))


def test_unknown_order_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="left_to_right"):
        build()(want=HIDDEN, tokens=ids(), order="left_to_rigth")


def test_what_is_kept_from_an_inference_serves_a_training_step() -> None:
    network = Transformer(layers=1, width=16, heads=2, vocab_size=11, clock=Clock())
    tokens = torch.arange(39).view(3, 13) % 11  # a length that no other test uses: its masks are made here
    fields = {"tokens": tokens, "order": "left_to_right", "want": frozenset({"hidden"})}
    with torch.inference_mode():
        network(**fields)
    network.train()(**fields)["hidden"].sum().backward()
    assert network.token_tables["tokens"].weight.grad is not None
