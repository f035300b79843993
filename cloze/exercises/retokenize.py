"""Make a view of the same text for another network, which has a tokenizer and a template of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text import Tokenizer, retokenized


class OtherReading(NamedTuple):
    """How a network with a tokenizer of its own reads texts. `rows`: the tokenizer of the rows that the texts come from.

    `max_length`: the longest row that the network reads (None: any); `vocab_size`: the rows of its table of tokens; `first`: the
    row of its own id 0, if those of the ids of `rows` come before.
    """

    rows: Tokenizer
    tokenizer: Tokenizer
    template: str
    max_length: int | None
    vocab_size: int
    first: int = 0


def reading_of(network: str, tables: Mapping[str, Any] | None) -> OtherReading | None:
    """The reading of a network among what a run looks up by name; None: it reads the rows as they are."""
    reading = (tables or {}).get(network)
    return reading if isinstance(reading, OtherReading) else None


@register("edit", "retokenize")
@dataclass(frozen=True)
class Retokenize(Edit):
    """Make the view `fused`: the text of each row as the other `network` of the recipe reads it (Zhu et al., 2020, §3).

    That network comes from a checkpoint, whose tokenizer and template for one text are used. Put the edit before those that
    change the text. The text is what the tokenizer of the rows makes of its ids, as the authors undo the BPE of their translator
    (bert-nmt/bert-nmt, `makedataforbert.sh`); with one tokenizer for both the ids stay. A text that the other network cannot read
    whole is cut.

    Gives `fused.tokens` (B, S), `fused.length` and `fused.segments`.
    """

    second: ClassVar[str | None] = "fused"

    network: str
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(f"{self.second}.{name}" for name in ("tokens", "length", "segments"))

    @cached_property
    def _reading(self) -> OtherReading:
        """How the other network reads."""
        reading = reading_of(self.network, self.tables)
        if reading is None:
            raise RecipeError(
                f"retokenize: no network {self.network!r} from a checkpoint, whose states the exported network reads.\n"
                f"  Write `{self.network}: {{from: NAME, train: none}}`, and `change: [fuse: {{network: {self.network}}}]` for "
                "the exported network."
            )
        padding = reading.rows.roles.get("[PAD]", 0)
        if padding >= reading.vocab_size:
            raise RecipeError(
                f"retokenize: rows are padded with the id {padding}, and the vocabulary of {self.network!r} has "
                f"{reading.vocab_size} ids.\n  Use a checkpoint with a larger vocabulary there."
            )
        return reading

    @cached_property
    def _frame(self) -> Frame:
        reading = self._reading
        frame = Frame(reading.template, tokenizer=TokenFacts.of(reading.tokenizer), keeps_empty=True)
        return frame if reading.max_length is None else frame.for_length(reading.max_length)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        reading = self._reading
        ids = [
            retokenized(row[:length], reading.rows, reading.tokenizer)
            for row, length in zip(rows["tokens"], rows["length"], strict=True)
        ]
        length = np.array([len(encoded) for encoded in ids], np.int32)
        tokens = np.zeros((len(ids), max(int(length.max(initial=0)), 1)), np.int32)
        for row, encoded in zip(tokens, ids, strict=True):
            row[: len(encoded)] = encoded
        framed = self._frame(Rows({"tokens": tokens, "length": length}, checked=True), draw)
        names = ("tokens", "length", "segments")
        return rows.having_all({f"{self.second}.{name}": framed[name] for name in names})
