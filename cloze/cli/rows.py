"""Rows of names and numbers as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows with the same keys as lines: names to the left, numbers to the right."""
    shown = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in shown
    ]


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
