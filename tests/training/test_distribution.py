"""One rank = two ranks = accumulation, under DDP and FSDP2, with two gloo processes as torchrun starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lanes import Lanes, recurrent
from ranks import SCENARIOS, in_float32, settings
from safetensors.torch import load_file
from test_loop import events, mixture
from tiny import Numbers, electra, tiny_run, weights

from cloze.training.loop import train
from cloze.training.optimizers import muon

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs made by two processes, and of the same runs made by one."""
    folder = tmp_path_factory.mktemp("ranks")
    train(tiny_run(folder / "begun-alone", step=electra(), **{**settings(), "budget": "3steps"}))
    train(tiny_run(folder / "lanes-begun-alone", step=recurrent(), data=Lanes(), **{**settings(), "budget": "3steps"}))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "ranks.py"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    shutil.copytree(folder / "fsdp-electra", folder / "fsdp-electra-resumed")
    return folder


def assert_equal_runs(one: Path, two: Path) -> None:
    """Assert that losses, gradient norms and final weights agree to float32's tolerance."""
    for a, b in zip(events(one), events(two), strict=True):
        assert b["objectives"] == pytest.approx(a["objectives"], rel=2e-5)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-3)
        assert (b["tokens"], b["examples"], b["step"]) == (a["tokens"], a["examples"], a["step"])
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(
            np.frombuffer(second[name], np.float32), np.frombuffer(value, np.float32), atol=2e-4, err_msg=name
        )
    for a, b in zip(events(one, "held_out"), events(two, "held_out"), strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-3)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_two_ranks_equal_one(runs: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "as_dtype", in_float32)
    build: Any = SCENARIOS[name][0]
    alone = {key: value for key, value in SCENARIOS[name][1].items() if key not in ("strategy", "shard")}
    train(tiny_run(tmp_path, step=build(), **settings(**alone)))
    assert_equal_runs(tmp_path, runs / name)


def test_parameters_that_travel_in_bfloat16_learn_as_one_rank_does_in_bfloat16(runs: Path, tmp_path: Path) -> None:
    train(tiny_run(tmp_path, step=electra(), **settings(precision="bf16")))
    for one, two in zip(events(tmp_path), events(runs / "half-electra"), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-2)
    kept = load_file(runs / "half-electra/cloze/checkpoints/step-00000006/state/parameters.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}


def test_a_copy_of_a_state_that_one_rank_has_all_of_stays_as_it_was(runs: Path) -> None:
    assert [(runs / f"copied.{rank}").read_text() for rank in (0, 1)] == ["unchanged", "unchanged"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_equal_one_when_a_step_holds_every_entry(runs: Path, tmp_path: Path, strategy: str) -> None:
    train(tiny_run(tmp_path, step=mixture(), mixing="all", **settings()))
    assert_equal_runs(tmp_path, runs / f"{strategy}-mixture")


def test_a_sharded_run_resumes_alone_with_its_weights_and_its_optimizer(runs: Path, tmp_path: Path) -> None:
    further = {**settings(), "budget": "9steps", "extend": True}
    train(tiny_run(tmp_path, step=electra(), **settings()))
    train(tiny_run(tmp_path, step=electra(), **further))
    train(tiny_run(runs / "fsdp-electra-resumed", step=electra(), data=Numbers(), **further))
    assert events(runs / "fsdp-electra-resumed", "resume")[0]["step"] == 6
    assert_equal_runs(tmp_path, runs / "fsdp-electra-resumed")


def test_a_run_begun_alone_resumes_sharded_with_its_weights_and_its_optimizer(runs: Path, tmp_path: Path) -> None:
    train(tiny_run(tmp_path, step=electra(), **{**settings(), "budget": "3steps"}))
    train(tiny_run(tmp_path, step=electra(), **settings(), extend=True))
    assert events(runs / "begun-alone", "resume")[0]["step"] == 3
    assert_equal_runs(tmp_path, runs / "begun-alone")


@pytest.mark.parametrize("name", ["ddp-lanes", "fsdp-lanes"])
def test_two_ranks_remember_their_lanes_as_one_does(runs: Path, tmp_path: Path, name: str) -> None:
    train(tiny_run(tmp_path / "alone", step=recurrent(), data=Lanes(micro=2), **settings()))
    assert_equal_runs(tmp_path / "alone", runs / name)
    carry = Path("cloze/checkpoints/step-00000006/state/carry.safetensors")
    one, two = load_file(tmp_path / "alone" / carry), load_file(runs / name / carry)
    assert one.keys() == two.keys()
    torch.testing.assert_close(one["main:main:states"], two["main:main:states"], atol=1e-3, rtol=0)
    assert torch.equal(one["main:main:known"], two["main:main:known"])


def test_lanes_of_one_process_are_sliced_for_two(runs: Path, tmp_path: Path) -> None:
    for budget in ("3steps", "6steps"):
        changes = {**settings(), "budget": budget, "extend": budget == "6steps"}
        train(tiny_run(tmp_path / "alone", step=recurrent(), data=Lanes(), **changes))
    assert_equal_runs(tmp_path / "alone", runs / "lanes-begun-alone")
