"""Networks as writers: what was read is kept in a cache, which can be reordered for beam search."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.reader import Reader


class Continuing:
    """A left-to-right network that continues a text. Special tokens other than the end are never written."""

    def __init__(self, reader: Reader, head: Any, banned: Tensor | None = None) -> None:
        self.reader, self.head, self.banned = reader, head, banned
        self.cache = reader.new_cache()
        self.read = 0  # tokens that the cache holds; a prompt in it does not count

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after tokens (R, L)."""
        new = tokens[:, self.read :]
        batch = self.reader.continued(new, self.read)
        self.read = tokens.shape[1]
        states = self.reader.states(batch, self.head.reads, cache=self.cache)
        positions = torch.arange(1, len(new) + 1, device=new.device) * new.shape[1] - 1
        scores = self.reader.token_scores(self.head, states, batch, positions)
        return scores if self.banned is None else scores.index_fill(1, self.banned, -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        _select(self.cache.layers, rows)

    reorder = select


class Filling(Continuing):
    """A network that fills gaps writes a second text behind the first: a [MASK] where the next token shall stand, asked there,
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
        for kept in self.cache.layers:
            kept[:] = [tensor[:, :, :-1] for tensor in kept]  # the gap was never part of the text
        positions = torch.arange(1, len(new) + 1, device=new.device) * new.shape[1] - 1
        scores = reader.token_scores(self.head, states, batch, positions)
        return scores if self.banned is None else scores.index_fill(1, self.banned, -torch.inf)


class Answering:
    """An encoder-decoder that writes from the source `batch`, which the encoder reads once. Any token may be written."""

    def __init__(self, reader: Reader, head: Any, batch: Batch) -> None:
        self.reader, self.head, self.batch = reader, head, batch
        self.cache = reader.network.cache()

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after the decoder's tokens (R, L)."""
        new = tokens[:, self.cache.length :]
        batch = Batch({**self.batch, "decoder.tokens": new}, checked=True)
        state = self.reader.network.writes
        states = self.reader.states(batch, (state,), cache=self.cache)
        positions = torch.arange(1, len(new) + 1, device=new.device) * new.shape[1] - 1
        read = {self.head.reads[0]: states[state]}
        return self.reader.token_scores(self.head, read, batch, positions)

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


def _select(layers: list[list[Tensor]], rows: Tensor) -> None:
    for kept in layers:
        kept[:] = [tensor.index_select(0, rows) for tensor in kept]
