"""What a look-up table is: the part of a recipe's `tables:` that edits and networks find further inputs in."""

from __future__ import annotations

from typing import Any, ClassVar


class LookUp:
    """The base class of every look-up table.

    `bind(store)` gives the table over one store, and `restored(arrays)` the same from the `arrays` of a bound table, which a
    checkpoint holds. A table that only a source uses is not kept and has no arrays. `bound_to` is the argument that
    `--bind NAME=PATH` sets on the command line.
    `usual_size` is the size that a network is given before there is a store to bind the table to.
    `has_weights`: a network has weights for its entries. A run that starts from a checkpoint then keeps the checkpoint's table;
    any other table may be replaced by naming another file.
    """

    bound_to: ClassVar[str] = "file"
    usual_size: ClassVar[int] = 1000
    has_weights: ClassVar[bool] = True

    @property
    def opens(self) -> str | None:
        """A file of vectors, which `bind` is then given opened, after the store; None: it is bound to the store alone."""
        return None

    @staticmethod
    def over(bound: Any, store: Any) -> Any:
        """A bound table that a checkpoint holds, for another store: the same unless the table depends on the store's layers."""
        return bound
