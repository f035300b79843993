"""A list of edits as one function: from a block of passages to a block of examples.

`batching/feed.py` calls it on blocks of rows that a source has read. Each edit has its own file in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from cloze import fields
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.rng import Draw
from cloze.rows import Rows

_LAYING = ("length", "summary")  # fields that control how rows are laid into a batch


#: Arguments of an edit by name, each as a function of the share of the budget spent.
Schedules = Mapping[str, Callable[[float], float]]
_TRIED = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares at which an edit must make the same fields
_LONG = 512  # tokens, by which it is judged how an edit changes lengths


@dataclass(frozen=True)
class PlacedEdit:
    """An edit, the view it works on (`in:` in a recipe), and its arguments that follow a schedule.

    Raises `RecipeError` if a schedule reaches a value that the edit refuses, or one that changes what it takes and gives, or how
    its texts are cut: rows are planned once.
    """

    edit: Edit
    view: str = "main"
    schedules: Schedules = field(default_factory=dict)

    def __post_init__(self) -> None:
        edits = [self._edit(share) for share in _TRIED] if self.schedules else []
        names = " and ".join(self.schedules)
        if len({_fields(edit) for edit in edits}) > 1:
            raise RecipeError(
                f"the schedule of {names} reaches a value at which this edit makes other fields.\n"
                "  Let it end before that value, such as at 0.01 instead of 0."
            )
        if len({(edit.max_input(_LONG), edit.max_input_before_infill(_LONG), edit.displaces) for edit in edits}) > 1:
            raise RecipeError(
                f"texts are cut once, and {names} decides how they are cut here, so it cannot follow a schedule.\n"
                "  Write a number."
            )

    def when(self, share: float) -> PlacedEdit:
        """The same with the values of a share of the budget."""
        if not self.schedules:
            return self
        placed = copy(self)
        object.__setattr__(placed, "edit", self._edit(share))
        return placed

    def _edit(self, share: float) -> Edit:
        dataclass_edit: Any = self.edit
        edit: Edit = replace(dataclass_edit, **{name: course(share) for name, course in self.schedules.items()})
        return edit

    def with_edit(self, edit: Edit) -> PlacedEdit:
        """Another form of the same edit in its place."""
        return replace(self, edit=edit)

    @property
    def output_view(self) -> str:
        """The full name of the view that it makes; its own if it makes none."""
        return self.view if self.edit.makes == "main" else self.full(self.edit.makes)

    def full(self, name: str) -> str:
        """The full name of a field or a view that the edit calls `name`."""
        return fields.join(self.view, name)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.view == "main":
            return self.edit(rows, draw)
        return rows.with_view(self.view, self.edit(rows.view(self.view), draw.inside(self.view)))


def _fields(edit: Edit) -> tuple[Any, ...]:
    """What an edit reads and makes, which must not change while its numbers do."""
    return edit.takes, edit.gives, edit.optional, edit.makes, edit.copies, edit.joins, edit.shortens, edit.exercise


def _require_packable(edits: Sequence[PlacedEdit]) -> None:
    """Raise a `RecipeError` if examples of these edits cannot share a row."""
    if any(p.edit.second is not None for p in edits):
        raise RecipeError(
            "packing puts several examples into a row, but this exercise gives every row a second sequence (answer).\n"
            "  Write training: {packing: false}."
        )
    if any(p.edit.adds or any(fields.find(name).per == "pair" for name in p.edit.gives) for p in edits):
        raise RecipeError(
            "packing puts several examples into a row, but this exercise adds facts to each, which some of its tokens see "
            "(inject).\n  Write training: {packing: false}."
        )
    if any(p.edit.spreads for p in edits):
        raise RecipeError("packing puts several examples into a row, spread makes several rows of one: write packing: false.")


_UNLIMITED = 1 << 30  # tokens of text for an edit that cuts its rows itself


class Exercise:
    """The edits of one entry, applied in order for rows of at most `length` tokens.

    The constructor computes, from the last edit to the first, how many tokens each edit may return (`Edit.for_length`), how many
    the source may give, and after which edit a field is no longer needed.

    Args:
        packed: no row may become longer than its passage plus what frames insert, because packing is planned by the lengths of
            the passages (`Edit.without_growth`).
        keep: fields that stay to the end, for display.

    Attributes:
        max_tokens: tokens of text that the source may give for a row.
        spread: the edit that makes several rows of a record, if any.
        row_max_tokens: tokens of text in one of these rows; without `spread`, `max_tokens`.
        text_max_tokens: tokens of each text if an edit separates texts (None: no edit does).
        second: the views whose rows have lengths of their own.
    """

    def __init__(
        self, edits: Sequence[PlacedEdit], length: int, *, packed: bool = False, keep: frozenset[str] = frozenset()
    ) -> None:
        self.length = length
        self._keep = keep
        self.second = frozenset(p.full(p.edit.second) for p in edits if p.edit.second is not None)
        if packed:
            _require_packable(edits)
        self.spread: Edit | None = next((p.edit for p in edits if p.edit.spreads), None)
        placed: list[PlacedEdit] = []
        row_max_tokens: int | None = None
        self.text_max_tokens: int | None = None
        max_tokens = dict.fromkeys({p.view for p in edits} | {"main"}, length)
        shortened: set[str] = set()  # views in which a later edit replaces each masked span by one token
        for p in reversed(edits):
            edit = p.edit.without_growth() if packed else p.edit
            bound = edit.for_length(max_tokens[p.view])
            if edit.spreads:
                row_max_tokens, max_tokens[p.view] = max_tokens[p.view], _UNLIMITED
            if edit.separates:
                self.text_max_tokens = max_tokens[p.view]
            max_tokens[p.view] = edit.max_input(max_tokens[p.view])
            if edit.shortens:
                shortened.add(p.view)
            elif p.view in shortened:
                max_tokens[p.view] = edit.max_input_before_infill(max_tokens[p.view])
            placed.append(p.with_edit(bound))
        self.edits = tuple(reversed(placed))
        self.max_tokens = max_tokens["main"]
        self.row_max_tokens = self.max_tokens if row_max_tokens is None else row_max_tokens
        self._views = {"main"} | {name for p in edits for name in (p.view, p.output_view)}
        self.wants = self._wants()
        self._companions = {fields.split(name).view for name in self.wants} - self._views
        self._dropped_after: list[frozenset[str]] = []
        dropped: set[str] = set()
        for index, p in enumerate(self.edits):
            dropped -= set(map(p.full, p.edit.gives))
            self._dropped_after.append(self._unneeded_after(index) - dropped)
            dropped |= self._dropped_after[-1]

    @property
    def is_scheduled(self) -> bool:
        """Whether some edit follows a schedule."""
        return any(p.schedules for p in self.edits)

    def when(self, share: float) -> Exercise:
        """The same exercise at a share of the budget."""
        exercise = copy(self)
        exercise.edits = tuple(p.when(share) for p in self.edits)
        return exercise

    def _names(self, p: PlacedEdit) -> set[str]:
        """The full names of the fields that an edit reads."""
        names = p.edit.takes | p.edit.optional
        return set(map(p.full, names))

    def _wants(self) -> frozenset[str]:
        """Everything that some edit takes and no earlier edit gives: what the source must read."""
        supplied: set[str] = set()
        copied: set[str] = set()
        required: set[str] = {*fields.SEQUENCES, "length"}  # a source reads of these what its rows consist of
        for p in self.edits:
            for name in self._names(p):
                view, field, chosen = fields.split(name)
                source = fields.join("main", field, chosen) if view in copied else name
                if name not in supplied and source not in supplied:
                    required.add(source)
            supplied |= set(map(p.full, p.edit.gives))
            if p.edit.copies is not None:
                copied.add(p.edit.copies)
        joined = {companion for p in self.edits for companion in p.edit.joins}
        aligned = {name for name in required if "." not in name and fields.find(name).aligned}
        required |= {f"{companion}.{name}" for companion in joined for name in aligned}
        return frozenset(required)

    def _unneeded_after(self, index: int) -> frozenset[str]:
        later: set[str] = set()
        copies = False
        for p in self.edits[index + 1:]:
            later |= self._names(p)
            copies |= p.edit.copies is not None
        names = self._names(self.edits[index]) | self.wants
        if copies:  # a later copy takes all fields present
            return frozenset()
        return frozenset(
            name for name in names
            if name not in later and name not in self._keep and fields.split(name).field not in _LAYING
            and (not fields.find(name).travels or fields.split(name).view not in self._views)  # a companion is no view
        )

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        for edit, dead in zip(self.edits, self._dropped_after, strict=True):
            rows = edit(rows, draw)
            if edit.edit.spreads:  # the rows of one record draw the same random numbers
                draw = draw.take(rows["owner"])
            if dead:
                rows = rows.without(*dead)
        if self._companions:  # a source may give more of a companion than was wanted: all items of its picture
            left = [name for name in rows if fields.split(name).view in self._companions and name not in self._keep]
            rows = rows.without(*left) if left else rows
        return rows
