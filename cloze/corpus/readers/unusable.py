"""Rows of labelled text that cannot be used: an error with file and line, or one of several to be listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cloze.errors import MessagePiece, TaskError

#: Receives the line of a row that cannot be used, and the reason; the row is then skipped. Without one, the row is an error.
Fault = Callable[[int, str], None]


class FaultCounter:
    """Passes faults on and counts them; `report` is None where a fault is an error."""

    def __init__(self, fault: Fault | None) -> None:
        self.count = 0
        self._fault = fault

    @property
    def report(self) -> Fault | None:
        """What receives a fault."""
        return None if self._fault is None else self._counted

    def _counted(self, line: int, why: str) -> None:
        assert self._fault is not None
        self.count += 1
        self._fault(line, why)


def unusable(path: Path | str, line: int, *why: MessagePiece, fault: Fault | None) -> None:
    """Report a row that cannot be used to `fault`; without one raise a `TaskError` with file and line."""
    if fault is None:
        raise TaskError(f"{path}:{line}: ", *why)
    fault(line, "".join(map(str, why)))
