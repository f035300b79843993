"""The base class of edits: pure functions from a block of rows to a block of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.registry import Schedulable
from cloze.rng import Draw
from cloze.rows import Rows

E = TypeVar("E", bound="Edit")

#: What a network is asked for: hidden tokens (`masked`), the next or the previous token (`causal`), a second text, such as the
#: masked spans one after another (`spans`), or tokens in a random order (`permuted`).
ExerciseKind = Literal["masked", "causal", "spans", "permuted"]


class Edit(Schedulable, ABC):
    """One step of an exercise: the base class of every edit.

    `takes` and `gives` name the fields of its view that it reads and writes. An edit never changes its input, draws random
    numbers only from `draw`, and is vectorised over rows and tokens. A `Given` parameter has the default None: checks build the
    edit and read `takes` and `gives` before there is a tokenizer or a table, so that only `__call__` may use it. The numbers of a
    dataclass may follow schedules, except those in `described`: `PlacedEdit` gives each step its own edit. All other members have
    defaults, which fit most edits.

    Some arguments are read by their names when a recipe is checked: `to` is a view that the edit makes, with a `companion` the
    view of that companion's fields; `segments` lists the numbers of the segments that it gives to tokens.
    """

    #: Whether it makes several rows of one record (see `widths`), cuts them to length, and gives `owner`, the record of each row.
    spreads: ClassVar[bool] = False
    #: Whether it puts the texts of a row into separate views, so that a later frame has one text.
    separates: ClassVar[bool] = False
    #: Whether it puts a `template` around the texts of a row; `template: reading` is that of the checkpoint that the recipe
    #: starts from.
    frames: ClassVar[bool] = False
    #: Whether it makes a second view with the fields of the main one (`copies` names it).
    duplicates: ClassVar[bool] = False
    #: The argument with the frequency above which it drops occurrences of words.
    thins: ClassVar[str | None] = None
    #: Whether held-out texts are read without it.
    training_only: ClassVar[bool] = False
    #: Fields that no earlier edit may have given, such as those of a frame: it works on the text of the source.
    precedes: ClassVar[frozenset[str]] = frozenset()
    #: How the names of fields begin that are no longer right for the text that it returns: no later edit may read them.
    spoils: ClassVar[tuple[str, ...]] = ()
    #: Whether tokens that it selects or replaces are hidden from the network.
    hides: ClassVar[bool] = False
    #: Whether it adds tokens to the text. A checkpoint then keeps the edit, since reading a text needs it.
    adds: ClassVar[bool] = False
    #: Whether it gives the network labels of the text as further ids. A checkpoint keeps such an edit: reading a text needs it.
    shows: ClassVar[bool] = False
    #: Whether it leaves out items. A checkpoint keeps such an edit: the trained network would not read them either.
    selects: ClassVar[bool] = False
    #: Whether it turns the answer of a record (the field `column/<column>` or `numbers/<column>`) into targets. The objective
    #: with the same `set` then solves the task, and receives facts about the answers, such as the number of classes.
    targets_of_answer: ClassVar[bool] = False
    #: The view that it always makes: a second sequence whose rows have lengths of their own. Other edits that make a view have an
    #: argument `to`.
    second: ClassVar[str | None] = None

    @property
    @abstractmethod
    def takes(self) -> frozenset[str]:
        """The fields that it needs."""

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """The fields that it adds or replaces."""

    @property
    def optional(self) -> frozenset[str]:
        """Fields that it uses if they are present."""
        return frozenset()

    @property
    def shortens(self) -> bool:
        """Whether it replaces each span that an earlier edit marked by one token (see `max_input_before_infill`)."""
        return False

    @property
    def exercise(self) -> ExerciseKind | None:
        """The kind of exercise that its targets of tokens make, by which budgets are judged; None: it makes no such targets."""
        return None

    @property
    def makes(self) -> str:
        """The view that it makes; `main`: none."""
        return self.second or "main"

    @property
    def copies(self) -> str | None:
        """The view that receives every field of the main view."""
        return None

    @property
    def joins(self) -> tuple[str, ...]:
        """Companions whose text is appended to the row's own."""
        return ()

    @property
    def displaces(self) -> float:
        """The share of the passages whose second part it replaces by other text. A source that can (`puts_back`) begins the next
        passage with that part, and gives `border` and `apart`: where the parts meet, and whether the second one is replaced."""
        return 0.0

    def max_input(self, length: int) -> int:
        """How many tokens may enter so that at most `length` leave."""
        return length

    def max_input_before_infill(self, length: int) -> int:
        """How many tokens may enter so that at most `length` remain once a later edit has replaced each marked span by one."""
        return length

    def for_length(self: E, length: int) -> E:
        """The same edit, knowing that at most `length` tokens may leave it."""
        return self

    def without_growth(self: E) -> E:
        """The same edit, never adding text to a passage."""
        return self

    def widths(self, source: Any, plan: Any, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of rows that it makes of each item of a source's plan, (B,)."""
        return np.ones(len(items), np.int64)

    @abstractmethod
    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        """The rows after this edit."""
