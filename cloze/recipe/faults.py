"""The faults of a recipe, collected so that they can be printed together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cloze.document import Where
from cloze.errors import ClozeError, MessagePiece, RecipeError

_PHASE = re.compile(r" in schedule\[\d+\]")


class Faults:
    """A list of messages, each with its place in the file and its value path."""

    def __init__(self) -> None:
        # place, message, and what makes it the same fault as another
        self._faults: list[tuple[Where, tuple[MessagePiece, ...], str]] = []

    def add(self, where: Where, path: str, what: str, way_out: str = "", *more: MessagePiece) -> None:
        """Add a fault: its place, what is wrong, and (on a second line) what to do. A fault of a value path that recurs in every
        phase is added once, at its first place. `more` is appended to the message."""
        text = (f"{path}: {what}" if path else what) + (f"\n  {way_out}" if way_out else "")
        self._note(where, (text, *more), _PHASE.sub("", f"{path}: {what}" if path else f"{where}: {text}"))

    def _note(self, where: Where, pieces: tuple[MessagePiece, ...], same: str) -> None:
        if all(same != noted for _, _, noted in self._faults):
            self._faults.append((where, pieces, same))

    @contextmanager
    def catching(self, where: Where, path: str) -> Iterator[None]:
        """Turn an error raised inside into a fault at this place."""
        try:
            yield
        except ClozeError as error:
            first, _, rest = str(error).partition("\n")
            self.add(where, path, first, rest.strip())

    def __len__(self) -> int:
        return len(self._faults)

    def raise_if_any(self) -> None:
        """Raise one `RecipeError` that holds every fault, in the order of the file."""
        if self._faults:
            ordered = sorted(self._faults, key=lambda fault: (fault[0].file, fault[0].line, fault[0].column))
            lines = [piece for where, pieces, _ in ordered for piece in ("\n", where.as_piece, ": ", *pieces)]
            raise RecipeError(*lines[1:])

    def add_all(self, faults: Faults) -> None:
        """Add the faults of another collection."""
        for fault in faults._faults:
            self._note(*fault)
