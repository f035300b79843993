"""How many processes share a machine, by the variables of their launcher."""

from __future__ import annotations

import pytest

from cloze.errors import UserError
from cloze.processes import processes_here


@pytest.mark.parametrize(("given", "count"), [
    ({}, 1),
    ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, 4),
    ({"WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
    ({"WORLD_SIZE": "8", "SLURM_NTASKS_PER_NODE": "4"}, 4),
    ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "4"}, 2),
    ({"WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "4"}, 2),  # a job of several runs
    ({"SLURM_NTASKS_PER_NODE": "4"}, 1),  # one process of a batch job
    ({"WORLD_SIZE": "8"}, 1),
])  # fmt: skip
def test_every_launcher_says_how_many_processes_a_machine_has(
    given: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert processes_here() == count


def test_a_number_that_is_none_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "two")
    with pytest.raises(UserError, match="LOCAL_WORLD_SIZE=two: expected a whole number of 1 or more"):
        processes_here()
