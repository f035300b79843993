"""Spoilt inputs of every kind, a few each: `make fuzz` tries many more."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def _targets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_targets", Path(__file__).with_name("targets.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_targets"] = module
    spec.loader.exec_module(module)
    return module


targets = _targets()


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_spoilt_inputs_are_answered_in_words(name: str, chance: Random) -> None:
    with tempfile.TemporaryDirectory(prefix="cloze-fuzz-") as folder:
        targets.legal()
        with targets.judged():
            targets.TARGETS[name](chance, Path(folder))


def test_a_fault_a_hang_and_a_blow_up_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS", 1)
    with pytest.raises(targets.Fault, match="bug in cloze"), targets.judged():
        raise AttributeError("x")
    with pytest.raises(targets.Fault, match="no answer after 1 s"), targets.judged():
        while True:
            pass
    with pytest.raises(targets.Fault, match="out of memory"), targets.judged():
        bytearray(2 * targets.BYTES)
