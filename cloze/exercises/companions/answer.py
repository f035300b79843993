"""Make the view `decoder`: what a decoder reads and its targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit, ExerciseKind
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.frame import split_template
from cloze.exercises.units.unit_request import slots
from cloze.reading import FROM_CHECKPOINT
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns, true_positions

Ids = tuple[int, ...]


Edits = list[tuple[str, dict[str, Any]]]


class Lesson(NamedTuple):
    """How a checkpoint is trained to generate a text: edits by name with their arguments, the order in which it reads (None: its
    usual one), and the keys of `reading` that it needs to generate such a text later."""

    edits: Edits
    order: str | None = None
    reading: dict[str, Any] = {}


class AnswerForm(Protocol):
    """How a checkpoint lays out a text and the text to generate."""

    def lesson(self, *, of: str, max_length: int | None, set: str) -> Lesson:
        """How it is trained to generate the companion `of`, cut to `max_length` tokens; `set` is the set of the targets."""
        ...


class ByForm(Edit):
    """An edit that is replaced by other edits once the checkpoint is known."""

    @abstractmethod
    def chosen(self, form: Callable[[], AnswerForm]) -> Lesson | None:
        """The edits that replace it; None if it stays."""


@register("edit", "answer")
@dataclass(frozen=True)
class DecoderAnswer(ByForm):
    """Make the view `decoder`, a second sequence with targets, from `what`: the `whole` text (BART), the `masked` tokens (MASS),
    or the `spans`, each after its sentinel (T5); with `of`, from the whole text of a companion such as `translation`.

    Put it before the edits that change the text; after a `corrupt` without infill it uses the original tokens. `frame` is put
    around the target. The decoder reads the target shifted right, after `start`, a role; `start: previous` shows at every
    position the token that precedes it in the text (MASS). `positions: original` gives the decoder the positions of those tokens
    in the text instead of 0, 1, 2, … `max_length` cuts the target.

    `frame: reading` lets the checkpoint that the recipe starts from decide how the companion is generated: by its decoder, in
    [MASK]s after the text, or as a continuation of the text. The edits that this needs replace this one.

    Gives `decoder.tokens` (B, T), `decoder.length`, `decoder.targets/<set>` and `decoder.positions/<set>` (B, T), -1 for none.
    """

    second: ClassVar[str | None] = "decoder"

    described: ClassVar[Mapping[str, str]] = MappingProxyType({"max_length": "target_length"})

    what: Literal["whole", "masked", "spans"] = "whole"
    frame: str = "{A} [EOS]"
    start: str = "[PAD]"
    positions: Literal["counted", "original"] = "counted"
    of: str | None = None
    max_length: Count | None = None
    set: str = "main"
    tokenizer: Given[TokenFacts | None] = None
    _around: tuple[Ids, Ids] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.frame == FROM_CHECKPOINT:
            if not self.of:
                raise RecipeError("answer: frame: reading needs a companion; name it, for example of: target.")
            return
        pieces = split_template(self.frame)
        if [kind for kind, _ in pieces].count("part") != 1:
            raise RecipeError(f"answer: frame {self.frame!r} does not name one part; expected for example '{{A}} [EOS]'.")
        if self.start == "previous" and (self.what != "masked" or len(pieces) > 1 or self.of):
            raise RecipeError(
                "answer: start: previous is for masked tokens at their places in the text: what: masked, frame '{A}'."
            )
        if self.positions == "original" and self.start != "previous":
            raise RecipeError("answer: positions: original needs start: previous, whose tokens have positions in the text.")
        if self.of and self.what != "whole":
            raise RecipeError(f"answer: a companion is used whole; leave out what: {self.what}.")
        if self.tokenizer is not None and self._around is None:
            object.__setattr__(self, "_around", self._read(self.tokenizer))

    @property
    def takes(self) -> frozenset[str]:
        if self.of:
            return frozenset({f"{self.of}.tokens", f"{self.of}.length"})
        names = {"whole": set[str](), "masked": {"masked"}, "spans": {"masked", "layers/span"}}[self.what]
        return frozenset({"tokens", "length"} | names)

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, targets are the original tokens."""
        return frozenset({"original"} | ({"position_ids", "special"} if self.positions == "original" else set()))

    @property
    def gives(self) -> frozenset[str]:
        names = {"tokens", "length", f"targets/{self.set}", f"positions/{self.set}"}
        names |= {"position_ids"} if self.positions == "original" else set()
        return frozenset(f"{self.second}.{name}" for name in names)

    @property
    def exercise(self) -> ExerciseKind:
        """A second text, whichever it is."""
        return "spans"

    def chosen(self, form: Callable[[], AnswerForm]) -> Lesson | None:
        """The edits that replace this one once the checkpoint is known; None if it stays."""
        return form().lesson(of=str(self.of), max_length=self.max_length, set=self.set) if self.frame == FROM_CHECKPOINT else None

    def _read(self, facts: TokenFacts) -> tuple[Ids, Ids]:
        """The ids before and after the target."""
        pieces = split_template(self.frame)
        at = [kind for kind, _ in pieces].index("part")
        before, after = pieces[:at], pieces[at + 1:]
        return tuple(
            tuple(i for kind, text in side for i in facts.literal(kind, text)) for side in (before, after)
        )  # type: ignore[return-value]

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.frame == FROM_CHECKPOINT:
            raise RecipeError("answer: frame: reading needs a checkpoint to start from. Write the frame itself.")
        facts = needed(self.tokenizer, "answer")
        source = rows.view(self.of) if self.of else rows
        if self.start == "previous":
            return self._shifted_in_place(source, facts)
        row, slot, ids = self._listed(source, facts)
        before, after = self._around or ((), ())
        number = np.bincount(row, minlength=source.count)
        if self.max_length is not None:
            max_tokens = max(self.max_length - len(before) - len(after), 0)
            fits = slot < max_tokens
            row, slot, ids, number = row[fits], slot[fits], ids[fits], np.minimum(number, max_tokens)
        length = number + len(before) + len(after)
        width = max(int(length.max(initial=0)), 1)
        target = np.zeros((source.count, width), np.int32)
        target[:, : len(before)] = before
        target.reshape(-1)[row * width + slot + len(before)] = ids
        tail = (number + len(before))[:, None] + np.arange(len(after))
        target[np.arange(source.count)[:, None], tail] = np.array(after, np.int32)
        inputs = np.empty_like(target)
        inputs[:, 0] = facts.role(self.start)
        inputs[:, 1:] = target[:, :-1]
        return self._given(rows, inputs, target, length)

    def _listed(self, rows: Rows, facts: TokenFacts) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Row, slot and id of every token of the target without its frame."""
        tokens = rows.get("original", rows["tokens"])
        if self.what == "whole":
            at, row, column = true_positions(columns_before(rows["length"], tokens.shape[1]))
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
            raise RecipeError(f"answer: what: {self.what}, but infill has removed the spans; put answer before corrupt.")
        return rows_and_columns(rows["masked"])

    def _shifted_in_place(self, rows: Rows, facts: TokenFacts) -> Rows:
        """Puts the target of every masked token where the decoder reads the token that precedes it in the text."""
        tokens = rows.get("original", rows["tokens"])
        row, column = self._masked(rows)
        length = np.bincount(row, minlength=rows.count)
        slot = slots(length)
        target = np.zeros((rows.count, max(int(length.max(initial=0)), 1)), np.int32)
        inputs, position_ids = np.zeros_like(target), np.zeros_like(target)
        target[row, slot] = tokens[row, column]
        inputs[row, slot] = tokens[row, np.maximum(column - 1, 0)]
        first = column == 0
        if first.any():
            inputs[row[first], slot[first]] = facts.role("[BOS]")
        if self.positions == "counted":
            return self._given(rows, inputs, target, length)
        text_positions = rows["position_ids"] if "position_ids" in rows else np.broadcast_to(
            np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
        position_ids[row, slot] = text_positions[row, np.maximum(column - 1, 0)]
        return self._given(rows, inputs, target, length, position_ids=position_ids)

    def _given(
        self, rows: Rows, tokens: NDArray[Any], target: NDArray[Any], length: NDArray[Any], **further: NDArray[Any]
    ) -> Rows:
        columns = np.arange(tokens.shape[1], dtype=np.int32)
        positions = np.where(columns < length[:, None], columns, np.int32(-1))
        arrays = {
            "tokens": tokens, "length": length.astype(np.int32),
            f"targets/{self.set}": target, f"positions/{self.set}": positions,
        }  # fmt: skip
        return rows.having_all({f"{self.second}.{name}": value for name, value in {**arrays, **further}.items()})

    def for_length(self, length: int) -> DecoderAnswer:
        """The same edit; a companion is cut to the length that the text may have."""
        if self.of is None or self.max_length is not None:
            return self
        around = sum(kind != "part" for kind, _ in split_template(self.frame))
        return replace(self, max_length=length + around)
