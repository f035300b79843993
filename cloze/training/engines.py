"""The engines there are; importing this registers them. None of them imports numba before it is chosen."""

from __future__ import annotations

from cloze.training import cell_engine, factorise, lock_free  # noqa: F401
