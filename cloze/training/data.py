"""What the loop asks of its data; `batching.Data` gives it, and any object of this shape will do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from cloze.batching import Cursor, MicroBatch


class Examples(Protocol):
    """This rank's part of the examples. Everything is a pure function of the arguments and of the last `change`."""

    def next(self, entry: str, cursor: Cursor, share: float = 0.0) -> tuple[Sequence[MicroBatch], Cursor]:
        """This rank's micro-batches of the step at `cursor`, as many on every rank, and the cursor of the step after.
        What follows a schedule in them is as it is when `share` of the budget is spent."""
        ...

    def held_out(self, entry: str) -> Iterable[MicroBatch]:
        """This rank's part of the held-out examples; the same at every call."""
        ...

    def items(self, entry: str) -> int:
        """How many items an epoch of the entry has at the present length."""
        ...

    def change(self, values: Mapping[str, Any]) -> bool:
        """Apply what a phase sets, of which `length`, `batch` and the `odds.` of entries that share batches concern the data.
        True if the items are now others (a new length, other odds), so that a cursor into the old epoch means nothing and
        the next epoch begins. It does not depend on the phases before: a run resumed in this one has the same data."""
        ...

    def close(self) -> None:
        """End what makes examples ahead of the loop."""
        ...
