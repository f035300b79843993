"""Make a query of the beginning of a document and a passage of another part of it, or of a document that links to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from cloze.errors import RecipeError, propose
from cloze.exercises.companions.inverse_cloze import gathered, without_text
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before

Companion = Literal["lead", "linked"]


@register("edit", "body_first")
@dataclass(frozen=True)
class BodyFirst(Edit):
    """The companion `of`, a sentence from the beginning of a document, is the query; the row becomes the view `to`, the passage
    (Chang et al., 2020, "Pre-training Tasks for Embedding-based Large-scale Retrieval", §3).

    `lead` is a sentence of the row's own document (body-first selection; source `passages: {lead: 5}`), `linked` one of a
    document that the row links to (wiki-link prediction; source `passages: {lead: 5, links: LAYER}`). The sentence is removed
    from the passage if it is there.
    If a row consists of this sentence alone, its first half is the query and its second half the passage. Put a frame in each
    view after it.
    """

    to: str = "passage"
    of: Companion = "lead"

    def __post_init__(self) -> None:
        if self.of not in get_args(Companion):
            raise RecipeError(f"body_first.of: {self.of!r}. {propose(self.of, get_args(Companion))}")

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "sentence", *(f"{self.of}.{name}" for name in ("tokens", "length", "sentence"))})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens, length, lead = rows["tokens"], rows["length"].astype(np.int64), rows.view(self.of)
        inside = columns_before(length, tokens.shape[1])
        rest = inside & (rows["sentence"] != lead["sentence"][:, :1])
        alone, half = ~rest.any(1), (length + 1) // 2
        rest |= alone[:, None] & inside & ~columns_before(half, tokens.shape[1])
        query_length = np.where(alone, np.minimum(lead["length"], half), lead["length"]).astype(np.int32)
        query = Rows({**without_text(rows), "tokens": lead["tokens"], "length": query_length}, checked=True)
        return query.with_view(self.to, gathered(tokens, rest))
