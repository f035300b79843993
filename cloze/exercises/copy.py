"""Copy an example into a second view with the same fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "copy")
@dataclass(frozen=True)
class Copy(Edit):
    """Make a view `to` with all fields that the main view holds at this point; later edits address it by `in: <to>`."""

    to: str

    duplicates: ClassVar[bool] = True

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    @property
    def copies(self) -> str:
        """The view that receives every field of the main view."""
        return self.to

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.with_view(self.to, rows.view("main"))
