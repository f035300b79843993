"""The losses and gradients of every system at a fixed seed stay what they were: a rewrite of a network changes no number.

Where a recipe changes on purpose, renew its line and say why in the changelog:

    CLOZE_RENEW=bert python -m pytest tests/contracts/test_losses.py
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.conftest import CHINESE
from tests.systems_at_tiny import distinct

STORED = Path(__file__).with_name("losses.json")


def numbers(system: Any) -> dict[str, list[float]]:
    """By entry: the per-target losses of the first batch without dropout, then the norm of all gradients together."""
    step, found = system.step(), {}
    for entry, batch in system.batches(step).items():
        step.zero_grad(set_to_none=True)
        counts = step.count(entry, batch)
        losses = {name: loss.total / max(counts[name], 1.0) for name, loss in step(entry, batch).items()}
        total = torch.stack(list(losses.values())).sum()
        if total.requires_grad:
            total.backward()
        squares = sum(float(p.grad.double().square().sum()) for p in step.parameters() if p.grad is not None)
        found[entry] = [*(float(losses[name].detach()) for name in sorted(losses)), math.sqrt(squares)]
    return found


@pytest.mark.parametrize("name", distinct(CHINESE.__contains__))
def test_losses_and_gradients_at_a_fixed_seed_are_those_stored(name: str, system: Callable[..., Any]) -> None:
    found = numbers(system(name))
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if name in os.environ.get("CLOZE_RENEW", "").split(",") or os.environ.get("CLOZE_RENEW") == "all":
        stored[name] = found
        lines = [f" {json.dumps(key)}: {json.dumps(stored[key])}" for key in sorted(stored)]
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        pytest.skip("the line was renewed")
    assert found.keys() == stored[name].keys()
    for entry, values in stored[name].items():
        assert found[entry][:-1] == pytest.approx(values[:-1], rel=1e-5, abs=1e-5)
        assert found[entry][-1] == pytest.approx(values[-1], rel=1e-4)


def test_a_member_that_is_left_out_has_the_losses_of_its_system(system: Callable[..., Any]) -> None:
    known = distinct(CHINESE.__contains__)
    for member, own in {"gpt3-175b": "gpt3", "roberta-large": "roberta", "nezha-large": "nezha"}.items():
        assert own in known and member not in known
        assert numbers(system(member)) == numbers(system(own))


def test_a_number_is_stored_for_every_system_and_for_no_other() -> None:
    assert sorted(json.loads(STORED.read_text())) == distinct(CHINESE.__contains__)
