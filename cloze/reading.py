"""How a trained network reads text: recipes specify it in `reading:`, checkpoints store it, and every command follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

OrderName = Literal["open", "left_to_right", "right_to_left", "source_to_target"]
SummaryToken = Literal["first", "last", "mask"]
FROM_CHECKPOINT = "reading"  # as a template: that of the checkpoint that a recipe starts from


@dataclass(frozen=True)
class Reading:
    """How a system reads text once trained: templates for one text and for a pair, and which token summarises a text.

    With the summary `mask`, that is the last [MASK] of the row, which the templates then have (answers of VL-BERT, VisualBERT).
    `start` is the role of the token that a decoder starts with (None: that of its architecture). `target` is the template of what
    it writes (None: `single`, whose inserted tokens it learns to write); what `target` has before the text is always written
    first. The roles in `unwritten` are never written. The prediction for a masked
    token is read `shift` positions to its left, as in training (GPT-BERT: 1). `orders` are the orders that the network can read
    in, the usual one first (empty: the one that it was trained in). With `left_to_right` it continues texts: at each token it
    predicts the next one. With `source_to_target` it writes the second text of `pair` after the first, one [MASK] at a time
    (UniLM); the two texts then have the ids `segments`. A row has at most `max_length` tokens (None: as many as the network can
    read).
    """

    single: str
    pair: str | None = None
    summary: SummaryToken = "first"
    start: str | None = None
    target: str | None = None
    unwritten: tuple[str, ...] = ()
    shift: int = 0
    orders: tuple[OrderName, ...] = ()
    segments: tuple[int, ...] = ()
    max_length: int | None = None

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Reading:
        """A reading from plain data; absent keys have their defaults."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in described.items()}
        return cls(**values)
