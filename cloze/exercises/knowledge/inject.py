"""Add what a table of facts says about the words of a row, as branches that only these words see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.tables import check_table, table_of
from cloze.exercises.units.unit_request import slots
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows

Int64 = NDArray[np.int64]

_COLUMNS = ("summary", "spans", "words")  # fields with columns of a row besides the positions of targets


class Branches(NamedTuple):
    """The branches of a block of rows: the row and the column of the word that each hangs on, the number of that word among the
    words with branches of all rows (from 1 on), and the tokens of each, one branch after another, with their `size`."""

    row: Int64
    column: Int64
    word: Int64
    size: Int64
    tokens: NDArray[np.int32]

    def take(self, keep: NDArray[np.bool_]) -> Branches:
        """Some of them."""
        return Branches(
            self.row[keep], self.column[keep], self.word[keep], self.size[keep], self.tokens[np.repeat(keep, self.size)]
        )


class SentenceTree(NamedTuple):
    """What each token of rows with branches is, (B, L) each: the `column` that it had, of a token of a branch that of its word's
    last token; the number of its `branch`, 0 for the text; its place in the branch, 1, 2, …; the number of its `word`, of a
    token of a branch that of the word it hangs on, 0 for words without branches."""

    column: Int64
    branch: Int64
    place: Int64
    word: Int64


@register("edit", "inject")
@dataclass(frozen=True)
class Inject(Edit):
    """Attach facts to the words of a row as branches (K-BERT, Liu et al., 2020, §3.3 and §3.4; autoliuweijie/K-BERT).

    The table `table` finds its subjects in the visible row; each gets the first `most` of its facts: the tokens of predicate and
    object, without `predicate` those of the object alone. A branch follows the last token of its word.

    `soft_positions`: a branch counts its positions on from its word, and the row goes on as if there were no branch. `visible`: a
    token of a branch sees that branch and its word, a word also its branches, and all others see the row without branches.
    Without either, the facts are ordinary text.

    `reserve` is the share of the row's tokens that is kept free for branches. Where there is no room for all, those on the left
    are kept. Put the edit last: after `corrupt` it finds no word under a mask, and after `predict` no token of a branch is a
    target.

    Differs: where a row is full, the authors cut the end of the text. They cut the words of a text with a segmenter.
    """

    adds: ClassVar[bool] = True

    table: str
    most: Count = 2
    predicate: bool = True
    soft_positions: bool = True
    visible: bool = True
    reserve: BelowOne = 0.25
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)
    limit: Given[int | None] = None

    def __post_init__(self) -> None:
        if self.most < 1:
            raise RecipeError(f"inject: most must be at least 1, got {self.most}.")
        check_table("inject", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def optional(self) -> frozenset[str]:
        """Columns of the row, which follow the tokens."""
        return frozenset({"position_ids", *_COLUMNS})

    @property
    def gives(self) -> frozenset[str]:
        options = {"position_ids": self.soft_positions, "visible": self.visible}
        return frozenset({"tokens", *(name for name, whether in options.items() if whether)})

    def max_input(self, length: int) -> int:
        """The tokens that are not kept free for branches."""
        return length - int(length * self.reserve)

    def for_length(self, length: int) -> Inject:
        """The same edit for rows of at most `length` tokens."""
        return replace(self, limit=length)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        spliced, tree = self.grow(rows)
        return spliced.having_all(self.describe(tree, rows.get("position_ids")))

    def grow(self, rows: Rows) -> tuple[Rows, SentenceTree]:
        """The rows with the tokens of branches, and what each token is."""
        table = table_of("inject", self.table, self.tables)
        entities = table.find(rows["tokens"], rows["length"])
        branches = self._branches(table, entities)
        if self.limit is not None:
            branches = branches.take(_fitting(branches, self.limit - rows["length"].astype(np.int64)))
        return grown(rows, branches, entities)

    def describe(self, tree: SentenceTree, positions: NDArray[Any] | None = None) -> dict[str, NDArray[Any]]:
        """The fields by which a network reads the branches; `positions` are those of the rows without branches."""
        arrays: dict[str, NDArray[Any]] = {}
        if self.soft_positions:
            arrays["position_ids"] = soft_positions(tree, positions).astype(np.int32)
        if self.visible:
            arrays["visible"] = visible_matrix(tree)
        return arrays

    def _branches(self, table: Any, entities: Any) -> Branches:
        """The facts of the entities, in the order of the row."""
        first, stop = table.first[entities.subject - 1], table.first[entities.subject]
        counts = np.minimum(stop - first, self.most)
        number = np.repeat(first, counts) + slots(counts)
        begin = table.begin[number] + (0 if self.predicate else table.predicate[number])
        size = table.begin[number + 1] - begin
        tokens = table.tokens[np.repeat(begin, size) + slots(size)]
        word = np.repeat(np.arange(1, len(counts) + 1), counts)
        column = np.repeat(entities.start + entities.size - 1, counts)
        branches = Branches(np.repeat(entities.row, counts), column, word, size, tokens)
        return branches.take(size > 0)


def _fitting(branches: Branches, max_tokens: Int64) -> NDArray[np.bool_]:
    """The branches from the left for which a row has room (B,)."""
    total = np.cumsum(branches.size)
    first = np.searchsorted(branches.row, branches.row)  # the first branch of the same row
    within = total - (total[first] - branches.size[first])
    return np.asarray(within <= max_tokens[branches.row])


def grown(rows: Rows, branches: Branches, entities: Any) -> tuple[Rows, SentenceTree]:
    """The rows with the tokens of branches, and what each token is.

    Inserted tokens have the segment and the further ids of the token they follow. `entities` are the words that branches
    hang on, by their number.
    """
    count, width = rows["tokens"].shape
    added = np.zeros((count, width), np.int64)
    np.add.at(added, (branches.row, branches.column), branches.size)
    moved = np.arange(width) + np.cumsum(added, axis=1) - added  # the new column of every old one
    length = rows["length"].astype(np.int64) + added.sum(axis=1)
    new_width = width + int(added.sum(axis=1).max(initial=0))
    column = np.zeros((count, new_width), np.int64)
    np.put_along_axis(column, moved, np.broadcast_to(np.arange(width), moved.shape), axis=1)
    column = np.maximum.accumulate(column, axis=1)
    branch, offset, word = np.zeros((3, count, new_width), np.int64)
    hung = np.zeros(len(entities.row) + 1, np.bool_)
    hung[branches.word] = True
    at = _inserted_columns(branches, moved)
    row = np.repeat(branches.row, branches.size)
    branch[row, at] = np.repeat(np.arange(1, len(branches.row) + 1), branches.size)
    offset[row, at] = slots(branches.size) + 1
    word[row, at] = np.repeat(branches.word, branches.size)
    of = np.repeat(np.flatnonzero(hung[1:]), entities.size[hung[1:]])
    inner = entities.start[of] + slots(entities.size[hung[1:]])
    word[entities.row[of], moved[entities.row[of], inner]] = of + 1
    spliced = rows.splice(column, length.astype(rows["length"].dtype))
    flat = row * new_width + at
    changed: dict[str, NDArray[Any]] = {}
    for name, value in spliced.items():
        entry = fields.find(name)
        if "." not in name and entry.aligned and (name in ("tokens", "characters") or not entry.travels):
            changed[name] = value.copy()
            new = changed[name].reshape((-1, *value.shape[2:]))
            new[flat] = branches.tokens if name == "tokens" else entry.inserted
    for name in _COLUMNS:
        if name in rows:
            value = rows[name]
            pairs = value.reshape(count, -1)
            new = np.take_along_axis(moved, np.maximum(pairs, 0), axis=1)
            changed[name] = np.where(pairs < 0, pairs, new).reshape(value.shape).astype(value.dtype)
    return spliced.having_all(changed), SentenceTree(column, branch, offset, word)


def _inserted_columns(branches: Branches, moved: Int64) -> Int64:
    """The new columns of the tokens of all branches."""
    total = np.cumsum(branches.size) - branches.size
    begins = np.ones(len(branches.word), np.bool_)
    begins[1:] = branches.word[1:] != branches.word[:-1]
    before = total - total[np.maximum.accumulate(np.where(begins, np.arange(len(total)), 0))] if len(total) else total
    start = moved[branches.row, branches.column] + 1 + before
    return np.asarray(np.repeat(start, branches.size) + slots(branches.size))


def soft_positions(tree: SentenceTree, positions: NDArray[Any] | None = None) -> Int64:
    """(B, L) the position of each token if every branch continues its word; `positions`: those of the rows without branches."""
    columns = tree.column
    if positions is not None:
        columns = np.take_along_axis(positions, np.minimum(columns, positions.shape[1] - 1), axis=1)
    return np.asarray(columns + tree.place)


def visible_matrix(tree: SentenceTree) -> NDArray[np.bool_]:
    """(B, L, L) which tokens see each other: those of the text, those of one branch, and a word and its branches."""
    branch, word = tree.branch, tree.word
    visible = np.ones((*branch.shape, branch.shape[1]), np.bool_)
    for seen, branches, hung in zip(visible, branch, word, strict=True):  # row by row: the matrices of a block are large
        if branches.any():
            np.equal(branches[:, None], branches, out=seen)
            text = branches == 0
            seen |= (hung[:, None] == hung) & (hung > 0) & (text[:, None] | text)
    return visible
