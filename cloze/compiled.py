"""Compiled code: whether there is a compiler, and how every kernel is compiled. numba is imported when a kernel is."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def has_numba() -> bool:
    """Whether the extra `fast` is installed."""
    return find_spec("numba") is not None


def options(**more: Any) -> dict[str, Any]:
    """What `numba.njit` is told of every kernel, and `more`: no interpreter's lock, no bounds, kept for later processes."""
    return {"nogil": True, "boundscheck": False, "cache": _can_be_kept(), **more}


@cache
def _can_be_kept() -> bool:
    """Whether compiled code has a place: numba refuses to keep it where neither the package nor the home can be written."""
    import numba

    try:
        numba.njit(cache=True)(_nothing)
    except RuntimeError:
        return False
    return True


def _nothing() -> None:
    """A function to ask about."""
