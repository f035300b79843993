"""The processes of a run as their launcher describes them: RANK and WORLD_SIZE in the environment, and LOCAL_WORLD_SIZE, in whose
place Open MPI and SLURM have variables of their own.

A process without WORLD_SIZE runs alone and has rank 0, even if RANK is set.
"""

from __future__ import annotations

import os

from cloze.errors import UserError


def processes() -> int:
    """How many processes the run has (WORLD_SIZE), 1 if this one runs alone. Raises `UserError` if the variable is no number."""
    return _number("WORLD_SIZE", 1)


#: How many processes a machine has, as torchrun, Open MPI and SLURM tell each of them.
_HERE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def processes_here() -> int:
    """How many of them run on this machine, by the launcher's variables; 1 if none says so. Raises as `processes`."""
    world = processes()
    name = next((name for name in _HERE if os.environ.get(name)), None)
    return 1 if world == 1 or name is None else min(_number(name, 1), world)


def rank() -> int:
    """The number of this process (RANK), from 0. Raises `UserError` if it is no number below WORLD_SIZE."""
    world = processes()
    if world == 1:
        return 0
    number = _number("RANK", None, least=0)
    if number >= world:
        raise UserError(f"RANK={number}: WORLD_SIZE is {world}, so ranks are numbers from 0 to {world - 1}.")
    return number


def _number(name: str, usual: int | None, *, least: int = 1) -> int:
    setting = os.environ.get(name, "")
    if not setting and usual is not None:
        return usual
    if not setting.isascii() or not setting.isdigit() or int(setting) < least:
        raise UserError(f"{name}={setting}: expected a whole number of {least} or more. The launcher sets it, such as torchrun.")
    return int(setting)
