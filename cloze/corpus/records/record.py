"""A row of labelled text."""

from __future__ import annotations

from typing import Any, NamedTuple


class Record(NamedTuple):
    """One row: its first line, its texts, and its answer as in the file (None if it has none)."""

    line: int
    texts: tuple[str, ...]
    answer: Any
