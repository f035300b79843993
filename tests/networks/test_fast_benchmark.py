"""benchmarks/fast.py turns fast functions off by the decisions that select them: they must exist under these names."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from cloze import kernels


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_fast", Path(__file__).parents[2] / "benchmarks" / "fast.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_switch_replaces_a_decision_and_puts_it_back(benchmark: ModuleType) -> None:
    before = kernels.find
    switches = benchmark.switches()
    try:
        assert len(switches) == 7 and all(callable(switch.decide) for switch in switches)
        (switch,) = (each for each in switches if each.name == "gelu kernel")
        switch.decide = lambda name, **call: name
        assert kernels.find("gelu", size=9) == "gelu" and switch.used
        switch.off = True
        assert kernels.find("gelu") is None and kernels.find("dropout") == "dropout"
    finally:
        for switch in reversed(switches):
            switch.undo()
    assert kernels.find is before
