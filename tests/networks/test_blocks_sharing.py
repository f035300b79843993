"""Parameters shared between layers, as in ALBERT."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from cloze.networks import Clock, Transformer
from tests.making import network_of

HIDDEN = frozenset({"hidden"})
TOKENS = torch.randint(0, 13, (2, 7), generator=torch.Generator().manual_seed(0))


def build(weights: str | None, layers: int = 4, groups: int = 1, **changed: Any) -> Transformer:
    torch.manual_seed(1)
    arguments: dict[str, Any] = {"width": 16, "heads": 2, "dropout": 0.0, "initial.std": 0.4, **changed}
    share = {} if weights is None else {"share.weights": weights, "share.groups": groups}
    return network_of("transformer", **arguments, layers=layers, vocab_size=13, clock=Clock(3), **share).double()


def holders(network: Transformer, part: str) -> list[int]:
    """The layers that hold parameters of a part."""
    return sorted({int(name.split(".")[1]) for name in network.state_dict() if f".{part}." in name})


@pytest.mark.parametrize(("weights", "attention", "ffn"), [
    (None, 4, 4), ("attention", 1, 4), ("feed_forward", 4, 1), ("all", 1, 1),
])  # fmt: skip
def test_each_mode_shares_maps_with_their_norms(weights: str | None, attention: int, ffn: int) -> None:
    network = build(weights)
    for part in ("attention.projections", "attention.out", "attention_norm"):
        assert holders(network, part) == list(range(attention))
    for part in ("inner", "outer", "inner_norm"):
        assert holders(network, part) == list(range(ffn))
    assert set(network.state_dict()) == {name for name, _ in network.named_parameters()}


@pytest.mark.parametrize(("layers", "groups", "first"), [(4, 2, [0, 2]), (5, 3, [0, 2, 4]), (6, 6, [0, 1, 2, 3, 4, 5])])
def test_groups_are_runs_of_layers(layers: int, groups: int, first: list[int]) -> None:
    assert holders(build("all", layers, groups), "inner") == first


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("weights", ["attention", "feed_forward", "all"])
def test_outputs_and_gradients_are_those_of_equal_layers_with_gradients_summed(norm: str, weights: str) -> None:
    shared, apart = build(weights, norm=norm), build(None, norm=norm)
    state = shared.state_dict()
    full = {}
    for name in apart.state_dict():
        number, _, rest = name.removeprefix("layers.").partition(".")
        full[name] = state[name] if name in state else state[f"layers.0.{rest}"]
    apart.load_state_dict(full)
    for network in (shared, apart):
        hidden = network(want=HIDDEN, tokens=TOKENS)["hidden"]
        (hidden * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)).sum().backward()
    torch.testing.assert_close(
        shared(want=HIDDEN, tokens=TOKENS)["hidden"], apart(want=HIDDEN, tokens=TOKENS)["hidden"], rtol=0, atol=1e-12
    )
    theirs = {name: parameter.grad for name, parameter in apart.named_parameters()}
    for name, parameter in shared.named_parameters():
        _, _, rest = name.removeprefix("layers.").partition(".")
        copies = [f"layers.{number}.{rest}" for number in range(4)] if name.startswith("layers.0.") else [name]
        used = [key for key in copies if key == name or key not in state]
        torch.testing.assert_close(parameter.grad, sum(theirs[key] for key in used), rtol=0, atol=1e-10)


def test_layers_that_lend_say_so() -> None:
    assert [layer.lends for layer in build("feed_forward", 5, 2).layers] == [True, False, False, True, False]
    assert not any(layer.lends for layer in build(None).layers)


def test_layers_that_share_everything_still_drop_other_numbers() -> None:
    network = build("all", layers=3, dropout=0.3)
    keys = {module.key for layer in network.layers for module in (layer.attention_dropout, layer.inner_dropout)}
    assert len(keys | {layer.attention.dropout.key for layer in network.layers}) == 9


def test_copies_and_loaded_states_share_among_themselves() -> None:
    network = build("all")
    twin, other = copy.deepcopy(network), build("all", **{"initial.std": 0.1})
    assert twin.layers[3].inner is twin.layers[0].inner and twin.layers[3].inner is not network.layers[0].inner
    other.load_state_dict(network.state_dict(), strict=True)
    expected = network(want=HIDDEN, tokens=TOKENS)["hidden"]
    for made in (twin, other):
        torch.testing.assert_close(made(want=HIDDEN, tokens=TOKENS)["hidden"], expected, rtol=0, atol=0)


def test_a_shared_projection_into_the_residual_is_scaled_once() -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=8, width=64, heads=2, initial="normal", vocab_size=9, clock=Clock(),
        **{"share.weights": "all", "initial.residual": "scaled"})
    assert network.layers[5].outer.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)


def meta(**arguments: Any) -> Transformer:
    with torch.device("meta"):
        return network_of("transformer", **{"segments": 2, "vocab_size": 30000, **arguments}, clock=Clock(0, "cpu"))


def count(network: Transformer) -> int:
    """Parameters with a pooler, as the published totals have it."""
    return sum(p.numel() for p in network.parameters()) + network.width**2 + network.width


@pytest.mark.parametrize(("layers", "width", "heads", "published"), [
    (12, 768, 12, 11_683_584), (24, 1024, 16, 17_683_968), (24, 2048, 16, 58_724_864), (12, 4096, 64, 222_595_584),
])  # fmt: skip
def test_albert_has_the_published_number_of_parameters(layers: int, width: int, heads: int, published: int) -> None:
    assert count(meta(layers=layers, width=width, heads=heads, **{"embedding.width": 128, "share.weights": "all"})) == published


@pytest.mark.parametrize(("embedding_width", "totals"), [
    (128, {None: 89.7, "attention": 63.6, "feed_forward": 37.7, "all": 11.7}),
    (768, {None: 109.7, "attention": 83.7, "feed_forward": 57.7, "all": 31.7}),
])  # fmt: skip
def test_the_modes_have_the_published_totals(embedding_width: int, totals: dict[str | None, float]) -> None:
    for weights, millions in totals.items():
        network = meta(
            layers=12, width=768, heads=12,
            **{"embedding.width": embedding_width, "embedding.project": True, "share.weights": weights},
        )
        assert round(count(network) / 1e6, 1) == millions, weights
