"""Networks as writers: what was read is kept in a cache, which can be reordered for beam search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Ids
from cloze.decoding.marks import CHARACTERS
from cloze.decoding.reader import Reader


def spelled_starts(reader: Reader, prompts: Sequence[str], starts: Sequence[Ids]) -> NDArray[np.int16] | None:
    """The characters (N, L, C) of the unknown words of prompts, each at its token of the starts, which `first_ids` gave; None if
    there are none, or for a network that reads no characters."""
    letters = [marks.get(CHARACTERS) for marks in reader.marks(prompts)]
    per_word = max((values.shape[1] for values in letters if values is not None), default=0)
    if not per_word:
        return None
    characters = np.zeros((len(starts), max(map(len, starts)), per_word), np.int16)
    first = len(reader.single_layout.opening)
    for row, values in zip(characters, letters, strict=True):
        if values is not None:
            row[first : first + len(values)] = values
    return characters


class _InOneRow:
    """A network that writes after what it reads. Special tokens other than the end are never written."""

    def __init__(self, reader: Reader, head: Any, banned: Tensor | None = None) -> None:
        self.reader, self.head, self.banned = reader, head, banned
        self.cache = reader.new_cache()
        self.read = 0  # tokens that the cache holds; a prompt in it does not count

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        _select(self.cache.layers, rows)

    reorder = select

    def _allowed(self, scores: Tensor) -> Tensor:
        return scores if self.banned is None else scores.index_fill(-1, self.banned, -torch.inf)


class Continuing(_InOneRow):
    """A left-to-right network that continues a text; `characters` (R, L, C) spell words of what it reads first."""

    def __init__(
        self, reader: Reader, head: Any, banned: Tensor | None = None, characters: NDArray[np.int16] | None = None
    ) -> None:
        super().__init__(reader, head, banned)
        self.characters = characters

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after tokens (R, L)."""
        return self.following(tokens, 1)[:, 0]

    def following(self, tokens: Tensor, count: int) -> Tensor:
        """Scores (R, count, V) of the token after each of the last `count` of tokens (R, L)."""
        new = tokens[:, self.read :]
        letters = None if self.read or self.characters is None else self.characters[:, : new.shape[1]]
        batch = self.reader.continued(new, self.read, characters=letters)
        self.read = tokens.shape[1]
        states = self.reader.states(batch, self.head.reads, cache=self.cache)
        scores = self.reader.token_scores(self.head, states, batch, _last(new, count))
        return self._allowed(scores.unflatten(0, (len(new), count)))

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self.cache.forget(max(0, self.read - length))
        self.read = min(self.read, length)


class Filling(_InOneRow):
    """A network that fills gaps writes a second text after the first: a [MASK] where the next token shall stand, asked there,
    taken away again (UniLM; Dong et al., 2019, §2.5). The first text sees all of itself, the second what stands before.

    `source` (1, n) are the segments of the first text, which all rows have in common; `segment` is that of the second.
    """

    def __init__(self, reader: Reader, head: Any, banned: Tensor | None, *, source: Tensor, segment: int) -> None:
        super().__init__(reader, head, banned)
        self.source, self.segment = source, segment
        self.mask = reader.tokenizer.role("[MASK]")

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after tokens (R, L)."""
        reader, first = self.reader, self.source.shape[1]
        if not self.read:
            batch = reader.continued(tokens[:, :first], 0)
            batch = Batch({**batch, "segments": self.source.expand(len(tokens), -1)}, checked=True)
            reader.states(batch, (), cache=self.cache, order="open")
            self.read = first
        read, self.read = self.read, tokens.shape[1]
        gap = tokens.new_full((len(tokens), 1), self.mask)
        new = torch.cat([tokens[:, read:], gap], dim=1)
        batch = reader.continued(new, read, self.segment)
        states = reader.states(batch, self.head.reads, cache=self.cache, order="left_to_right")
        self.cache.forget(1)  # the gap was never part of the text
        return self._allowed(reader.token_scores(self.head, states, batch, _last(new, 1)))


class Asking:
    """A network with states that do not see their own token (XLNet) writes one token at a time: it is asked at a place after
    the text, which sees all of the text, while the text does not see the place (`prepare_inputs_for_generation` of transformers'
    XLNet, without a memory).

    The text sees itself in both directions, so each token that is written changes every state: all of it is read again.
    """

    def __init__(self, reader: Reader, head: Any, banned: Tensor | None = None) -> None:
        self.reader, self.head, self.banned = reader, head, banned

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after tokens (R, L)."""
        inputs = torch.cat([tokens, tokens[:, -1:]], dim=1)  # any token: nothing sees it
        batch = self.reader.continued(inputs, 0)
        batch, positions = self.reader.prediction_inputs(self.head, batch, _last(inputs, 1))
        states = self.reader.states(batch, self.head.reads, positions=positions)
        scores = self.reader.token_scores(self.head, states, batch, positions)
        return scores if self.banned is None else scores.index_fill(-1, self.banned, -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Nothing is remembered."""

    reorder = select


class Answering:
    """An encoder-decoder that writes from the source `batch`, which the encoder reads once. Any token may be written that the
    reading does not forbid."""

    def __init__(self, reader: Reader, head: Any, batch: Batch) -> None:
        self.reader, self.head, self.batch = reader, head, batch
        self.cache = reader.network.cache()
        roles = reader.tokenizer.roles
        self.banned = [roles[role] for role in reader.reading.unwritten if role in roles]

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after the decoder's tokens (R, L)."""
        return self.following(tokens, 1)[:, 0]

    def following(self, tokens: Tensor, count: int) -> Tensor:
        """Scores (R, count, V) of the token after each of the last `count` of the decoder's tokens (R, L)."""
        new = tokens[:, self.cache.length :]
        batch = Batch({**self.batch, "decoder.tokens": new}, checked=True)
        state = self.reader.network.writes
        states = self.reader.states(batch, (state,), cache=self.cache)
        read = {self.head.reads[0]: states[state]}
        scores = self.reader.token_scores(self.head, read, batch, _last(new, count))
        scores[:, self.banned] = -torch.inf
        return scores.unflatten(0, (len(new), count))

    def forget(self, length: int) -> None:
        """Keep the decoder's first `length` tokens."""
        self.cache.forget(max(0, self.cache.length - length))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows and with what they read."""
        self.batch = Batch({name: value.index_select(0, rows) for name, value in self.batch.items()}, checked=True)
        cache = self.cache
        cache.encoded = None if cache.encoded is None else cache.encoded.index_select(0, rows)
        _select(cache.source, rows)
        _select(cache.layers, rows)

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, each from one that reads the same source."""
        _select(self.cache.layers, rows)


def asks(reader: Reader, head: Any) -> bool:
    """Whether a head reads states that do not see their own token."""
    gives = reader.network.gives
    return any(gives[name].sees == "before" for name in head.reads if name in gives)


def _last(tokens: Tensor, count: int) -> Tensor:
    """The flat positions (R * count,) of the last `count` tokens of each row of (R, L)."""
    rows, length = tokens.shape
    ends = torch.arange(1, rows + 1, device=tokens.device)[:, None] * length
    return (ends - torch.arange(count, 0, -1, device=tokens.device)).flatten()


def _select(layers: list[list[Tensor]], rows: Tensor) -> None:
    for layer in layers:
        layer[:] = [tensor.index_select(0, rows) for tensor in layer]
