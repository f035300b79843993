"""The fast functions of a CPU against the layer of plain modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.kernels import KERNELS
from cloze.networks import Clock, Transformer
from cloze.networks.blocks import selected
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.fast.activation import activate, activate_backward
from cloze.networks.fast.switch import switched
from tests.making import network_of


def both(network: Transformer, **fields: Any) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """States of tokens that are not padding, and their gradients, by the fast path, then by the plain one."""
    results = []
    real = fields.get("block", torch.ones_like(fields["tokens"]))[..., None] > 0
    for fast in (True, False):
        network.zero_grad()
        with switched(fast):
            hidden = network(want=frozenset({"hidden"}), **fields)["hidden"] * real
        weights = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
        (hidden * weights * (hidden.detach() != 0)).sum().backward()
        results.append((hidden.detach(), {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}))
    return results


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("order", ["open", "left_to_right", "packed"])
@pytest.mark.parametrize("positions", [None, [1, 9, 5, 5, 0, 20]])
def test_fast_and_plain_layers_agree(norm: str, dropout: float, activation: str, order: str, positions: Any) -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=2, width=12, heads=2, norm=norm, dropout=dropout, vocab_size=11, clock=Clock(4),
        **{"feed_forward.activation": activation, "initial.std": 0.3}).double()
    fields: dict[str, Any] = {"tokens": torch.randint(0, 11, (3, 8)), "order": order}
    if order == "packed":
        fields |= {"order": "open", "block": torch.tensor([[1] * 5 + [2] * 3, [1] * 8, [1] * 3 + [0] * 5])}
    if positions is not None:
        fields["positions"] = torch.tensor(positions)
    fast, plain = both(network, **fields)
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changed", [
    {"positions": "rotary"}, {"positions": "disentangled"}, {"positions": "functional"},
    {"norm": "pre", "attention.key_value_heads": 1}, {"attention.band.width": 2, "attention.band.dense_every": 2},
    {"attention.gate": True}, {"norm": "pre", "norm.depth_means": True}, {"share.weights": "all"},
])  # fmt: skip
@pytest.mark.parametrize("read", ["hidden", "summary"])
def test_padding_that_is_left_out_changes_no_state_of_a_token_and_no_gradient(
    changed: dict[str, Any], read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=3, width=16, heads=2, vocab_size=11, clock=Clock(4), dropout=0.2,
        **{"initial.std": 0.3, **changed}).double()
    block = torch.tensor([[1] * 5 + [0] * 3, [1] * 8, [1] * 3 + [2] * 2 + [0] * 3])
    fields: dict[str, Any] = {"tokens": torch.randint(0, 11, (3, 8)), "order": "open", "block": block}
    if read == "summary":
        fields |= {"positions": torch.zeros(0, dtype=torch.long), "summaries": torch.tensor([0, 8, 16, 19])}
    results, widths = [], set()
    for padding in (1.0, 0.0):
        monkeypatch.setattr(selected, "PADDING", padding)
        network.zero_grad()
        layer = network.layers[0].register_forward_pre_hook(lambda _, arguments: widths.add(arguments[0].dim()))
        states = network(want=frozenset({read}), **fields)[read]
        layer.remove()
        states = states[block > 0] if read == "hidden" else states
        (states * torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)).sum().backward()
        results.append((states.detach(), {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}))
    assert widths == ({3} if "norm.depth_means" in changed else {2, 3})  # (M, D) and (B, L, D)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("trained", ["outer", "inner.", "norm", "attention.out", "projections", "layers.1", "outer.bias"])
def test_fast_layers_compute_the_gradients_of_trained_parameters_alone(norm: str, trained: str) -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=2, width=12, heads=2, norm=norm, dropout=0.0, vocab_size=11, clock=Clock(4),
        **{"initial.std": 0.3}).double()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(trained in name)
    fast, plain = both(network, tokens=torch.randint(0, 11, (3, 8)))
    assert plain[1] and all(trained in name for name in plain[1])
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-10)


def test_bfloat16_training_stays_near_float32() -> None:
    torch.manual_seed(0)
    network = Transformer(layers=2, width=64, heads=2, dropout=0.1, vocab_size=50, clock=Clock(4))
    tokens = torch.randint(0, 50, (4, 16))
    weights = torch.randn(4, 16, 64)
    gradients = []
    for low in (False, True):
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            hidden = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
        assert hidden.dtype == (torch.bfloat16 if low else torch.float32)
        (hidden.float() * weights).sum().backward()
        gradients.append({name: p.grad.clone() for name, p in network.named_parameters()})
    for name, exact in gradients[0].items():
        assert gradients[1][name].dtype == torch.float32
        assert (gradients[1][name] - exact).norm() < 0.04 * exact.norm() + 1e-3, name


def test_a_replaced_or_hooked_map_is_called() -> None:
    network = Transformer(layers=1, width=8, heads=2, dropout=0.0, vocab_size=5, clock=Clock())
    tokens = torch.zeros(1, 3, dtype=torch.long)
    called = []
    handle = network.layers[0].inner.register_forward_hook(lambda *_: called.append("hook"))
    network(want=frozenset({"hidden"}), tokens=tokens)
    handle.remove()

    class Adapted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            called.append("replaced")
            return super().forward(x)

    network.layers[0].outer = Adapted(32, 8)
    network(want=frozenset({"hidden"}), tokens=tokens)
    assert called == ["hook", "replaced"]


def test_a_dropout_that_was_replaced_is_called() -> None:
    """Adapters stand around dropouts; a fast function would apply the mask alone and leave the adapter out."""
    network = Transformer(layers=1, width=8, heads=2, dropout=0.0, vocab_size=5, clock=Clock())
    tokens = torch.zeros(1, 3, dtype=torch.long)
    usual = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]

    class Adapted(Dropout):
        def forward(self, x: Tensor, positions: Any = None) -> Tensor:
            return 3 * super().forward(x, positions)

    for name in ("attention_dropout", "inner_dropout"):
        setattr(network.layers[0], name, Adapted(0.0, network.clock))
        changed = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
        assert not torch.allclose(changed, usual)
        with switched(False):
            torch.testing.assert_close(network(want=frozenset({"hidden"}), tokens=tokens)["hidden"], changed)
        usual = changed


def test_a_second_backward_gives_the_same_gradients() -> None:
    network = Transformer(layers=1, width=8, heads=2, dropout=0.3, vocab_size=5, clock=Clock()).double()
    hidden = network(want=frozenset({"hidden"}), tokens=torch.zeros(2, 3, dtype=torch.long))["hidden"]
    weights = torch.randn_like(hidden)
    wanted = list(network.parameters())
    once = torch.autograd.grad(hidden, wanted, weights, retain_graph=True, allow_unused=True)
    twice = torch.autograd.grad(hidden, wanted, weights, allow_unused=True)
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True) if a is not None)


def test_compiled_gelu_is_the_tanh_form_for_every_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setitem(KERNELS, "gelu", KERNELS["gelu"]._replace(least=1, threads=1 << 10))
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.isfinite()]
    exact = nn.functional.gelu(x.double(), approximate="tanh")
    exact = torch.where(x < -1e4, 0.0, exact)  # of which float64 makes 0 times infinity
    assert (activate(x, "gelu_tanh").double() - exact).abs().le(0.004 * exact.abs() + 1e-6).all()
    slope = activate_backward(torch.ones_like(x), x, "gelu_tanh").double()
    reference = torch.ops.aten.gelu_backward(torch.ones_like(x).double(), x.double(), approximate="tanh")
    reference = torch.where(x.abs() > 1e4, (x > 0).double(), reference)
    assert (slope - reference).abs().le(0.004 * reference.abs() + 1e-6).all()


def test_compiled_gelu_hides_nothing_that_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setitem(KERNELS, "gelu", KERNELS["gelu"]._replace(least=1, threads=1 << 10))
    x = torch.tensor([float("nan"), 1.0, float("nan")]).bfloat16()
    assert activate(x, "gelu_tanh").isnan().tolist() == [True, False, True]
    assert activate_backward(torch.ones_like(x), x, "gelu_tanh").isnan().tolist() == [True, False, True]
