"""Make the second sequence: what the decoder reads and what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.frame import OWN, split_template
from cloze.exercises.units.question import slots
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, before, listed, where

Ids = tuple[int, ...]


Edits = list[tuple[str, dict[str, Any]]]


class Lesson(NamedTuple):
    """How a checkpoint is asked for a text: edits by name with their arguments, the order in which it reads them (None: its
    usual one), and what it must know of its reading to write that text later."""

    edits: Edits
    order: str | None = None
    reading: dict[str, Any] = {}


class Form(Protocol):
    """How a checkpoint lays a text and its answer out."""

    def lesson(self, *, of: str, longest: int | None, set: str) -> Lesson:
        """How it is asked for the companion `of`, cut to `longest` tokens, in a set of targets."""
        ...


@register("edit", "answer")
@dataclass(frozen=True)
class Answer:
    """Ask the decoder for `what`: the `whole` text (BART), the `masked` tokens (MASS), or the `spans`, each after the
    sentinel that stands for it (T5); with `of`, for the whole text of a companion such as `translation`.

    It comes before the edits that change the text; after `corrupt` without infill the original tokens are meant. `frame` is
    put around the answer. The decoder reads the answer shifted right: `start`, a role, stands before it; `previous` shows
    at every place the token that stands before it in the text (MASS). `positions: original` gives the decoder the positions
    of those tokens in the text instead of 0, 1, 2, … `longest` cuts the answer.

    `frame: reading` means the way in which the checkpoint that the recipe begins with writes the companion: by its decoder,
    in gaps behind the text, or by continuing it; with the frame of the text, and all that is needed to ask.

    Gives `decoder_tokens` (B, T), `decoder_length`, `targets/<set>` and `decoder_positions/<set>` (B, T), -1 for none.
    """

    described: ClassVar = {"longest": "target_length"}  # what task.json keeps of it, under which name

    what: Literal["whole", "masked", "spans"] = "whole"
    frame: str = "{A} [EOS]"
    start: str = "[PAD]"
    positions: Literal["counted", "original"] = "counted"
    of: str | None = None
    longest: Count | None = None
    set: str = "main"
    tokenizer: Given[TokenFacts | None] = None
    _around: tuple[Ids, Ids] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.frame == OWN:
            if not self.of:
                raise RecipeError("answer: frame reading is for the text of a companion; say which, such as of: target.")
            return
        pieces = split_template(self.frame)
        if [kind for kind, _ in pieces].count("part") != 1:
            raise RecipeError(f"answer: frame {self.frame!r} does not name one part; expected for example '{{A}} [EOS]'.")
        if self.start == "previous" and (self.what != "masked" or len(pieces) > 1 or self.of):
            raise RecipeError("answer: start previous is for masked tokens as they stand in the text: what: masked, frame '{A}'.")
        if self.positions == "original" and self.start != "previous":
            raise RecipeError("answer: original positions are those of the tokens before the masked ones; write start: previous.")
        if self.of and self.what != "whole":
            raise RecipeError(f"answer: of a companion the whole text is asked, got what: {self.what}.")
        if self.tokenizer is not None and self._around is None:
            object.__setattr__(self, "_around", self._read(self.tokenizer))

    @property
    def takes(self) -> frozenset[str]:
        if self.of:
            return frozenset({f"{self.of}.tokens", f"{self.of}.length"})
        own = {"whole": set[str](), "masked": {"masked"}, "spans": {"masked", "layers/span"}}[self.what]
        return frozenset({"tokens", "length"} | own)

    @property
    def optional(self) -> frozenset[str]:
        """Fields read when they are there: after `corrupt`, targets are the original tokens."""
        return frozenset({"original"} | ({"position_ids", "special"} if self.positions == "original" else set()))

    @property
    def gives(self) -> frozenset[str]:
        own = {"decoder_tokens", "decoder_length", f"targets/{self.set}", f"decoder_positions/{self.set}"}
        return frozenset(own | ({"decoder_position_ids"} if self.positions == "original" else set()))

    def chosen(self, form: Callable[[], Form]) -> Lesson | None:
        """What replaces this edit once the checkpoint is known; None if that makes no difference."""
        return form().lesson(of=str(self.of), longest=self.longest, set=self.set) if self.frame == OWN else None

    def _read(self, facts: TokenFacts) -> tuple[Ids, Ids]:
        """The ids before and after the answer."""
        pieces = split_template(self.frame)
        at = [kind for kind, _ in pieces].index("part")
        before, after = pieces[:at], pieces[at + 1:]
        return tuple(
            tuple(i for kind, text in side for i in facts.literal(kind, text)) for side in (before, after)
        )  # type: ignore[return-value]

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.frame == OWN:
            raise RecipeError("answer: frame reading is that of the checkpoint that the recipe begins with; it begins with none.")
        facts = needed(self.tokenizer, "answer")
        source = rows.view(self.of) if self.of else rows
        if self.start == "previous":
            return self._shifted_in_place(source, facts)
        row, slot, ids = self._listed(source, facts)
        before, after = self._around or ((), ())
        number = np.bincount(row, minlength=source.count)
        if self.longest is not None:
            room = max(self.longest - len(before) - len(after), 0)
            kept = slot < room
            row, slot, ids, number = row[kept], slot[kept], ids[kept], np.minimum(number, room)
        length = number + len(before) + len(after)
        width = max(int(length.max(initial=0)), 1)
        answer = np.zeros((source.count, width), np.int32)
        answer[:, : len(before)] = before
        answer.reshape(-1)[row * width + slot + len(before)] = ids
        tail = (number + len(before))[:, None] + np.arange(len(after))
        answer[np.arange(source.count)[:, None], tail] = np.array(after, np.int32)
        shown = np.empty_like(answer)
        shown[:, 0] = facts.role(self.start)
        shown[:, 1:] = answer[:, :-1]
        return self._given(rows, shown, answer, length)

    def _listed(self, rows: Rows, facts: TokenFacts) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Row, slot and id of every token of the answer without its frame."""
        tokens = rows.get("original", rows["tokens"])
        if self.what == "whole":
            at, row, column = listed(before(rows["length"], tokens.shape[1]))
            return row, column, tokens.take(at)
        row, column = self._masked(rows)
        slot = slots(np.bincount(row, minlength=rows.count))
        if self.what == "masked":
            return row, slot, tokens[row, column]
        span = rows["layers/span"][row, column]
        slot = slot + span
        begins = np.ones(len(row), bool)
        begins[1:] = (row[1:] != row[:-1]) | (span[1:] != span[:-1])
        first = np.flatnonzero(begins)
        every = (row, row[first]), (slot, slot[first] - 1), (tokens[row, column], facts.sentinel(span[first]))
        return tuple(np.concatenate(both) for both in every)  # type: ignore[return-value]

    def _masked(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        if "masked" not in rows:
            raise RecipeError(f"answer: what: {self.what}, but infilling has taken the spans out; put answer before corrupt.")
        return where(rows["masked"])

    def _shifted_in_place(self, rows: Rows, facts: TokenFacts) -> Rows:
        """Every masked token is asked where the token before it in the text is shown."""
        tokens = rows.get("original", rows["tokens"])
        row, column = self._masked(rows)
        length = np.bincount(row, minlength=rows.count)
        slot = slots(length)
        answer = np.zeros((rows.count, max(int(length.max(initial=0)), 1)), np.int32)
        shown, position_ids = np.zeros_like(answer), np.zeros_like(answer)
        answer[row, slot] = tokens[row, column]
        shown[row, slot] = tokens[row, np.maximum(column - 1, 0)]
        first = column == 0
        if first.any():
            shown[row[first], slot[first]] = facts.role("[BOS]")
        given = self._given(rows, shown, answer, length)
        if self.positions == "counted":
            return given
        known = rows["position_ids"] if "position_ids" in rows else np.broadcast_to(
            np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
        position_ids[row, slot] = known[row, np.maximum(column - 1, 0)]
        return given.having(decoder_position_ids=position_ids)

    def _given(self, rows: Rows, shown: NDArray[Any], answer: NDArray[Any], length: NDArray[Any]) -> Rows:
        columns = np.arange(shown.shape[1], dtype=np.int32)
        positions = np.where(columns < length[:, None], columns, np.int32(-1))
        return rows.having_all({
            "decoder_tokens": shown, "decoder_length": length.astype(np.int32),
            f"targets/{self.set}": answer, f"decoder_positions/{self.set}": positions,
        })

    def at(self, length: int) -> Answer:
        """The same edit; the answer of a companion is cut to the room that the text has."""
        if self.of is None or self.longest is not None:
            return self
        around = sum(kind != "part" for kind, _ in split_template(self.frame))
        return replace(self, longest=length + around)
