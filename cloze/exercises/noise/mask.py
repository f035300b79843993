"""Choose the tokens to mask: single tokens, words, n-grams or spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, Positive, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units import Unit, UnitRequest, unit_of
from cloze.exercises.units.alternating import spans_in
from cloze.exercises.units.lengths import LengthLaw, odds_of
from cloze.exercises.units.random_windows import in_windows
from cloze.exercises.units.unit_request import Bools, Ints, sized
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true

UnitName = Literal["token", "whole_word", "ngram", "span", "spaced", "infill", "alternating", "partition", "fragment"]


@register("edit", "mask")
@dataclass(frozen=True)
class Mask(Edit):
    """Choose a fraction `rate` of each row to mask: gives `masked` (B, L), and for spans `layers/span`, their numbers from 1.
    `corrupt` replaces the chosen tokens, and `predict: masked` makes them targets.

    `unit`: `token`; `whole_word` (BERT-wwm); `ngram` (ALBERT); `span` (SpanBERT); `spaced`, one token in 1/`rate` (XLNet);
    `infill` (BART); `alternating`, spans of `mean` tokens (T5); `partition`, the row cut into spans (GPT-BERT); `fragment`,
    with the probabilities `start` of the first and the last position (MASS); or a list such as `[token, phrase, entity]`,
    units marked by annotation layers (ERNIE). Each is described in its file of `exercises/units`. `lengths` are those of
    n-grams and spans, counted in words unless `words` is false; `count` limits n-grams by number; `power` makes frequent
    tokens rarer (XLM).

    `window`: `half`, or a number of maskable tokens (MASS for summaries: 64). Each half or stretch of the row gets its part of
    the number and is masked independently (XLNet: 43 and 42 of 85).

    `of` is what the fraction refers to: `ordinary` tokens; `all` tokens of the row, special ones included, as BERT's code counts
    (google-research/bert `create_pretraining_data.py`); or `words`: that many whole words, each equally likely whatever its
    length (fairseq `mask_tokens_dataset.py`, `mask_whole_words`).

    `rounding`: to the `nearest` number, at least one; `up` (SpanBERT, BART); `down`, possibly to none (MASS); `stochastic`,
    ⌊rate·n + u⌋ (RoBERTa, fairseq); `independent`, one draw for every unit (XLM, ERNIE), whose odds the edit `favour` may
    change; `at_least_one`, the same, except that a row in which no unit is drawn gets one masked token (UNITER); `replacement`,
    the nearest number of draws with replacement, so that fewer are masked (ELECTRA). `most` caps the number.

    `spare` names what is never masked: `special` tokens, the `first` token (XLM), or `none` (fairseq); or a list of `special`
    and annotation layers, whose units are not masked (WKLM: mentions). `frequent` restricts
    masking to the ids below that number, the most frequent ones if ids are sorted by frequency (CharacterBERT masks only the
    100,000 words of its output). `static` masks are the same in every epoch: the source leaves the epoch out of the address of
    its rows.
    """

    hides: ClassVar[bool] = True

    unit: UnitName | list[str] = "token"
    rate: Share = 0.15
    of: Literal["ordinary", "all", "words"] = "ordinary"
    most: Count | None = None
    rounding: Literal["nearest", "up", "down", "stochastic", "independent", "at_least_one", "replacement"] = "nearest"
    spare: Literal["special", "first", "none"] | list[str] = "special"
    lengths: LengthLaw | None = None
    words: bool = True
    count: Count | None = None
    mean: Positive = 3.0
    start: dict[str, float] | None = None
    power: float = 0.0
    window: Literal["row", "half"] | Count = "row"
    frequent: Count | None = None
    counts: Given[NDArray[np.int64] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise RecipeError(f"mask: rate must be above 0 and at most 1, got {self.rate}.")
        for name in ("most", "count"):
            value = vars(self)[name]
            if value is not None and value < 1:
                raise RecipeError(f"mask: {name} must be at least 1, got {value}.")
        if isinstance(self.window, int) and self.window < 2:
            raise RecipeError(f"mask: window is {self.window}; expected row, half or at least 2 tokens.")
        if isinstance(self.unit, list) and (len(self.unit) < 2 or self.unit[0] not in ("token", "whole_word")):
            raise RecipeError(f"mask: unit {self.unit} is not token or whole_word and then the names of layers.")
        if isinstance(self.spare, list) and {"first", "none"} & set(self.spare):
            raise RecipeError(f"mask: spare is {self.spare}; a list names special and annotation layers.")
        if not self.mean >= 1:
            raise RecipeError(f"mask: mean is the length of a span and must be at least 1 token, got {self.mean}.")
        if self.start is not None and (set(self.start) - {"first", "last"} or sum(self.start.values()) > 1 + 1e-9):
            raise RecipeError(f"mask: start.first and start.last must add up to at most 1, got {self.start}.")
        if self.frequent is not None and self.frequent < 1:
            raise RecipeError(f"mask: frequent is the number of maskable ids; expected 1 or more, got {self.frequent}.")
        self._check_use()
        if self.lengths is not None:
            odds_of(self.lengths)

    def _check_use(self) -> None:
        """Refuse arguments that the unit does not use."""
        users = {
            "lengths": (self.lengths is not None, self._unit.lengths), "words": (not self.words, self._unit.words),
            "count": (self.count is not None, self.unit == "ngram"), "mean": (self.mean != 3.0, self.unit == "alternating"),
            "start": (bool(self.start), self.unit == "fragment"),
            "power": (bool(self.power), self.unit == "token"),
            "rounding: replacement": (self.rounding == "replacement", self.unit == "token" and not self.power),
            "of: words": (self.of == "words", self.unit == "whole_word"),
            "rounding: independent": (self.rounding == "independent", self._unit.independent),
            "rounding: at_least_one": (self.rounding == "at_least_one", self.unit == "token"),
        }
        for name, (is_set, used) in users.items():
            if is_set and not used:
                raise RecipeError(f"mask: unit {self.unit} does not use {name}; leave it out or choose another unit.")

    @cached_property
    def _unit(self) -> Unit:
        return unit_of(self.unit)

    @property
    def _spared(self) -> list[str]:
        """What is never masked."""
        return self.spare if isinstance(self.spare, list) else [self.spare]

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({"tokens", "length"}) | self._unit.needs
        names |= {"special"} if "special" in self._spared and not self._unit.unframed else set()
        names |= {f"layers/{name}" for name in self._spared if name not in ("special", "first", "none")}
        return names | {"word_start"} if self._unit.words and self.words else names

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: before the frame no token is special, and no word is favoured unless an edit says so."""
        return frozenset({"special"} if "special" in self._spared and self._unit.unframed else ()) | {"favour"}

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"masked"}) | self._unit.marks

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        shape = rows["tokens"].shape
        if not shape[1]:  # a block without tokens has nothing to mask, whatever the unit
            return rows.having_all({name: np.zeros(shape, bool if name == "masked" else np.int32) for name in self.gives})
        if "favour" in rows and self.rounding not in ("independent", "at_least_one"):
            raise RecipeError("mask: some words are favoured, which needs a coin for every word: write rounding: independent.")
        # `free` (B, L) may be masked. By row (B,): `available`, how many tokens (or words) these are; `base`, the
        # number that the rate refers to; `number`, how many to mask.
        free = self._free(rows)
        available = count_true(free)
        base = rows["length"].astype(np.int64) if self.of == "all" else available
        if self.of == "words":
            base = available = count_true(sized(free, rows["word_start"])[0])
        elif self._unit.by_words and self.words:
            base = count_true(free & rows["word_start"])
        number = available if self.count else np.minimum(self._number(base, draw), available)
        request = UnitRequest(self, rows, draw, free, number)
        choose = self._unit.choose
        return rows.having_all(choose(request) if self.window == "row" else in_windows(request, self.window, choose))

    def _free(self, rows: Rows) -> Bools:
        """(B, L) the maskable tokens."""
        free = columns_before(rows["length"], rows["tokens"].shape[1])
        for name in self._spared:
            if name == "first":
                free[:, 0] = False
            elif name == "special":
                free = free & ~rows["special"] if "special" in rows else free
            elif name != "none":
                free = free & (rows[f"layers/{name}"] == 0)
        if self.frequent is not None:
            free &= rows["tokens"] < self.frequent
        return free

    def _number(self, base: NDArray[Any], draw: Draw) -> Ints:
        expected = self.rate * base
        if self.rounding == "stochastic":
            number = np.floor(expected + draw.uniform("mask.round"))
        elif self.rounding == "down":
            number = np.floor(expected + 1e-9)
        else:
            number = np.maximum(np.ceil(expected - 1e-9) if self.rounding == "up" else np.rint(expected), 1)
        return (number if self.most is None else np.minimum(number, self.most)).astype(np.int64)

    def max_input_before_infill(self, length: int) -> int:
        """How many tokens may enter so that at most `length` remain when every span is replaced by one token."""
        if self.unit != "alternating":
            return length
        tokens = np.arange(length, int(length / max(1 - self.rate, 0.05)) + 3)  # candidates
        # For each: how many of its tokens are masked.
        noise = np.clip(np.maximum(np.rint(self.rate * tokens), 1), 0, tokens - 1).astype(np.int64)
        return int(tokens[tokens - noise + spans_in(noise, tokens, self.mean) <= length][-1])
