"""Ask which entity one mention of a text means: a mask next to it, and the tokens of its candidates (E-BERT-MLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.frame import split_template
from cloze.exercises.tables import check_table, ends_of_items, table_of
from cloze.registry import Given, register
from cloze.rng import Draw, integers_below
from cloze.rows import Inserted, Rows, columns_before, rows_and_columns

Int64 = NDArray[np.int64]

MASK = "[MASK]"
_LEAST = 1e-30  # a prior of 0 has no logarithm


class MentionFrame(NamedTuple):
    """The ids that are put before and behind a mention, and where the mask is among both."""

    before: NDArray[np.int32]
    behind: NDArray[np.int32]
    mask: int

    @property
    def size(self) -> int:
        """How many tokens it adds."""
        return len(self.before) + len(self.behind)


class MatchedNames(NamedTuple):
    """Surface forms in a block of rows, (N,) each, row by row: the row, the first column, the column behind the last one, the
    number of the form, and what it means: the number of an entity, 0 if nobody says it."""

    row: Int64
    start: Int64
    stop: Int64
    form: Int64
    right: Int64

    def take(self, index: Any) -> MatchedNames:
        """Some of them."""
        return MatchedNames(*(column[index] for column in self))


class MentionCandidates(NamedTuple):
    """The candidates of mentions that have tokens: `tokens` (N, R), their ids, 0 behind the last one, the `logarithms` of their
    priors (N, R), and how many each mention has (N,)."""

    tokens: NDArray[np.int32]
    logarithms: NDArray[np.float32]
    counts: Int64

    def take(self, index: Any) -> MentionCandidates:
        """Those of some mentions."""
        return MentionCandidates(*(column[index] for column in self))


@register("edit", "ask_mention")
@dataclass(frozen=True)
class AskMention(Edit):
    """Ask which entity one mention of a row means, drawn from the surface forms `items/<of>` whose answer `ask_links` has put
    into `items/<right>` (E-BERT-MLM: Poerner et al., 2020; NPoe/ebert, code/run_aida.py).

    The `template` puts a mask and other tokens around `{mention}`. The candidates are those of the table `table` that have a
    token `[<prefix>ID]` in the vocabulary, which `cloze vocab entities` adds. A mention is eligible if it begins and ends where
    words do, has a candidate, and means one of them or no entity; an entity without a token counts as none. A row without an
    eligible mention stays as it is and has no target. Put `ask_mention` after the edits that move tokens.

    Gives `items/<give>` (B, R), the tokens of the candidates, 0 for none; `item_vectors/<give>` (B, R, 1), the logarithms of
    their priors; `item_length/<give>` (B,); `links/<give>`, which link all of them to the mask; and at the mask the target
    `targets/<set>`: the token of the entity, or the mask itself where there is none.

    Differs: each epoch asks for one mention of each text; the code asks for all of them, each in a row.
    """

    table: str = "surfaces"
    of: str = "surface"
    right: str = "entity"
    template: str = "[MASK] / {mention} *"
    prefix: str = "ENTITY/"
    give: str = "candidate"
    set: str = "entity"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)
    tokenizer: Given[TokenFacts | None] = None
    _frame: MentionFrame | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_table("ask_mention", self.table, self.tables)
        pieces = split_template(self.template)
        if pieces.count(("part", "mention")) != 1 or [kind for kind, _ in pieces].count("part") != 1:
            raise RecipeError(f"ask_mention.template: {self.template!r}. Expected {{mention}} once, and no other part.")
        if pieces.count(("role", MASK)) != 1:
            raise RecipeError(f"ask_mention.template: {self.template!r}. Expected one {MASK}, which stands for the entity.")
        if self.tokenizer is not None and self._frame is None:
            object.__setattr__(self, "_frame", _frame_of(pieces, self.tokenizer))

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({
            "tokens", "length", "word_start", f"items/{self.of}", f"links/{self.of}", f"items/{self.right}"
        })

    @property
    def gives(self) -> frozenset[str]:
        items = {f"items/{self.give}", f"links/{self.give}", f"item_vectors/{self.give}", f"item_length/{self.give}"}
        return frozenset({"tokens", f"targets/{self.set}", f"positions/{self.set}", *items})

    def max_input(self, length: int) -> int:
        """The tokens that the template leaves free."""
        if self._frame is not None:
            return length - self._frame.size
        return length - len(split_template(self.template)) + 1

    @cached_property
    def entity_tokens(self) -> NDArray[np.int32]:
        """The token of each entity of the table by its number, 0 for one without."""
        table, facts = table_of("ask_mention", self.table, self.tables), needed(self.tokenizer, "ask_mention")
        numbers = {piece: number for number, piece in enumerate(facts.spellings)}
        tokens = np.zeros(table.null + 2, np.int32)
        tokens[1 : len(table.ids) + 1] = [numbers.get(f"[{self.prefix}{identifier}]", 0) for identifier in table.ids]
        if not tokens.any():
            raise RecipeError(
                f"ask_mention: no candidate of the table {self.table!r}, such as {', '.join(table.ids[:3])}, has a token in the "
                f"vocabulary, such as [{self.prefix}{table.ids[0] if table.ids else 'ID'}].\n"
                "  Start from a checkpoint of cloze vocab entities whose vectors and candidates have the same ids."
            )
        return tokens

    def mentions(self, rows: Rows) -> MatchedNames:
        """The surface forms of a block of rows that begin and end where words do."""
        items, width = rows[f"items/{self.of}"], rows["tokens"].shape[1]
        first, last = ends_of_items(rows[f"links/{self.of}"], items.shape[1], width)
        row, slot = rows_and_columns((items > 0) & (last >= 0))
        rights = rows[f"items/{self.right}"][row, slot] if f"items/{self.right}" in rows else np.zeros(len(row), np.int64)
        numbers = items[row, slot].astype(np.int64)
        forms = MatchedNames(row, first[row, slot], last[row, slot] + 1, numbers, rights.astype(np.int64))
        begins = np.ones((rows.count, width + 1), np.bool_)  # the end of a row ends a word
        begins[:, :width] = rows["word_start"] | ~columns_before(rows["length"], width)
        return forms.take(begins[forms.row, forms.start] & begins[forms.row, forms.stop])

    def candidates(self, mentions: MatchedNames) -> MentionCandidates:
        """The candidates of mentions, the most probable first."""
        table = table_of("ask_mention", self.table, self.tables)
        tokens = self.entity_tokens[table.candidates[mentions.form]]
        counts = (tokens > 0).sum(1)
        order = np.argsort(tokens == 0, axis=1, kind="stable")[:, : max(int(counts.max(initial=0)), 1)]
        priors = np.take_along_axis(table.priors[mentions.form], order, axis=1)
        logarithms = np.log(np.maximum(priors, _LEAST)).astype(np.float32)
        is_candidate = np.arange(order.shape[1]) < counts[:, None]
        tokens = np.where(is_candidate, np.take_along_axis(tokens, order, axis=1), 0)
        return MentionCandidates(tokens, np.where(is_candidate, logarithms, 0), counts.astype(np.int64))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        mentions = self.mentions(rows)
        candidates = self.candidates(mentions)
        token = self.entity_tokens[mentions.right]
        eligible = (mentions.right > 0) & (candidates.counts > 0)
        eligible &= (token == 0) | (candidates.tokens == token[:, None]).any(1)
        mentions, candidates = mentions.take(eligible), candidates.take(eligible)
        counts = np.bincount(mentions.row, minlength=rows.count)
        drawn = integers_below(draw.bits("ask_mention"), np.maximum(counts, 1))
        chosen = (np.cumsum(counts) - counts + drawn)[counts > 0]
        return self.asked(rows, mentions.take(chosen), candidates.take(chosen))

    def asked(self, rows: Rows, mentions: MatchedNames, candidates: MentionCandidates) -> Rows:
        """The rows, each with the template around its mention; rows without one stay as they are."""
        needed(self.tokenizer, "ask_mention")
        assert self._frame is not None  # there is a tokenizer
        row, (before, behind, mask) = mentions.row, self._frame
        spliced = _spliced(rows, mentions, self._frame)
        count, most = rows.count, candidates.tokens.shape[1]
        items, logarithms = np.zeros((count, most), np.int32), np.zeros((count, most, 1), np.float32)
        items[row], logarithms[row, :, 0] = candidates.tokens, candidates.logarithms
        lengths = np.zeros(count, np.int32)
        lengths[row] = candidates.counts
        column = np.full(count, -1, np.int32)
        inside = 0 if mask < len(before) else mentions.stop - mentions.start
        column[row] = mentions.start + mask + inside
        target = np.zeros(count, np.int32)
        target[row] = np.where(
            self.entity_tokens[mentions.right] > 0, self.entity_tokens[mentions.right], np.concatenate([before, behind])[mask]
        )
        links = np.stack([np.broadcast_to(column[:, None], items.shape), np.broadcast_to(np.arange(most), items.shape)], axis=2)
        return spliced.having_all({
            f"items/{self.give}": items, f"item_vectors/{self.give}": logarithms, f"item_length/{self.give}": lengths,
            f"links/{self.give}": np.where((items > 0)[:, :, None], links, -1).astype(np.int32),
            f"targets/{self.set}": target[:, None], f"positions/{self.set}": column[:, None],
        })


def _frame_of(pieces: list[tuple[str, str]], facts: TokenFacts) -> MentionFrame:
    """The ids of the pieces of a template before and behind the mention."""
    at = pieces.index(("part", "mention"))
    sides = [
        np.array([number for kind, text in side for number in facts.literal(kind, text)], np.int32)
        for side in (pieces[:at], pieces[at + 1 :])
    ]
    return MentionFrame(sides[0], sides[1], int(np.concatenate(sides).tolist().index(facts.role(MASK))))


def _spliced(rows: Rows, mentions: MatchedNames, frame: MentionFrame) -> Rows:
    """The rows with the ids of the frame around their mentions."""
    before, behind, count = len(frame.before), len(frame.behind), rows.count
    width = rows["tokens"].shape[1] + (frame.size if len(mentions.row) else 0)
    start, stop = np.full((2, count), width, np.int64)  # behind the columns of a row without a mention
    start[mentions.row], stop[mentions.row] = mentions.start, mentions.stop
    column = np.arange(width)
    moved = np.minimum(np.maximum(column - start[:, None], 0), before)
    moved += np.minimum(np.maximum(column - before - stop[:, None], 0), behind)
    length = rows["length"].copy()
    length[mentions.row] += frame.size
    first = mentions.row[:, None] * width
    at = np.concatenate([
        first + mentions.start[:, None] + np.arange(before), first + mentions.stop[:, None] + before + np.arange(behind)
    ], axis=1)
    ids = np.broadcast_to(np.concatenate([frame.before, frame.behind]), at.shape)
    return rows.splice(column - moved, length, Inserted(at, ids))
