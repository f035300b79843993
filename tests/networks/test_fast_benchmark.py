"""benchmarks/fast.py turns fast functions off by the decisions that select them: they must exist under these names."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from cloze.networks.fast import softmax


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_fast", Path(__file__).parents[2] / "benchmarks" / "fast.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_switch_replaces_a_decision_and_puts_it_back(benchmark: ModuleType) -> None:
    before = softmax.pays
    switches = benchmark.switches()
    try:
        assert len(switches) == 8 and all(callable(switch.decide) for switch in switches)
        (switch,) = (each for each in switches if each.name == "softmax kernel")
        assert softmax.pays is switch
        switch.decide = lambda x: True
        assert softmax.pays(torch.zeros(1)) and switch.used
        switch.off = True
        assert not softmax.pays(torch.zeros(1))
        switch.decide = before
    finally:
        for switch in switches:
            switch.undo()
    assert softmax.pays is before
