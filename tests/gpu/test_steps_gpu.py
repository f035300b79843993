"""Steps of whole systems on a GPU: the losses of a CPU, and the waits that the simulated GPU counts (`test_gpu_steps.py`)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.contracts.conftest import system  # noqa: F401  (a fixture)
from tests.contracts.test_gpu_steps import FEW, STORED
from tests.device_steps import DeviceSteps

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("name", FEW)
def test_two_steps_have_the_losses_of_a_cpu(name: str, system: Callable[..., Any]) -> None:  # noqa: F811
    own, losses = system(name), {}
    for device in ("cpu", "cuda"):
        steps = DeviceSteps(own, own.recipe, own.step(), device)
        losses[device] = [steps.update() or steps.losses() for _ in range(2)]  # type: ignore[func-returns-value]
    for near, far in zip(losses["cpu"], losses["cuda"], strict=True):
        assert far == pytest.approx(near, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", FEW)
def test_a_step_waits_no_more_often_than_the_simulated_gpu_says(
    name: str, precision: Any, system: Callable[..., Any]  # noqa: F811
) -> None:
    own = system(name)
    steps = DeviceSteps(own, own.recipe, own.step(), "cuda", precision=precision, training=True)
    steps.update()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            steps.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = [f"{warning.filename}:{warning.lineno}" for warning in caught if "synchroniz" in str(warning.message)]
    assert len(places) <= sum(json.loads(STORED.read_text()).get(name, {}).values()), places
