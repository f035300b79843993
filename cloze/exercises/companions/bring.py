"""Turn a companion (another passage that belongs to this one) into a view."""

from __future__ import annotations

from dataclasses import dataclass

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "bring")
@dataclass(frozen=True)
class Bring(Edit):
    """Turn the companion passage (`next`, `distractor`, …) into the view `to`; later edits address it by `in: <to>`."""

    companion: str
    to: str

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"{self.companion}.tokens", f"{self.companion}.length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.with_view(self.to, rows.view(self.companion))
