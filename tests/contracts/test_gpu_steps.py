"""Training steps on a simulated GPU: no tensor is left on the CPU, the numbers are those of the CPU, and the host hardly waits.

`gpu_waits.json` says how often a step of a recipe waits for the device where it is at all. Where that changes on purpose:

    CLOZE_RENEW=elmo python -m pytest -m "slow or not slow" tests/contracts/test_gpu_steps.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.batch import Batch, block_starts, on_host
from cloze.networks.blocks.visibility import visibility
from tests.contracts.conftest import CHINESE
from tests.device_steps import DeviceSteps
from tests.simulated_gpu import SimulatedGpu
from tests.systems_at_tiny import distinct

STORED = Path(__file__).with_name("gpu_waits.json")
#: In the default tier: packed rows, left to right, a generator, tables of names, relations between positions.
FEW = ["bert", "electra-small", "gpt2", "knowbert", "t5-small"]
EVERY = distinct(CHINESE.__contains__)
NAMES = [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in EVERY]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_on_a_gpu_waits_no_more_often_than_is_stored(name: str, system: Callable[..., Any]) -> None:
    own = system(name)
    with SimulatedGpu() as gpu:
        steps = DeviceSteps(own, own.recipe, own.step(), "cuda", training=True)
        gpu.watch(steps.compiled_modules)
        steps.update()  # makes tables that later steps have
        gpu.waits.clear()
        steps.update()
        assert all(p.device.type == "cuda" for p in steps.trainee.model.parameters())
    where = {f"{operation}, {place.partition(':')[0]}": 0 for operation, place in sorted(gpu.waits)}
    for (operation, place), count in gpu.waits.items():
        where[f"{operation}, {place.partition(':')[0]}"] += count
    stored = json.loads(STORED.read_text())
    if name in os.environ.get("CLOZE_RENEW", "").split(",") or os.environ.get("CLOZE_RENEW") == "all":
        stored = {**{key: value for key, value in stored.items() if key != name}, **({name: where} if where else {})}
        lines = [f" {json.dumps(key)}: {json.dumps(stored[key])}" for key in sorted(stored)]
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        pytest.skip("the line was renewed")
    assert where == stored.get(name, {})
    assert not gpu.compiled_waits, "a compiled layer would leave its graph"


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_on_a_gpu_have_the_losses_of_a_cpu(name: str, system: Callable[..., Any]) -> None:
    own = system(name)
    near = DeviceSteps(own, own.recipe, own.step(), "cpu")
    expected = [near.update() or near.losses() for _ in range(2)]  # type: ignore[func-returns-value]
    with SimulatedGpu():
        far = DeviceSteps(own, own.recipe, own.step(), "cuda")
        losses = [far.update() or far.losses() for _ in range(2)]  # type: ignore[func-returns-value]
    for found, right in zip(losses, expected, strict=True):
        assert found == pytest.approx(right, rel=2e-4, abs=1e-5)


def test_packed_rows_in_bfloat16_meet_flash_attention_that_computes_what_a_mask_does(system: Callable[..., Any]) -> None:
    own = system("bert")
    near = DeviceSteps(own, own.recipe, own.step(), "cpu", precision="bf16")
    near.update()
    with SimulatedGpu() as gpu:
        far = DeviceSteps(own, own.recipe, own.step(), "cuda", precision="bf16")
        far.update()
        losses = far.losses()
    assert gpu.kernels["_flash_attention_forward"] == gpu.kernels["_flash_attention_backward"] > 0
    assert losses == pytest.approx(near.losses(), rel=1e-3)


def test_a_kernel_learns_where_packed_rows_start_without_waiting() -> None:
    block = torch.tensor([[1, 1, 2, 0], [2, 2, 1, 1]])
    with SimulatedGpu() as gpu:
        moved = Batch({"tokens": torch.zeros(2, 4, dtype=torch.long), "block": block}).to("cuda", non_blocking=True)
        starts = visibility("open", moved["block"], length=4, past=0, device=moved["block"].device).starts
        assert starts is not None and starts.device.type == "cuda" and not gpu.waits
        alone = visibility("open", moved["block"].clone(), length=4, past=0, device=moved["block"].device)
        assert alone.starts is None and alone.mask is not None and not gpu.waits  # then a mask does
    assert starts.tolist() == [0, 2, 3, 4, 6, *[8] * 59] == block_starts(block).tolist()


def test_the_host_reads_what_it_has_sent_without_waiting() -> None:
    sent = torch.tensor([[1, 2], [0, 3]])
    with SimulatedGpu() as gpu:
        moved = Batch({"tokens": sent}).to("cuda", non_blocking=True)["tokens"]
        gpu.waits.clear()
        assert on_host(moved) is sent and not gpu.waits
        assert on_host(moved + 1).tolist() == [[2, 3], [1, 4]] and sum(gpu.waits.values()) == 1
    assert on_host(sent) is sent


@pytest.mark.parametrize(("work", "waits"), [
    (lambda x: float(x.sum()), 1), (lambda x: x.nonzero(), 1), (lambda x: x[x > 0], 1), (lambda x: bool((x > 0).any()), 1),
    (lambda x: x.tolist(), 1), (lambda x: x.cpu(), 1), (lambda x: x[torch.tensor([1])], 1), (lambda x: torch.unique(x), 1),
    (lambda x: x.new_tensor([1.0]), 1), (lambda x: x.masked_fill(x > 0, 0.0).sum(), 0), (lambda x: x.cpu().tolist(), 1),
    (lambda x: torch.zeros(3).to(x.device, non_blocking=True) + x[:3], 0), (lambda x: x * 2.0 + torch.ones_like(x), 0),
])  # fmt: skip
def test_the_simulated_gpu_notices_what_the_host_waits_for(work: Callable[[torch.Tensor], Any], waits: int) -> None:
    with SimulatedGpu() as gpu:
        x = torch.arange(5.0, device="cuda")
        gpu.waits.clear()
        work(x)
    assert sum(gpu.waits.values()) == waits


def test_the_simulated_gpu_refuses_what_cuda_refuses() -> None:
    with SimulatedGpu():
        x = torch.ones(3, requires_grad=True, device="cuda")
        for work in (lambda: x + torch.ones(3), lambda: torch.cat([x, torch.ones(3)]), lambda: torch.ones(3)[x.long()]):
            with pytest.raises(RuntimeError, match="same device"):
                work()
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            x.detach().numpy()
        (x * 2 + torch.tensor(1.0)).sum().backward()  # a number may come from anywhere
        assert x.grad is not None and x.grad.device.type == "cuda" and (x.grad == 2).all()


def test_a_line_is_stored_for_known_recipes_alone() -> None:
    assert json.loads(STORED.read_text()).keys() <= set(EVERY)
