"""Compiled layers draw the same numbers and give the same outputs as eager ones; needs a C++ compiler."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cloze.networks import Clock, Transformer
from cloze.networks.blocks.dropout import Dropout, dropouts, set_dropouts
from cloze.training.trainee import compile_layers
from cloze.uncompiled import uncompiled
from tests.making import network_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore"),
]


def test_compiled_layers_equal_eager_ones_with_dropout() -> None:
    network = Transformer(layers=1, width=32, heads=2, dropout=0.1, vocab_size=11, clock=Clock(4))
    tokens = torch.randint(0, 11, (3, 8))
    eager = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
    network.layers[0].compile()
    compiled = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)
    compiled.square().sum().backward()
    network.clock.set(step=1)
    assert not torch.allclose(network(want=frozenset({"hidden"}), tokens=tokens)["hidden"], eager)


def test_a_compiled_layer_follows_another_rate_and_back() -> None:
    network = Transformer(layers=1, width=32, heads=2, dropout=0.1, vocab_size=11, clock=Clock(4))
    usual, tokens = dropouts(network), torch.randint(0, 11, (3, 8))
    eager, compiled = [], []
    for found in (eager, compiled):
        for rates in (usual, dict.fromkeys(usual, 0.0), dict.fromkeys(usual, 0.3), usual):
            set_dropouts(network, rates)
            found.append(network(want=frozenset({"hidden"}), tokens=tokens)["hidden"])
        network.layers[0].compile()
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)
    assert torch.equal(compiled[0], compiled[3]) and not torch.allclose(compiled[0], compiled[1])


def test_the_element_hash_survives_compilation() -> None:
    module = Dropout(0.3, Clock(5))
    hashed = torch.compile(lambda: module._by_element((3, 16, 64), torch.device("cpu")))
    assert torch.equal(hashed(), module._by_element((3, 16, 64), torch.device("cpu")))


def test_an_uncompiled_function_runs_as_it_is_inside_a_compiled_one() -> None:
    traced = []

    @uncompiled
    def apart(x: torch.Tensor, factor: float) -> torch.Tensor:
        traced.append(torch.compiler.is_compiling())
        return x * factor

    compiled = torch.compile(lambda x: apart(x + 1, factor=2.0).relu(), backend="eager")
    assert torch.equal(compiled(torch.arange(3.0)), torch.tensor([2.0, 4.0, 6.0])) and traced == [False]


def test_compiled_gradients_of_rotated_queries_in_bf16_are_those_of_eager_layers() -> None:
    size = {"layers": 1, "width": 64, "heads": 1, "vocab_size": 11}
    network = network_of("transformer", **size, positions="rotary", dropout=0.0, clock=Clock(4))
    tokens, directions = torch.randint(0, 11, (2, 128)), torch.randn(2, 128, 64)
    gradients = []
    for _ in range(2):
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            (network(want=frozenset({"hidden"}), tokens=tokens)["hidden"] * directions).sum().backward()
        gradients.append(network.layers[0].attention.projections.weight.grad.clone())
        step: Any = SimpleNamespace(networks={"main": network})
        compile_layers(step, True, torch.device("cpu"))
    eager, compiled = gradients
    assert float((compiled - eager).norm() / eager.norm()) < 0.02
