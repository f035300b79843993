"""Padding changes no number: a step over rows with more columns of it has the same losses and gradients, in every recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloze.batching.collate import one_per_row, several_per_row
from tests.contracts.conftest import CHINESE
from tests.contracts.test_losses import numbers
from tests.systems_at_tiny import distinct

MORE = 3  # columns of padding
#: Recipes whose rows have no padding.
WITHOUT = frozenset({"transe", "transe-bordes"})  # triples: always a head, a relation and a tail


@pytest.mark.parametrize("name", [name for name in distinct(CHINESE.__contains__) if name not in WITHOUT])
def test_more_padding_changes_neither_losses_nor_gradients(
    name: str, system: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, widths = numbers(system(name)), list[int]()

    def wider(length: Any, width: int | None = None) -> Any:
        widths.append(one_per_row(length, width).width)
        return one_per_row(length, widths[-1] + MORE)

    def wider_packed(length: Any, row: Any, width: int) -> Any:
        widths.append(width)
        return several_per_row(length, row, width + MORE)

    monkeypatch.setattr("cloze.batching.feed.one_per_row", wider)
    monkeypatch.setattr("cloze.batching.feed.several_per_row", wider_packed)
    padded = numbers(system(name))
    assert any(widths) and padded.keys() == plain.keys()
    for entry, values in plain.items():
        assert padded[entry] == pytest.approx(values, rel=1e-4, abs=1e-5)
