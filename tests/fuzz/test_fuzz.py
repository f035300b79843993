"""Spoilt inputs of every kind, a few each: `make fuzz` tries many more."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import folders, judging, outputs  # noqa: F401
from tests.fuzz.targets import TARGETS, legal


@pytest.mark.parametrize("name", sorted(TARGETS))
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_spoilt_inputs_are_answered_in_words(name: str, chance: Random) -> None:
    with tempfile.TemporaryDirectory(prefix="cloze-fuzz-") as folder:
        legal()
        with judging.judged():
            TARGETS[name](chance, Path(folder))


def test_a_fault_a_hang_and_a_blow_up_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SECONDS", 1)
    with pytest.raises(judging.Fault, match="bug in cloze"), judging.judged():
        raise AttributeError("x")
    with pytest.raises(judging.Fault, match="no answer after 1 s"), judging.judged():
        while True:
            pass
    with pytest.raises(judging.Fault, match="out of memory"), judging.judged():
        bytearray(2 * judging.BYTES)
