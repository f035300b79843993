"""Replace a companion by a wrong text, with whether the two belong together as target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "mismatch")
@dataclass(frozen=True)
class Mismatch(Edit):
    """With probability `rate`, replace the companion `of` by the companion `wrong` (the paraphrase
    classification of Unicoder, Huang et al., 2019).

    Gives the resulting companion, `targets/<set>` (B,), 1 for a pair that belongs together and 0 for a wrong one, and
    `mismatched`. A field that only one of the two companions has is dropped, because it would describe the other text.
    """

    of: str = "translation"
    wrong: str = "distractor"
    rate: Share = 0.5
    set: str = "match"

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise RecipeError(f"mismatch: rate is {self.rate}; expected a number from 0 to 1.")
        if self.of == self.wrong:
            raise RecipeError(f"mismatch: of and wrong are both {self.of}; expected two companions.")

    @property
    def joins(self) -> tuple[str, ...]:
        """Both companions: they need every token-aligned field that the row needs, because a frame may join them to it."""
        return (self.of, self.wrong)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset(f"{name}.{field}" for name in self.joins for field in ("tokens", "length"))

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: a wrong text brings its language."""
        return frozenset(f"{name}.language" for name in self.joins)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.of}.tokens", f"{self.of}.length", f"targets/{self.set}", "mismatched"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        changed = draw.uniform("mismatch") < self.rate
        right, wrong = rows.view(self.of), rows.view(self.wrong)
        fields = {name: chosen(changed, wrong[name], value) for name, value in right.items() if name in wrong}
        return rows.with_view(self.of, Rows(fields, checked=True)).having_all(
            {f"targets/{self.set}": (~changed).astype(np.int32), "mismatched": changed}
        )


def chosen(changed: NDArray[np.bool_], new: NDArray[Any], old: NDArray[Any]) -> NDArray[Any]:
    """(B,), (B, L) or (B, L, D): rows of `new` where `changed`, of `old` elsewhere; as wide as the wider of the two."""
    if old.ndim == 1:
        return np.where(changed, new, old)
    width = max(old.shape[1], new.shape[1])
    if old.shape == new.shape:
        mixed = old.astype(np.result_type(old, new))
        mixed[changed] = new[changed]
        return mixed
    mixed = np.zeros((len(old), width, *old.shape[2:]), np.result_type(old, new))
    mixed[:, : old.shape[1]] = old
    mixed[changed, : new.shape[1]] = new[changed]
    mixed[changed, new.shape[1] :] = 0
    return mixed
