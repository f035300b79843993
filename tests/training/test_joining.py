"""Processes that should meet: what is missing is said, nobody waits for ever, and one rank keeps and reads the state."""

from __future__ import annotations

import socket
import typing
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from tiny import electra

from cloze.errors import DeviceError, RunError, UserError
from cloze.processes import processes, rank
from cloze.recipe.recipe import TrainingSpec
from cloze.recipe.schema import check_value, describe
from cloze.training.checkpoints.background import BackgroundTask
from cloze.training.checkpoints.state import Gathering, gather_parameters
from cloze.training.distribution import Ranks, join, own_store, time_limit


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of the second of two processes."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_variable_that_is_missing_is_named(two: pytest.MonkeyPatch) -> None:
    two.delenv("MASTER_ADDR")
    two.delenv("RANK")
    expected = r"(?s)WORLD_SIZE is 2, but RANK and MASTER_ADDR are not set.*RANK=\$SLURM_PROCID"
    with pytest.raises(UserError, match=expected), join("cpu"):
        pass


def test_processes_that_do_not_meet_within_the_limit_say_so(two: pytest.MonkeyPatch) -> None:
    two.setenv("CLOZE_TIMEOUT", "1s")
    expected = "rank 1 of 2: the processes did not all meet at 127.0.0.1:9 within 0:00:01"
    with pytest.raises(DeviceError, match=expected), join("cpu"):
        pass


def test_a_host_that_does_not_exist_is_named_before_anybody_waits(two: pytest.MonkeyPatch) -> None:
    two.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(UserError, match=r"MASTER_ADDR=no-such-host\.invalid: .*host of rank 0"), join("cpu"):
        pass


def test_processes_that_torchrun_restarted_do_not_meet_the_dead(two: pytest.MonkeyPatch) -> None:
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun's, which outlives its processes
    two.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    two.setenv("MASTER_PORT", str(kept.port))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        kept.set("cloze/port", str(closed.getsockname()[1]))  # that of a process before
    with ThreadPoolExecutor(1) as others:
        second = others.submit(own_store, 1, timedelta(seconds=20))
        with pytest.raises(TimeoutError):
            second.result(0.3)
        first = own_store(0, timedelta(seconds=20))
        assert first is not None
        first.set("address", "of rank 0")
        assert second.result(20).get("address") == b"of rank 0"  # type: ignore[union-attr]
    assert not kept.check(["address"])
    kept.set("cloze/port", "1")
    with pytest.raises(RuntimeError, match="127.0.0.1:1: Connection refused"):
        own_store(1, timedelta(seconds=0.1))


def test_processes_of_other_launchers_meet_where_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert own_store(0, timedelta(seconds=1)) is None


def test_the_limit_is_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time_limit().total_seconds() == 1800
    monkeypatch.setenv("CLOZE_TIMEOUT", "2h")
    assert time_limit().total_seconds() == 7200
    for wrong in ("soon", "50steps", "1e30h", "0s"):
        monkeypatch.setenv("CLOZE_TIMEOUT", wrong)
        with pytest.raises(UserError, match="expected a duration, such as 90s, 30m or 2h"):
            time_limit()


@pytest.mark.parametrize(("strategy", "shard"), [("ddp", 2), ("fsdp", 3), ("fsdp", 0), ("fsdp", -2)])
def test_groups_of_ranks_must_divide_them_and_are_for_fsdp(two: pytest.MonkeyPatch, strategy: str, shard: int) -> None:
    expected = f"--shard {shard}: needs --strategy fsdp, and must divide the number of processes, 2"
    with pytest.raises(UserError, match=expected), join("cpu", strategy, shard):  # type: ignore[arg-type]
        pass


def test_a_process_alone_has_no_groups_to_divide() -> None:
    with pytest.raises(UserError, match="--shard 4: .* must divide the number of processes, 1"), join("cpu", "fsdp", 4):
        pass


@pytest.mark.parametrize(("variable", "value", "expected"), [
    ("WORLD_SIZE", "two", "WORLD_SIZE=two: expected a whole number of 1 or more"),
    ("WORLD_SIZE", "0", "WORLD_SIZE=0: expected a whole number of 1 or more"),
    ("RANK", "x", "RANK=x: expected a whole number of 0 or more"),
    ("MASTER_PORT", "port", "MASTER_PORT=port: expected the number of a port"),
    ("RANK", "2", "RANK=2: WORLD_SIZE is 2, so ranks are numbers from 0 to 1"),
])  # fmt: skip
def test_a_variable_that_is_no_number_is_named(two: pytest.MonkeyPatch, variable: str, value: str, expected: str) -> None:
    two.setenv(variable, value)
    with pytest.raises(UserError, match=expected), join("cpu"):
        pass


def test_a_process_without_a_number_of_processes_is_alone(two: pytest.MonkeyPatch) -> None:
    assert (rank(), processes()) == (1, 2)
    two.delenv("WORLD_SIZE")
    assert (rank(), processes()) == (0, 1)


def test_a_lost_process_is_explained_and_other_errors_stay(two: pytest.MonkeyPatch) -> None:
    two.setattr("torch.distributed.is_initialized", lambda: True)
    two.setattr("torch.distributed.get_rank", lambda: 1)
    expected = r"(?s)rank 1 of 2: lost another process.*continues from its last checkpoint"
    with pytest.raises(RunError, match=expected), join("cpu"):
        raise RuntimeError("[gloo/pair.cc] Connection closed by peer [127.0.0.1]:1234")
    with pytest.raises(RuntimeError, match="shapes differ"), join("cpu"):
        raise RuntimeError("shapes differ")


def test_a_rank_that_does_not_keep_the_state_holds_nothing_and_a_copy_stays_as_it_was() -> None:
    step = electra()
    assert gather_parameters(step, Gathering(kept=False)) == {}
    shared, copied = gather_parameters(step), gather_parameters(step, Gathering(copied=True))
    assert shared.keys() == copied.keys()
    name, parameter = next(iter(step.named_parameters()))
    before = copied[name].clone()
    with torch.no_grad():
        parameter.add_(1.0)
    assert torch.equal(copied[name], before) and torch.equal(shared[name], parameter)


def test_alone_there_is_nobody_to_share_with() -> None:
    ranks, tensor = Ranks(0, 1, torch.device("cpu")), torch.ones(2)
    assert ranks.broadcast(tensor) is tensor and ranks.broadcast_data({"step": 3}) == {"step": 3}
    assert ranks.announce_tensors({"a": tensor}) == {"a": tensor}


def test_work_behind_tells_its_failure_once_and_to_the_one_who_waits() -> None:
    task, done = BackgroundTask(), list[int]()
    task.start(lambda: done.append(1))
    assert task.wait() is None and done == [1]
    task.start(lambda: 1 // 0)
    assert isinstance(task.wait(), ZeroDivisionError) and task.wait() is None


def test_a_recipe_may_save_by_the_clock() -> None:

    annotation = typing.get_type_hints(TrainingSpec, include_extras=True)["checkpoint_every"]
    for good in (100, "20m", "1.5h", ".5h", "90s", None):
        assert check_value(annotation, good) == good
    for wrong in (0, "0m", "20", "20 minutes", "m", "20steps"):
        with pytest.raises(ValueError, match="checkpoint_every|Predicate|greater|whole|duration|predicate|validation"):
            check_value(annotation, wrong)
    assert describe(annotation) == "a whole number of 1 or more or a duration such as 20m or null"
