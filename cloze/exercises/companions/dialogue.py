"""The first turns of a dialogue, one of them replaced by a turn of another (ERNIE)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.bounds import Count, Share
from cloze.exercises.companions.distance import WithDistractor, first_sentence, sentence_bounds
from cloze.exercises.joined import with_companions
from cloze.registry import register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows


@register("edit", "dialogue")
@dataclass(frozen=True)
class Dialogue(WithDistractor):
    """The first `turns` turns of a dialogue; with probability `rate` one of them, each equally likely, is that of another
    dialogue (the dialogue language model of ERNIE, Sun et al., 2019). A document is a dialogue and a sentence is a turn.

    Gives `parts` (B, `turns`, 2), start and stop of the turns, empty for those that a dialogue does not have, and `targets/<set>`
    (B,), 1 for a real dialogue and 0 for a fake one. `segments` of the frame that follows says which role each turn has.
    """

    turns: Count = 3
    rate: Share = 0.5
    set: str = "dialogue"

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"parts", f"targets/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        numbers = np.arange(self.turns)
        parts = np.stack([sentence_bounds(rows, np.full(rows.count, number)) for number in numbers], axis=1)
        present = (parts[:, :, 0] < parts[:, :, 1]).sum(axis=1)
        turn = integers_below(draw.bits("dialogue.turn"), np.maximum(present, 1))
        fake = draw.uniform("dialogue") < self.rate
        parts = np.where((fake[:, None] & (numbers == turn[:, None]))[:, :, None], first_sentence(rows)[:, None], parts)
        turns = rows.without("sentence")  # meaningless in a row of two dialogues
        turns = turns.having_all(with_companions(turns, *self.joins))
        return turns.having_all({"parts": parts, f"targets/{self.set}": (~fake).astype(np.int32)})
