"""What an edit is: a pure function from a block of rows to a block of rows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cloze.rng import Draw
from cloze.rows import Rows


@runtime_checkable
class Edit(Protocol):
    """One step of an exercise.

    `takes` and `gives` name the fields of its view that it reads and writes. An edit never changes its input, draws only
    from `draw`, and is vectorised over rows and tokens. Optional methods: `room(length)`, how many tokens may come in so that
    at most `length` come out; `at(length)`, the same edit knowing that at most `length` tokens may come out of it; `within()`,
    the same edit never adding text to a passage; `raw(length)`, for an edit that marks spans, how many tokens may come in when
    a later edit (`shortens`) shows each span as one token; `when(share)`, for an edit that `changes` while training, the edit as
    it is when so much of the budget is spent. Optional facts: `optional`, fields read when they are there; `copies`,
    the view that receives every field; `joins`, companions whose text is laid next to the row's own; `spreads`, it makes several
    rows of one, gives their `owner`, cuts them itself, and `widths(source, plan, items)` says how many each item makes;
    `separates`, it shows the texts of a row apart; `described`, the arguments that task.json keeps, each with its name there.
    """

    @property
    def takes(self) -> frozenset[str]: ...

    @property
    def gives(self) -> frozenset[str]: ...

    def __call__(self, rows: Rows, draw: Draw) -> Rows: ...
