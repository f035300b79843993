"""Replace mentions of entities by the names of others, so that the text becomes false (WKLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.tables import check_table, table_of
from cloze.exercises.units.unit_request import slots
from cloze.registry import Given, register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows, columns_before, rows_and_columns

Ints = NDArray[np.int64]
_TRIES = 3  # draws of another entity before a mention stays


class _Mentions(NamedTuple):
    """The mentions of a block, (M,) each, row by row: row, first column, tokens, entity, and number in the row."""

    row: Ints
    start: Ints
    size: Ints
    entity: Ints
    slot: Ints


@register("edit", "replace_mentions")
@dataclass(frozen=True)
class ReplaceMentions(Edit):
    """Replace a fraction `rate` of the mentions of the annotation layer `layer` by the name of another entity of the table
    `table` that shares a type with the mentioned one (WKLM, Xiong et al., 2020); with `same: any`, of whatever type. Of two
    mentions that follow one another at most one is replaced, so `rate` is at most 0.5. Put it before `frame`.

    Gives the layer `set`, whose units are the mentions that could be replaced: label 1 for one that stayed, 0 for a replaced
    one; `label: {of: around, layer: <set>}` makes targets of them. A mention stays without a label if the table lacks its
    entity, or has no other entity of its type with another name. A row that has grown beyond its length is cut at its end.

    Differs: a name is the label of the entity, never an alias. Rows are replaced differently in every epoch, where the paper
    stores ten copies of the text.
    """

    table: str
    layer: str
    rate: Share = 0.3
    same: Literal["type", "any"] = "type"
    set: str = "kept"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)
    limit: Given[int | None] = None
    _within: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 0.5:
            raise RecipeError(f"replace_mentions: rate is {self.rate}; expected a number above 0 and at most 0.5.")
        check_table("replace_mentions", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}"})

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: where words start."""
        return frozenset({"word_start"})

    @property
    def gives(self) -> frozenset[str]:
        return self.takes | {f"layers/{self.set}", f"labels/{self.set}"}

    def for_length(self, length: int) -> ReplaceMentions:
        """The same edit with at most `length` tokens in a row."""
        return replace(self, limit=length)

    def without_growth(self) -> ReplaceMentions:
        """The same edit, cutting rows that have grown: packing plans them by the lengths of the passages."""
        return replace(self, _within=True)

    @property
    def _entities(self) -> Any:
        """The table of entities."""
        return table_of("replace_mentions", self.table, self.tables)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        names = self._entities.name_tokens
        mentions = self._mentions(rows)
        other = self._others(rows, mentions, draw)
        width = max(int(np.bincount(mentions.row, minlength=rows.count).max(initial=0)), 1)
        coins = draw.uniform("replace_mentions", width)
        replaced = self._chosen(mentions, other > 0, coins)
        eligible, drawn = other > 0, np.where(replaced, other, 0)
        marks, labels = np.zeros_like(rows["tokens"]), np.zeros_like(rows["tokens"])
        mention = np.repeat(np.arange(len(mentions.row)), mentions.size)
        column = mentions.start[mention] + slots(mentions.size)
        marks[mentions.row[mention], column] = np.where(eligible[mention], np.where(slots(mentions.size) == 0, 1, 2), 0)
        labels[mentions.row[mention], column] = np.where(eligible[mention], 2 - replaced[mention].astype(np.int32), 0)
        labelled = rows.having_all({f"layers/{self.set}": marks, f"labels/{self.set}": labels})
        return self._spliced(labelled, mentions, drawn, names) if replaced.any() else labelled

    def _mentions(self, rows: Rows) -> _Mentions:
        """The mentions of entities that have types in the table, or of all its entities."""
        inside = (rows[f"layers/{self.layer}"] > 0) & columns_before(rows["length"], rows["tokens"].shape[1])
        first = begins(rows, self.layer) & inside
        row, start = rows_and_columns(first)
        unit = np.cumsum(first.reshape(-1)).reshape(first.shape)[inside] - 1
        size = np.bincount(unit, minlength=len(row)).astype(np.int64)
        entity = self._entities.of_label(self.layer)[rows[f"labels/{self.layer}"][row, start]]
        listed = entity > 0
        row, start, size, entity = (value[listed].astype(np.int64) for value in (row, start, size, entity))
        return _Mentions(row, start, size, entity, slots(np.bincount(row, minlength=rows.count)))

    def _others(self, rows: Rows, mentions: _Mentions, draw: Draw) -> Ints:
        """(M,) another entity with another name for each mention, 0 for none."""
        table = self._entities
        groups, names = table.grouped(self.same), table.name_tokens
        other = np.zeros(len(mentions.row), np.int64)
        width = max(int(mentions.slot.max(initial=0)) + 1, 1)
        owned = groups.owned[mentions.entity]
        for number in range(_TRIES):
            bits = draw.bits(f"replace_mentions/{number}", 2 * width).reshape(rows.count, width, 2)[mentions.row, mentions.slot]
            at = np.where(owned > 0, groups.first_owned[mentions.entity] + integers_below(bits[:, 0], owned), 0)
            kind, member = groups.kind[at], groups.place[at]
            candidates = groups.sizes[kind] - (member >= 0)  # the members without the mentioned entity, if it is one
            drawn = integers_below(bits[:, 1], np.maximum(candidates, 1))
            drawn += (member >= 0) & (drawn >= member)
            real = (owned > 0) & (candidates > 0)
            drawn = groups.members[np.where(real, groups.first[kind] + drawn, 0)]
            fresh = real & (other == 0) & ~names.same(drawn, mentions.entity)
            other[fresh] = drawn[fresh]
        return other

    def _chosen(self, mentions: _Mentions, able: NDArray[np.bool_], coins: NDArray[Any]) -> NDArray[np.bool_]:
        """(M,) which mentions are replaced: each with probability `rate`, never two in a row."""
        chosen = np.zeros(len(mentions.row), np.bool_)
        last = np.zeros(len(coins), np.bool_)  # of each row, whether its last mention was replaced
        for slot in range(int(mentions.slot.max(initial=-1)) + 1):
            here = np.flatnonzero(mentions.slot == slot)
            row = mentions.row[here]
            odds = self.rate if slot == 0 else self.rate / (1 - self.rate)
            chosen[here] = able[here] & ~last[row] & (coins[row, slot] < odds)
            last[row] = chosen[here]
        return chosen

    def _spliced(self, rows: Rows, mentions: _Mentions, drawn: Ints, names: Any) -> Rows:
        """The rows with the names of the entities `drawn` (0: the mention stays) in place of the mentions."""
        times = columns_before(rows["length"], rows["tokens"].shape[1]).astype(np.int64)  # how many tokens come from each column
        new = np.flatnonzero(drawn)
        row, start, size, entity = mentions.row[new], mentions.start[new], mentions.size[new], drawn[new]
        mention = np.repeat(np.arange(len(new)), size)
        times[row[mention], start[mention] + slots(size)] = 0
        times[row, start] = names.size[entity]
        length = times.sum(axis=1)
        bound = rows["length"].astype(np.int64) if self._within else length
        new_length = np.minimum(length, bound if self.limit is None else np.minimum(bound, self.limit))
        index = np.zeros((rows.count, max(int(length.max()), 1)), np.int64)
        flat = np.repeat(np.arange(times.size), times.reshape(-1))
        index[flat // times.shape[1], slots(length)] = flat % times.shape[1]
        moved = rows.splice(index[:, : max(int(new_length.max()), 1)], new_length.astype(np.int32))
        begin = np.cumsum(times, axis=1)[row, start] - names.size[entity]
        mention = np.repeat(np.arange(len(new)), names.size[entity])
        nth = slots(names.size[entity])
        column = begin[mention] + nth
        inside = column < new_length[row[mention]]
        at = row[mention][inside], column[inside]
        tokens = moved["tokens"].copy()
        tokens[at] = names.ids[names.first[entity][mention] + nth][inside]
        changed = {"tokens": tokens}
        values = {f"layers/{self.layer}": 1 + (nth > 0), f"layers/{self.set}": 1 + (nth > 0), f"labels/{self.layer}": 0 * nth}
        for name, value in {**values, "word_start": nth == 0}.items():
            if name in moved:
                changed[name] = moved[name].copy()
                changed[name][at] = value[inside]
        return moved.having_all(changed)
