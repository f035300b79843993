"""The faults of a recipe, collected so that they can be printed together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cloze.document import Where
from cloze.errors import ClozeError, RecipeError

_PHASE = re.compile(r" in schedule\[\d+\]")


class Faults:
    """A list of messages, each with its place in the file and its value path."""

    def __init__(self) -> None:
        self._found: list[tuple[Where, str, str]] = []  # place, message, and what makes it the same fault as another

    def add(self, where: Where, path: str, what: str, way_out: str = "") -> None:
        """Add a fault: its place, what is wrong, and (on a second line) what to do. A fault of a value path that recurs in every
        phase is added once, at its first place."""
        text = f"{where}: {path}: {what}" if path else f"{where}: {what}"
        text = text + (f"\n  {way_out}" if way_out else "")
        self._note(where, text, _PHASE.sub("", f"{path}: {what}" if path else text))

    def _note(self, where: Where, text: str, same: str) -> None:
        if all(same != noted for _, _, noted in self._found):
            self._found.append((where, text, same))

    @contextmanager
    def catching(self, where: Where, path: str) -> Iterator[None]:
        """Turn an error raised inside into a fault at this place."""
        try:
            yield
        except ClozeError as error:
            first, _, rest = str(error).partition("\n")
            self.add(where, path, first, rest.strip())

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """Raise one `RecipeError` that holds every fault, in the order of the file."""
        if self._found:
            ordered = sorted(self._found, key=lambda fault: (fault[0].file, fault[0].line, fault[0].column))
            raise RecipeError("\n".join(text for _, text, _ in ordered))

    def take(self, others: Faults) -> None:
        """Add the faults of another collection."""
        for fault in others._found:
            self._note(*fault)
