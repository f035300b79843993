"""What an edit is: a pure function from a block of rows to a block of rows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cloze.rng import Draw
from cloze.rows import Rows


@runtime_checkable
class Edit(Protocol):
    """One step of an exercise.

    `takes` and `gives` name the fields of its view that it reads and writes. An edit never changes its input, draws random
    numbers only from `draw`, and is vectorised over rows and tokens.

    Optional methods:
    - `room(length)`: how many tokens may enter so that at most `length` leave;
    - `at(length)`: the same edit, knowing that at most `length` tokens may leave it;
    - `within()`: the same edit, never adding text to a passage;
    - `raw(length)`, for an edit that marks spans: how many tokens may enter if a later edit (`shortens`) replaces each span by
      one token;
    - `when(share)`, for an edit that `changes` during training: the edit at that share of the budget.

    Optional attributes:
    - `optional`: fields used if present;
    - `copies`: the view that receives every field;
    - `joins`: companions whose text is appended to the row's own;
    - `spreads`: it makes several rows of one, gives their `owner` and cuts them; `widths(source, plan, items)` is the number of
      rows per item;
    - `separates`: it puts the texts of a row into separate views;
    - `described`: the arguments that task.json records, each with its name there.
    """

    @property
    def takes(self) -> frozenset[str]: ...

    @property
    def gives(self) -> frozenset[str]: ...

    def __call__(self, rows: Rows, draw: Draw) -> Rows: ...
