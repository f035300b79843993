"""What the loop requires of its data: a protocol, which `batching.Data` implements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from cloze.batching import Cursor, MicroBatch


class TrainingData(Protocol):
    """This rank's part of the examples. Everything is a pure function of the arguments and of the last `change`."""

    def next(self, entry: str, cursor: Cursor, share: float = 0.0) -> tuple[Sequence[MicroBatch], Cursor]:
        """This rank's micro-batches of the step at `cursor`, the same number on every rank, and the cursor of the next
        step. Scheduled values are those at `share` of the budget."""
        ...

    def held_out(self, entry: str) -> Iterable[MicroBatch]:
        """This rank's part of the held-out examples; the same at every call."""
        ...

    def rows_in_epoch(self, entry: str) -> int:
        """The rows of an epoch of the entry at the current length."""
        ...

    def change(self, values: Mapping[str, Any]) -> bool:
        """Apply what a phase sets, of which `length`, `batch` and the `odds.` of entries that share batches concern the data.
        Returns whether the rows change (a new length, other odds), so that cursors into the old epoch are invalid and the next
        epoch starts. It does not depend on earlier phases: a run resumed in this one has the same data."""
        ...

    def close(self) -> None:
        """Stop the workers that make examples ahead of the loop."""
        ...
