"""What a look-up table is: the part of a recipe's `tables:` that edits and networks find further inputs in."""

from __future__ import annotations


class LookUp:
    """The base class of every look-up table.

    `bind(store)` gives the table over one store, and `restored(arrays)` the same from the `arrays` of a bound table, which a
    checkpoint holds.
    """

    @property
    def opens(self) -> str | None:
        """A file of vectors, which `bind` is then given opened, after the store; None: it is bound to the store alone."""
        return None
