"""Put the parts of a row into a template such as `[CLS] {A} [SEP] {B} [SEP]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.beside import beside
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

    A part of one letter is one of the row's own parts (`pair` makes two); a part with a longer name is the companion of that
    name, such as `{translation}`. An inserted token belongs to the part before it, the first ones to the first part, and of
    two or more between parts the last to the part that follows; `segments` numbers the parts (default 0, 1, …; a further
    number is that of the token that ends the template, as XLNet's last `[CLS]`), `restart` restarts positions with every
    part. A part that is empty disappears together with the tokens that belong to it.

    `inputs` gives `inputs/<set>` (B, L) for further ids: one for all tokens, a list with one for each part, or, for
    `language`, `of_row` or `of_part`: the language of the row, or of each part's own text.
    """

    template: str
    segments: list[int] | None = None
    restart: bool = False
    inputs: dict[str, Literal["of_row", "of_part"] | int | list[int]] | None = None
    tokenizer: Given[TokenFacts | None] = None
    limit: Given[int | None] = None
    _items: tuple[Item, ...] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.part_names
        if not parts:
            raise RecipeError(f"frame: template {self.template!r} names no part such as {{A}}.")
        if self.segments is not None and len(self.segments) not in (len(parts), len(parts) + self._ends):
            raise RecipeError(f"frame: {len(self.segments)} segments for {len(parts)} parts in {self.template!r}.")
        for name, ids in (self.inputs or {}).items():
            if isinstance(ids, list) and len(ids) != len(parts):
                raise RecipeError(f"frame.inputs.{name}: {len(ids)} ids for {len(parts)} parts in {self.template!r}.")
            if isinstance(ids, str) and name != "language":
                raise RecipeError(f"frame.inputs.{name}: {ids} is for the language; write an id, or one for each part.")
        if self.tokenizer is not None and self._items is None:
            object.__setattr__(self, "_items", tuple(self._read(self.tokenizer)))

    @cached_property
    def part_names(self) -> list[str]:
        """The names of the template's parts in order."""
        return [text for kind, text in split_template(self.template) if kind == "part"]

    @property
    def joins(self) -> tuple[str, ...]:
        """The companions that are parts of the template."""
        return tuple(dict.fromkeys(name for name in self.part_names if len(name) > 1))

    @property
    def _ends(self) -> bool:
        """Whether the template ends with a token after a token: that one may have a segment of its own."""
        kinds = [kind for kind, _ in split_template(self.template)]
        return len(kinds) > 1 and kinds[-1] != "part" and kinds[-2] != "part"

    @property
    def takes(self) -> frozenset[str]:
        own = {"tokens", "length"} | {f"{name}.{field}" for name in self.joins for field in ("tokens", "length")}
        if sum(len(name) == 1 for name in self.part_names) > 1:
            own.add("parts")
        language = (self.inputs or {}).get("language")
        if isinstance(language, str):
            own.add("language")
            own |= {f"{name}.language" for name in self.joins if language == "of_part"}
        return frozenset(own)

    @property
    def gives(self) -> frozenset[str]:
        own = {"segments", "special"} | {f"inputs/{name}" for name in self.inputs or ()}
        return frozenset(own | ({"positions"} if self.restart else set()))

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
            ids = facts.literal(kind, text)
            before_part = place + 1 < len(pieces) and pieces[place + 1][0] == "part"
            after_special = place > 0 and pieces[place - 1][0] != "part"
            follows = before_part and (after_special or part < 0)
            items.append(Item(None, ids, part + 1 if follows else max(part, 0)))
        return items

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        needed(self.tokenizer, "frame")
        items = self._items or ()
        parts = self._parts(rows)
        rows = rows.having_all(beside(rows, *self.joins)) if self.joins else rows
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
        laid: dict[str, NDArray[Any]] = {"special": special, "segments": self._segments(starts, parts.shape[1], beyond, columns)}
        for name, ids in (self.inputs or {}).items():
            laid[f"inputs/{name}"] = _by_group(self._inputs(rows, ids, parts.shape[1]), beyond).astype(np.int32)
        if self.restart:
            begins = _by_group([np.zeros(len(total), np.int64), *borders], beyond)
            laid["positions"] = (columns - begins).astype(np.int32)
        if not beyond:
            laid = {name: np.broadcast_to(value, index.shape) for name, value in laid.items()}
        return framed.having_all(laid)

    def _segments(
        self, starts: NDArray[np.int64], parts: int, beyond: list[NDArray[np.bool_]], columns: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """(B, L) the segment of each token; the token that ends the template may have one more."""
        numbers = list(self.segments or range(parts))
        if len(numbers) > parts:
            beyond = [*beyond, columns >= starts[:, -1:]]
        return _by_group([np.full(len(starts), number, np.int32) for number in numbers], beyond)

    def _inputs(self, rows: Rows, ids: str | int | list[int], parts: int) -> list[NDArray[Any]]:
        """Per part the id of each row."""
        if isinstance(ids, str):
            own = rows["language"]
            names = self.part_names if ids == "of_part" else ["A"] * parts
            return [own if len(name) == 1 else rows[f"{name}.language"] for name in names]
        return [np.full(rows.count, number) for number in (ids if isinstance(ids, list) else [ids] * parts)]

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
            own = rows["parts"]
        else:
            length = rows["length"].astype(np.int64)
            own = np.stack([np.zeros_like(length), length], axis=1)[:, None, :]
        letters = [name for name in self.part_names if len(name) == 1]
        if own.shape[1] < len(letters):
            raise RecipeError(f"frame: template {self.template!r} names {len(letters)} parts, the rows have {own.shape[1]}.")
        parts = self._with_companions(rows, own) if self.joins else own[:, : len(letters)]
        if self.limit is None:
            return parts
        left = self.room(self.limit)
        lengths = parts[:, :, 1] - parts[:, :, 0]
        before = np.cumsum(lengths, axis=1) - lengths
        if not bool((before[:, -1] + lengths[:, -1] > left).any()):
            return parts
        kept = np.clip(left - before, 0, lengths)
        return np.stack([parts[:, :, 0], parts[:, :, 0] + kept], axis=2)

    def _with_companions(self, rows: Rows, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, P, 2) the row's own parts and, where the template names one, a whole companion laid beside it."""
        begin, places = rows["tokens"].shape[1], {}
        for name in self.joins:
            places[name] = begin
            begin += rows[f"{name}.tokens"].shape[1]
        letters = iter(range(own.shape[1]))
        found = []
        for name in self.part_names:
            if name in places:
                length = rows[f"{name}.length"].astype(np.int64)
                found.append(np.stack([np.full_like(length, places[name]), places[name] + length], axis=1))
            else:
                found.append(own[:, next(letters)])
        return np.stack(found, axis=1)


def _by_group(values: list[NDArray[Any]], beyond: list[NDArray[np.bool_]]) -> NDArray[Any]:
    """(B, L) values: each part's own from the column where that part begins."""
    chosen = values[0][:, None]
    for value, after in zip(values[1:], beyond, strict=True):
        chosen = np.where(after, value[:, None], chosen)
    return chosen
