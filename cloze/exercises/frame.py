"""Put the parts of a row into a template such as `[CLS] {A} [SEP] {B} [SEP]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Inserted, Rows

_TEMPLATE = re.compile(r"\{(?P<part>\w+)\}|(?P<role>\[[A-Z]+\])|(?P<text>[^\[\{]+|[\[\{])")


class Item(NamedTuple):
    """One piece of a template: a part (its ordinal) or inserted ids; `group` is the part it belongs to."""

    part: int | None
    ids: tuple[int, ...]
    group: int


def split_template(template: str) -> list[tuple[str, str]]:
    """A template as (kind, text) pieces; kind is `part`, `role` or `text` (blank text is dropped)."""
    pieces = [(str(m.lastgroup), str(m.group(str(m.lastgroup)))) for m in _TEMPLATE.finditer(template)]
    return [(kind, text.strip() if kind == "text" else text) for kind, text in pieces if text.strip()]


@register("edit", "frame")
@dataclass(frozen=True)
class Frame:
    """Lay out the parts of each row by a template: `{A}`, `{B}` are parts, `[CLS]` a role, all else literal text.

    An inserted token belongs to the part before it, the first ones to the first part, and of two or more between parts
    the last to the part that follows; `segments` numbers the parts (default 0, 1, …), `restart` restarts positions with
    every part. A part that is empty disappears together with the tokens that belong to it.
    """

    template: str
    segments: list[int] | None = None
    restart: bool = False
    tokenizer: Given[TokenFacts | None] = None
    limit: Given[int | None] = None
    _items: tuple[Item, ...] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.part_names
        if not parts:
            raise RecipeError(f"frame: template {self.template!r} names no part such as {{A}}.")
        if self.segments is not None and len(self.segments) != len(parts):
            raise RecipeError(f"frame: {len(self.segments)} segments for {len(parts)} parts in {self.template!r}.")
        if self.tokenizer is not None and self._items is None:
            object.__setattr__(self, "_items", tuple(self._read(self.tokenizer)))

    @cached_property
    def part_names(self) -> list[str]:
        """The names of the template's parts in order."""
        return [text for kind, text in split_template(self.template) if kind == "part"]

    @property
    def takes(self) -> frozenset[str]:
        own = frozenset({"tokens", "length"})
        return own | {"parts"} if len(self.part_names) > 1 else own

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"segments", "special"} | ({"positions"} if self.restart else set()))

    def room(self, length: int) -> int:
        """What is left for the parts when everything inserted is counted."""
        pieces = split_template(self.template)
        added = sum(len(i.ids) for i in self._items) if self._items else sum(kind != "part" for kind, _ in pieces)
        return length - added

    def at(self, length: int) -> Frame:
        """The same edit with rows of at most `length` tokens."""
        return replace(self, limit=length)

    def _read(self, facts: TokenFacts) -> list[Item]:
        pieces = split_template(self.template)
        items, part = [], -1
        for place, (kind, text) in enumerate(pieces):
            if kind == "part":
                part += 1
                items.append(Item(part, (), part))
                continue
            ids = (facts.role(text),) if kind == "role" else tuple(facts.read(text))
            before_part = place + 1 < len(pieces) and pieces[place + 1][0] == "part"
            after_special = place > 0 and pieces[place - 1][0] != "part"
            follows = before_part and (after_special or part < 0)
            items.append(Item(None, ids, part + 1 if follows else max(part, 0)))
        return items

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        needed(self.tokenizer, "frame")
        items = self._items or ()
        parts = self._parts(rows)
        lengths = parts[:, :, 1] - parts[:, :, 0]
        widths = np.empty((len(lengths), len(items)), np.int64)
        for place, item in enumerate(items):
            length = lengths[:, item.group]
            widths[:, place] = length if item.part is not None else (length > 0) * len(item.ids)
        stops = np.cumsum(widths, axis=1)
        starts, total = stops - widths, stops[:, -1]
        columns = np.arange(int(total.max()))
        borders = [self._border(starts, group) for group in range(1, parts.shape[1])]
        beyond = [columns >= border[:, None] for border in borders]
        shift = [parts[:, item.part, 0] - starts[:, place] for place, item in enumerate(items) if item.part is not None]
        index = columns + _by_group(shift, beyond)
        inserted = self._inserted(starts, widths)
        framed = rows.splice(index, total.astype(np.int32), inserted)
        special = np.zeros(index.shape, bool)
        special[inserted.rows, inserted.columns] = True
        names = [np.full(len(total), s, np.int32) for s in self.segments or range(parts.shape[1])]
        laid: dict[str, NDArray[Any]] = {"special": special, "segments": _by_group(names, beyond)}
        if len(names) == 1:
            laid["segments"] = np.broadcast_to(names[0][:, None], index.shape)
        if self.restart:
            begins = _by_group([np.zeros(len(total), np.int64), *borders], beyond)
            laid["positions"] = (columns - begins).astype(np.int32)
        return framed.having_all(laid)

    def _border(self, starts: NDArray[np.int64], group: int) -> NDArray[np.int64]:
        """The column at which a part begins, its own inserted tokens included."""
        first = next(place for place, item in enumerate(self._items or ()) if item.group == group)
        return starts[:, first]

    def _inserted(self, starts: NDArray[np.int64], widths: NDArray[np.int64]) -> Inserted:
        rows, columns, ids = [], [], []
        for place, item in enumerate(self._items or ()):
            if item.part is None:
                present = np.flatnonzero(widths[:, place])
                for offset, token in enumerate(item.ids):
                    rows.append(present)
                    columns.append(starts[present, place] + offset)
                    ids.append(np.full(len(present), token, np.int32))
        if not rows:
            nothing = np.zeros(0, np.int64)
            return Inserted(nothing, nothing, nothing)
        return Inserted(np.concatenate(rows), np.concatenate(columns), np.concatenate(ids))

    def _parts(self, rows: Rows) -> NDArray[np.int64]:
        """(B, P, 2) starts and stops; what exceeds the limit is cut off the last parts."""
        if "parts" in rows:
            parts = rows["parts"][:, : len(self.part_names)]
        else:
            length = rows["length"].astype(np.int64)
            parts = np.stack([np.zeros_like(length), length], axis=1)[:, None, :]
        if parts.shape[1] != len(self.part_names):
            raise RecipeError(
                f"frame: template {self.template!r} names {len(self.part_names)} parts, the rows have {parts.shape[1]}."
            )
        if self.limit is None:
            return parts
        left = self.room(self.limit)
        lengths = parts[:, :, 1] - parts[:, :, 0]
        before = np.cumsum(lengths, axis=1) - lengths
        if not bool((before[:, -1] + lengths[:, -1] > left).any()):
            return parts
        kept = np.clip(left - before, 0, lengths)
        return np.stack([parts[:, :, 0], parts[:, :, 0] + kept], axis=2)


def _by_group(values: list[NDArray[Any]], beyond: list[NDArray[np.bool_]]) -> NDArray[Any]:
    """(B, L) values: each part's own from the column where that part begins."""
    chosen = values[0][:, None]
    for value, after in zip(values[1:], beyond, strict=True):
        chosen = np.where(after, value[:, None], chosen)
    return chosen
