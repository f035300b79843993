"""Cut words into other pieces of the same vocabulary, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import BelowOne, Positive, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.units.unit_request import slots
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns
from cloze.text.vocabularies.lattice import PieceLattice
from cloze.text.vocabularies.merging import MergeTable, SymbolPieces

Ints = NDArray[np.int64]

_STEPS = 1 << 16  # room for a row's symbols below the number of a step in the address of a coin


@register("edit", "resegment")
@dataclass(frozen=True)
class Resegment(Edit):
    """Cut each word into other pieces of the same vocabulary, differently in every epoch; held-out texts stay as they are stored.

    With `dropout`, for byte-pair vocabularies, the ids of a word are taken apart into symbols and merged again, where each
    possible merge is left out with this probability, drawn for each step (BPE-dropout; Provilkov et al., 2020, §3; 0.1 there).
    0 gives the ids of the store, 1 single symbols. With `alpha`, for unigram vocabularies, a segmentation is drawn in proportion
    to its probability to the power `alpha` (subword sampling; Kudo, 2018, §3.3, among all segmentations, l = ∞).

    Pieces that are one symbol, special and unknown tokens stay. A row that has grown beyond its length is cut at its end;
    `reserve` is the share of the row that is kept free for growth. Put it first. A second text from elsewhere would keep its
    stored pieces, by which a network could tell it apart; such exercises are refused.

    Gives `tokens`, `length` and `word_start`; labels and layers of a token are those of each of its pieces.

    Differs: of a pair that occurs twice in a word one is merged in a step, in subword-nmt's `apply_bpe.py` all that were not left
    out. `tokenizers` draws again for pairs left out when a merge that is no longer possible comes up; the paper does not.
    """

    training_only: ClassVar[bool] = True
    precedes: ClassVar[frozenset[str]] = frozenset({"special", "masked"})
    spoils: ClassVar[tuple[str, ...]] = ("words", "links/", "distractor.tokens")  # a text whose pieces tell that it is another

    dropout: Share | None = None
    alpha: Positive | None = None
    reserve: BelowOne = 0.2
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)
    limit: Given[int | None] = None
    _within: bool = False

    def __post_init__(self) -> None:
        if (self.dropout is None) == (self.alpha is None):
            raise RecipeError(
                "resegment: needs either dropout, for a byte-pair vocabulary, or alpha, for a unigram vocabulary.\n"
                "  For example `resegment: {dropout: 0.1}`."
            )

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "word_start"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "word_start"})

    def max_input(self, length: int) -> int:
        """What is left without the reserve."""
        return length - int(length * self.reserve)

    def for_length(self, length: int) -> Resegment:
        """The same edit with at most `length` tokens in a row."""
        return replace(self, limit=length)

    def without_growth(self) -> Resegment:
        """The same edit, cutting rows that have grown: packing plans them by the lengths of the passages."""
        return replace(self, _within=True)

    @cached_property
    def _table(self) -> MergeTable | PieceLattice:
        facts = needed(self.tokenizer, "resegment")
        table = (MergeTable if self.dropout is not None else PieceLattice).of(facts.description, facts.size)
        if table is None:
            requirement = "dropout needs a byte_bpe or bpe" if self.dropout is not None else "alpha needs a unigram"
            raise RecipeError(
                f"resegment: {requirement} vocabulary, and this tokenizer is of another kind.\n"
                "  Leave resegment out, or change text.tokenizer."
            )
        return table

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        width = rows["tokens"].shape[1]
        real = columns_before(rows["length"], width)
        row, column = rows_and_columns(real)
        if not len(row):
            return rows
        starts = rows["word_start"][row, column]
        pieces, token = self._drawn(rows["tokens"][row, column], starts | (column == 0), row, draw)
        return self._laid(rows, pieces.ids, row[token], column[token], starts[token] & (pieces.first == 0))

    def _drawn(self, tokens: NDArray[Any], starts: NDArray[np.bool_], row: Ints, draw: Draw) -> tuple[SymbolPieces, Ints]:
        """The pieces of all words, with `first` their place in the token that they begin in, and which token that is (P,)."""
        table = self._table
        symbols, count = table.apart(tokens)
        token, nth = np.repeat(np.arange(len(tokens)), count), slots(count)
        sites = row[token]
        position = np.arange(len(sites)) - np.searchsorted(sites, sites)  # of a symbol in its row
        threshold = (self.dropout or 0.0) * 2.0**32

        def dropped(step: int, at: Ints) -> NDArray[np.bool_]:
            return np.asarray(draw.bits_at("resegment", sites[at], position[at] + step * _STEPS) < threshold)

        def draws(at: Ints) -> NDArray[np.float64]:
            return draw.bits_at("resegment", sites[at], position[at]).astype(np.float64) * 2.0**-32

        if isinstance(table, MergeTable):
            pieces = table.merged(symbols, starts[token] & (nth == 0), dropped if self.dropout else None)
        else:
            pieces = table.drawn(tokens, starts, self.alpha or 0.0, draws)
        return SymbolPieces(pieces.ids, nth[pieces.first]), token[pieces.first]

    def _laid(self, rows: Rows, ids: Ints, row: Ints, column: Ints, begins: NDArray[np.bool_]) -> Rows:
        """The rows with pieces `ids` (P,), row by row, each with the fields of the column that it came from."""
        length = np.bincount(row, minlength=rows.count)
        bound = rows["length"].astype(np.int64) if self._within else length
        new_length = np.minimum(length, bound if self.limit is None else np.minimum(bound, self.limit))
        shape = rows.count, max(int(length.max(initial=0)), 1)
        index, tokens, starts = np.zeros(shape, np.int64), np.zeros(shape, rows["tokens"].dtype), np.zeros(shape, np.bool_)
        at = row, slots(length)
        index[at], tokens[at], starts[at] = column, ids, begins
        widest = max(int(new_length.max(initial=0)), 1)
        moved = rows.splice(index[:, :widest], new_length.astype(rows["length"].dtype))
        again = np.zeros(shape, np.bool_)
        again[:, 1:] = (index[:, 1:] == index[:, :-1]) & (np.arange(1, shape[1]) < length[:, None])
        layers = {  # a later piece of the first token of a unit is inside the unit
            name: np.where(again[:, :widest] & (value == 1), 2, value).astype(value.dtype)
            for name, value in moved.items() if name.startswith("layers/")
        }
        return moved.having_all({"tokens": tokens[:, :widest], "word_start": starts[:, :widest], **layers})
