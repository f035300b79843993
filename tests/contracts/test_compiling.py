"""How kernels are compiled: kept for later processes where that is possible, compiled anew where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from cloze import compiled

numba = pytest.importorskip("numba")


def test_kernels_are_kept_for_later_processes() -> None:
    assert compiled.has_numba()
    assert compiled.options(fastmath=True) == {"nogil": True, "boundscheck": False, "cache": True, "fastmath": True}


def test_where_nothing_can_be_written_kernels_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(*, cache: bool) -> Any:
        raise RuntimeError("cannot cache function '_nothing': no locator available for file")

    monkeypatch.setattr(numba, "njit", njit)
    compiled._can_be_kept.cache_clear()
    try:
        assert compiled.options()["cache"] is False
    finally:
        monkeypatch.undo()
        compiled._can_be_kept.cache_clear()
