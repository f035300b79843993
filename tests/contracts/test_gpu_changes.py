"""Changed networks on a simulated GPU: a step leaves nothing on the CPU, and its losses are those of a CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import build_part
from cloze.recipe.changes import lasts
from cloze.recipe.recipe import PartSpec
from tests.contracts.test_changes import CHANGES, UNREAD, network_of, refusal
from tests.device_steps import DeviceSteps
from tests.simulated_gpu import SimulatedGpu

SYSTEMS = ["bert", "knowbert", "t5-small", "zen"]
FEW = {("quantise", "bert"), ("lora", "t5-small")}  # in the default tier
PAIRS = [
    pytest.param(change, name, marks=() if (change, name) in FEW else pytest.mark.slow)
    for change in CHANGES if lasts(change) for name in SYSTEMS
    if refusal(change, name) is None and name not in UNREAD.get(change, "").split()
]


@pytest.mark.parametrize(("change", "name"), PAIRS)
def test_two_steps_of_a_changed_network_on_a_gpu_have_the_losses_of_a_cpu(
    change: str, name: str, system: Callable[..., Any]
) -> None:
    own = system(name)
    step = own.step()
    torch.manual_seed(0)
    build_part(PartSpec("change", change, dict(CHANGES[change]))).apply(network_of(step, own.recipe))
    step._freeze()
    near = DeviceSteps(own, own.recipe, copy.deepcopy(step), "cpu")
    expected = [near.update() or near.losses() for _ in range(2)]  # type: ignore[func-returns-value]
    with SimulatedGpu():
        far = DeviceSteps(own, own.recipe, step, "cuda")
        losses = [far.update() or far.losses() for _ in range(2)]  # type: ignore[func-returns-value]
    for found, right in zip(losses, expected, strict=True):
        assert found == pytest.approx(right, rel=5e-4, abs=1e-5)
