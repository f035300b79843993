"""The source of streams: the whole corpus as a few long texts, read in parallel, row after row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count, Natural, NonNegative, Share
from cloze.corpus.sources.bound import BoundSource, Companion, documents_of_running_text
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError, text_in
from cloze.registry import register

_FEWEST = 5  # minimum number of new tokens in a row of random length
_TEXT = frozenset({"tokens", "length", "sentence", "word_start"})
_FIELDS = _TEXT | {"document", "restarts"} | {f"distractor.{name}" for name in _TEXT}


@register("source", "streams")
class Streams(Source):
    """Consecutive rows of one long text, for networks with a memory (Transformer-XL, XLNet).

    The documents, in the order of the store and with a `separator` (a role, such as "[EOS]") after each, form one text. It is cut
    into as many lanes as the batch has rows; row i of every step continues row i of the previous step. An epoch reads every lane
    once, in order, and `restarts` marks where memory must be cleared. A remainder of fewer tokens than lanes is dropped.

    length: the length of the network's input; phases may set it instead.
    reuse: how many tokens at the end of a row the next row of the lane repeats at its start. With 1, predicting the next token
      after every token but the last predicts each token of the lane once (Transformer-XL; its network also has `reuse: 1`).
      XLNet repeats half a row.
    both_directions: the upper half of the lanes reads the text of the lower half a second time, backwards (XLNet, `bi_data`), and
      `reversed` marks its rows; a word then starts at its end. With an odd number of lanes the middle one is only read
      forwards.
    spread, short: rows of random lengths, the same for all lanes, so that row borders vary (AWD-LSTM; Merity et al., 2018, §5).
      The number of new tokens of a row is drawn from a normal distribution with standard deviation `spread` around a mean, in a
      share `short` of the rows around half that mean; the mean is 4 standard deviations below `length`, and the minimum is 5.
      With `training.divide: rows`, the size of an update is proportional to the length of its rows. Held-out rows are not
      random: all have the mean length.

    The companion `distractor` is a span of the row's own lane that begins with the sentence of a random token.

    Differs: the authors of XLNet shuffle input files for every epoch; here all epochs are equal, except for the random numbers of
    the exercise.
    """

    #: A run binds this source with the number of rows in a step.
    lanes = True
    gives: frozenset[str]

    def __init__(
        self, *, length: Count | None = None, reuse: Natural = 0, both_directions: bool = False, separator: str | None = None,
        spread: NonNegative = 0.0, short: Share = 0.0,
    ) -> None:
        if reuse < 0 or (length is not None and reuse >= length):
            raise RecipeError(f"streams.reuse: {reuse} tokens of a row come again; expected 0 or more, and fewer than length.")
        if spread < 0 or not 0 <= short <= 1:
            raise RecipeError(f"streams: spread is {spread} and short is {short}; expected 0 or more tokens and a share of rows.")
        self.length = length
        self.reuse = reuse
        self.spread, self.short = spread, short
        self.needs_whole = "rows of random lengths are drawn for a whole store" if spread or short else ""
        self.both_directions = both_directions
        self.separator = separator
        self.gives = _FIELDS | ({"reversed"} if both_directions else frozenset())

    def bind(self, store: Store, *, lanes: int, **address: Unpack[Address]) -> BoundStreams:
        """This source over one store, in `lanes` lanes. Raises `CorpusError` if a training lane has fewer than two tokens."""
        return BoundStreams(self, store, lanes=lanes, **address)


@dataclass(frozen=True)
class StreamPlan:
    """One epoch: item k is step k // lanes of lane k % lanes. `start` and `length` are the same for all lanes, per step."""

    epoch: int
    max_tokens: int
    lanes: int
    start: Int64
    length: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start) * self.lanes

    def lengths(self, items: Int64) -> NDArray[np.int32]:
        """Row lengths of items of the epoch."""
        return self.length[items // self.lanes]

    def address(self, items: Int64, static: bool) -> Int64:
        """A number that identifies each item: itself, since the order is that of the text."""
        return items


class StreamPositions(NamedTuple):
    """Tokens of the lanes (B, L): the document of each, its position there, the document's length, whether it is the separator
    after it, and its index in the store (for a separator, the index of the document's last token)."""

    document: Int64
    inner: Int64
    size: Int64
    between: NDArray[np.bool_]
    physical: Int64


class BoundStreams(BoundSource[StreamPlan]):
    """The text of one store in a number of lanes."""

    source: Streams

    def __init__(self, source: Streams, store: Store, *, lanes: int, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.lanes = lanes
        documents = documents_of_running_text(store, self.held_out, self.subset)
        bounds = store.document_starts
        sizes = bounds[documents + 1] - bounds[documents]
        self._documents = documents[sizes > 0]
        self._first = bounds[self._documents]
        self._separator = None if source.separator is None else store.role(source.separator)
        spaced = sizes[sizes > 0] + (self._separator is not None)
        self._begin = np.concatenate([[0], np.cumsum(spaced)]).astype(np.int64)
        self._texts = -(-lanes // 2) if source.both_directions else lanes
        self.span = int(self._begin[-1]) // self._texts
        if self.subset == "train" and self.span < 2:
            raise CorpusError(
                text_in(store.path), f": the corpus is smaller than one example: {int(self._begin[-1])} tokens are fewer than "
                f"two for each of {self._texts} lanes.\n  Give more text, or a smaller batch."
            )

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus, separators included."""
        return int(self._begin[-1])

    def make_plan(self, epoch: int, max_tokens: int) -> StreamPlan:
        """The rows of one epoch."""
        step = max_tokens - self.source.reuse
        if max_tokens < 2 or step < 1:
            raise RecipeError(
                f"streams: rows of {max_tokens} tokens, {self.source.reuse} of them read again, have no new tokens. "
                "Is `length` too small?"
            )
        if self.source.spread or self.source.short:
            return self._drawn_plan(epoch, max_tokens)
        # A last row with only repeated tokens, or a single token, would have nothing to predict.
        steps = max(0, -(-(self.span - max(self.source.reuse, 1)) // step))
        start = np.arange(steps, dtype=np.int64) * step
        return StreamPlan(epoch, max_tokens, self.lanes, start, np.minimum(max_tokens, self.span - start).astype(np.int32))

    def _drawn_plan(self, epoch: int, max_tokens: int) -> StreamPlan:
        """Rows of random lengths: a pure function of the seed, the entry, the epoch and `max_tokens`."""
        source, most = self.source, max_tokens - self.source.reuse
        usual = most - 4 * source.spread
        if usual < _FEWEST:
            raise RecipeError(
                f"streams.spread: with {source.spread}, rows of {max_tokens} tokens would usually bring {usual:g} new ones; "
                f"expected at least {_FEWEST}. Make length larger or spread smaller."
            )
        end = self.span - max(source.reuse, 1)
        number = end // _FEWEST + 1
        if self.subset == "train":
            generator = np.random.Generator(np.random.Philox(key=rng.fold(self.seed, self.entry, epoch, "lengths")))
            base = np.where(generator.random(number) < source.short, usual / 2, usual)
            new = np.clip((base + source.spread * generator.standard_normal(number)).astype(np.int64), _FEWEST, most)
        else:
            new = np.full(number, int(usual), np.int64)
        start = np.concatenate([[0], np.cumsum(new)])[:-1]
        steps = int(np.searchsorted(start, end))
        start, length = start[:steps], new[:steps] + source.reuse
        return StreamPlan(epoch, max_tokens, self.lanes, start, np.minimum(length, self.span - start).astype(np.int32))

    def read_main(self, plan: StreamPlan, items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L) int32, `length` (B), `restarts` (B) bool and `document` (B), that of the first token, always;
        `reversed` (B) bool where both directions are read; `sentence` (B, L), the ordinal of the token's sentence in
        its row (-1 at a separator), and `word_start` (B, L) if wanted."""
        step, lane = items // plan.lanes, items % plan.lanes
        arrays = self._text(plan.start[step], plan.length[step], lane, want)
        arrays["restarts"] = step == 0
        if self.source.both_directions:
            arrays["reversed"] = lane >= self._texts
        return arrays

    @property
    def companions(self) -> Mapping[str, Companion]:
        """`distractor`: as long as the row unless the lane ends earlier."""
        return {"distractor": self._distractor}

    def _distractor(self, plan: StreamPlan, items: Int64, want: frozenset[str]) -> Arrays:
        step, lane = items // plan.lanes, items % plan.lanes
        start = self._somewhere(self.draw(plan, items).uniform("distractor"), lane)
        arrays = self._text(start, np.minimum(plan.length[step], self.span - start).astype(np.int32), lane, want)
        return {name: value for name, value in arrays.items() if name in _TEXT}

    def _text(self, start: Int64, length: NDArray[np.int32], lane: Int64, want: frozenset[str]) -> Arrays:
        """The tokens of each lane from `start` (B,), in the direction of reading, and the other wanted fields."""
        inside = np.minimum(start[:, None] + np.arange(int(length.max(initial=1))), self.span - 1)
        at = self._places(inside, lane)
        tokens = self.store.tokens[at.physical].astype(np.int32)
        if self._separator is not None:
            tokens[at.between] = self._separator
        arrays: Arrays = {
            "tokens": tokens, "length": length, "document": self._documents[at.document[:, 0]],
        }
        if "word_start" in want:
            arrays["word_start"] = self._words(at, lane >= self._texts)
        if "sentence" in want:
            arrays["sentence"] = self._sentences(at)
        return arrays

    def _places(self, inside: Int64, lane: Int64) -> StreamPositions:
        """The store indices of the tokens `inside` (B, L) the lanes, counted in the direction of reading."""
        inside = np.where((lane >= self._texts)[:, None], self.span - 1 - inside, inside)
        position = (lane % self._texts * self.span)[:, None] + inside
        document = np.searchsorted(self._begin, position, "right") - 1
        inner = position - self._begin[document]
        size = np.diff(self._begin)[document] - (self._separator is not None)
        physical = self._first[document] + np.minimum(inner, size - 1)
        return StreamPositions(document, inner, size, inner >= size, physical)

    def _somewhere(self, uniform: NDArray[np.float64], lane: Int64) -> Int64:
        """Where the sentence of a random token of each lane begins, in the direction of reading (B,)."""
        token = (uniform * self.span).astype(np.int64)
        at = self._places(token[:, None], lane)
        physical, starts = at.physical[:, 0], self.store.sentence_starts
        number = np.searchsorted(starts, physical, "right") - 1
        after = np.append(starts, len(self.store.tokens))[number + 1]
        read = np.where(lane >= self._texts, after - 1 - physical, physical - starts[number])
        return np.maximum(token - np.where(at.between[:, 0], 0, read), 0)

    def _words(self, at: StreamPositions, backwards: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where words start in the direction of reading: backwards, where the next token of the text starts another word."""
        last = len(self.store.tokens) - 1
        ends = (at.inner >= at.size - 1) | self.store.words(np.minimum(at.physical + 1, last))
        return np.where(backwards[:, None], ends, self.store.words(at.physical)) | at.between

    def _sentences(self, at: StreamPositions) -> NDArray[np.int32]:
        number = np.searchsorted(self.store.sentence_starts, at.physical, "right") - 1
        changes = np.zeros(number.shape, np.int32)
        changes[:, 1:] = number[:, 1:] != number[:, :-1]
        ordinal = np.cumsum(changes, axis=1, dtype=np.int32)
        return np.where(at.between, np.int32(-1), ordinal)
