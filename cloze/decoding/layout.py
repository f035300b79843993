"""Lays out texts for a network: puts the template of `reading:` around one text or two."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import UserError
from cloze.exercises import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.inject import SentenceTree
from cloze.rng import Draw
from cloze.rows import Rows

Ids = NDArray[np.int32]
Marks = Mapping[str, NDArray[Any]]  # labelled layers of one text (T,) by the names of their fields, and `characters` (T, C)


@dataclass(frozen=True)
class Framed:
    """One example as the network reads it; all arrays have one value per token.

    `part` is 0 for tokens of the first text, 1 for those of the second and -1 for what the template inserts; `cut` counts
    the tokens that did not fit. `characters` (L, C) spell words that the vocabulary lacks, zeros elsewhere, for networks that
    read characters. `word` is the number of each token's word, -1 for what the template inserts; None unless
    `with_words` was called. `tree` says
    of each token whether it is text or a fact that was added to it; None: there are no facts. `marks` are the labelled layers of
    the texts by the names of their fields, 0 for what the template inserts. `picture` is the number of the picture that is shown
    next to the text, among those of the reader, and `picture_b` that of a second one, whose items follow; -1: none.
    """

    ids: Ids
    segments: Ids
    part: Ids
    cut: int = 0
    characters: NDArray[np.int16] | None = None
    word: NDArray[np.int64] | None = None
    tree: SentenceTree | None = None
    marks: Marks = field(default_factory=dict)
    picture: int = -1
    picture_b: int = -1

    def __len__(self) -> int:
        return len(self.ids)

    def spelled(self, start: int, stop: int) -> NDArray[np.int16] | None:
        """The characters of some tokens; None if all their words are known."""
        characters = None if self.characters is None else self.characters[start:stop]
        return characters if characters is not None and characters.any() else None

    def _like(self, row: Framed) -> Framed:
        """A row next to the pictures of this one."""
        return replace(row, picture=self.picture, picture_b=self.picture_b)

    def marked(self, texts: Sequence[Marks]) -> Framed:
        """The row with the labelled layers and the characters of its texts, whose ends may have been cut off."""
        marks: dict[str, NDArray[Any]] = {}
        for number, text in enumerate(texts):
            columns = np.flatnonzero(self.part == number)
            for name, values in text.items():
                layer = marks.setdefault(name, np.zeros((len(self), *values.shape[1:]), values.dtype))
                layer[columns] = values[: len(columns)]
        spelled = marks.pop("characters", self.characters)
        return replace(self, marks=marks, characters=spelled if spelled is not None and spelled.any() else None)

    def masked(self, columns: NDArray[np.int64], mask: int) -> Framed:
        """The same row with the token `mask` at some columns, which are then not spelled."""
        ids, spelled = self.ids.copy(), self.characters
        ids[columns] = mask
        if spelled is not None:
            spelled = spelled.copy()
            spelled[columns] = 0
        return replace(self, ids=ids, characters=spelled)

    def with_facts(self, ids: Ids, tree: SentenceTree) -> Framed:
        """The row with the tokens of facts; of these none belongs to a text."""
        branch = tree.branch > 0
        row = self.take(tree.column)
        spelled = None if row.characters is None else np.where(branch[:, None], np.int16(0), row.characters)
        word = None if row.word is None else np.where(branch, -1, row.word)
        part = np.where(branch, -1, row.part).astype(row.part.dtype)
        marks = {name: np.where(branch, values.dtype.type(0), values) for name, values in row.marks.items()}
        return self._like(Framed(ids, row.segments, part, self.cut, spelled, word, tree, marks))

    def columns_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the tokens at these columns stand now that the row has facts."""
        return columns if self.tree is None else np.flatnonzero(self.tree.branch == 0)[columns]

    def with_first(self, token: int) -> Framed:
        """The row with one more token in front of it, which belongs to no text."""
        spelled = None if self.characters is None else np.insert(self.characters, 0, 0, axis=0)
        ids, segments, part = (np.insert(x, 0, y) for x, y in ((self.ids, token), (self.segments, 0), (self.part, -1)))
        marks = {name: np.insert(values, 0, 0) for name, values in self.marks.items()}
        return self._like(Framed(ids, segments, part, self.cut, spelled, marks=marks))

    def take(self, columns: NDArray[np.int64]) -> Framed:
        """The row of some of its tokens, in that order; no token counts as cut."""
        spelled = None if self.characters is None else self.characters[columns]
        word = None if self.word is None else self.word[columns]
        marks = {name: values[columns] for name, values in self.marks.items()}
        ids, segments, part = (x[columns] for x in (self.ids, self.segments, self.part))
        return self._like(Framed(ids, segments, part, 0, spelled, word, marks=marks))

    def with_words(self, word_start: NDArray[np.bool_]) -> Framed:
        """The same with the words of the first text; `word_start` tells for each of its tokens whether a word begins there."""
        word = np.full(len(self), -1, np.int64)
        word[self.part == 0] = np.cumsum(word_start)
        return replace(self, word=word)

    def rest_of_word(self, column: int) -> NDArray[np.int64]:
        """The columns after this one that belong to the same word; none if words are not known."""
        if self.word is None:
            return np.zeros(0, np.int64)
        same = np.flatnonzero(self.word == self.word[column])
        return same[same > column]


def joined(rows: Sequence[Framed]) -> Framed:
    """Rows one after another as one row."""
    size = max((row.characters.shape[1] for row in rows if row.characters is not None), default=0)
    spelled = [np.zeros((len(row), size), np.int16) if row.characters is None else row.characters for row in rows]
    return Framed(
        _join([row.ids for row in rows]), _join([row.segments for row in rows]), _join([row.part for row in rows]),
        sum(row.cut for row in rows), np.concatenate(spelled) if size else None,
    )


class Layout:
    """A template with a tokenizer: `layout([a])` or `layout([a, b])` gives a `Framed`.

    The `frame` edit decides which inserted token belongs to which segment, as in pre-training. Unlike in that edit, an empty text
    keeps the tokens around it: an empty line becomes `[CLS] [SEP]`. `segments` are the segment ids of the texts, by default 0, 1,
    ….
    """

    def __init__(self, template: str, tokenizer: Any, segments: Sequence[int] = ()) -> None:
        frame = Frame(template, list(segments) or None, tokenizer=TokenFacts.of(tokenizer))
        self.template = template
        self.parts = len(frame.part_names)
        probe = np.arange(self.parts, dtype=np.int64)
        bounds = np.stack([probe, probe + 1], axis=1)[None]
        rows = Rows({
            "tokens": np.zeros((1, self.parts), np.int32),
            "length": np.array([self.parts], np.int32),
            "parts": bounds,
        })
        framed = frame(rows, Draw(np.zeros(1, np.uint64)))
        length = int(framed["length"][0])
        ids = np.asarray(framed["tokens"][0, :length], np.int32)
        self._segments = np.asarray(framed["segments"][0, :length], np.int32)
        self._holes = np.flatnonzero(~framed["special"][0, :length])
        edges = [0, *(self._holes + 1).tolist(), length + 1]
        self._between = [ids[a : b - 1] for a, b in zip(edges, edges[1:], strict=False)]
        self._between_segments = [self._segments[a : b - 1] for a, b in zip(edges, edges[1:], strict=False)]

    @property
    def opening(self) -> Ids:
        """The tokens before the first text."""
        return self._between[0]

    @property
    def closing(self) -> Ids:
        """The tokens after the last text."""
        return self._between[-1]

    def until_last(self, texts: Sequence[Ids], *, max_length: int | None = None) -> Framed:
        """Everything before the last text, which the network will generate; the longest of `texts` loses its end."""
        tail = len(self.closing)
        framed = self([*texts, np.zeros(0, np.int32)], max_length=None if max_length is None else max_length + tail)
        stop = len(framed) - tail
        return Framed(framed.ids[:stop], framed.segments[:stop], framed.part[:stop], framed.cut)

    @property
    def last_segment(self) -> int:
        """The segment of the last text."""
        return int(self._segments[self._holes[-1]])

    @property
    def added(self) -> int:
        """How many tokens the template inserts."""
        return sum(len(piece) for piece in self._between)

    def __call__(self, texts: Sequence[Ids], *, max_length: int | None = None) -> Framed:
        """Lay out one example; when it exceeds `max_length` tokens the longer text loses its end (ties: the second)."""
        if len(texts) != self.parts:
            raise UserError(f"the reading {self.template!r} takes {self.parts} texts, got {len(texts)}.")
        parts = list(texts)
        if max_length is not None:
            if max_length <= self.added:
                raise UserError(
                    f"a length of {max_length} leaves no room for text: {self.template!r} itself takes {self.added} tokens."
                )
            parts = [text[:n] for text, n in zip(texts, _shares([len(t) for t in texts], max_length - self.added), strict=True)]
        ids, segments, part = [self._between[0]], [self._between_segments[0]], [np.full(len(self._between[0]), -1)]
        for number, text in enumerate(parts):
            ids += [text, self._between[number + 1]]
            segments += [np.full(len(text), self._segments[self._holes[number]]), self._between_segments[number + 1]]
            part += [np.full(len(text), number), np.full(len(self._between[number + 1]), -1)]
        cut = sum(len(t) for t in texts) - sum(len(t) for t in parts)
        return Framed(_join(ids), _join(segments), _join(part), cut)


def _join(pieces: Sequence[NDArray[Any]]) -> Ids:
    return np.concatenate(pieces).astype(np.int32, copy=False)


def _shares(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """How many tokens of each text are kept: the longest is cut first, in a tie the later one."""
    if sum(lengths) <= max_tokens:
        return list(lengths)
    level = bisect_right(range(max_tokens + 1), max_tokens, key=lambda most: sum(min(n, most) for n in lengths)) - 1
    counts = [min(n, level) for n in lengths]
    spare = max_tokens - sum(counts)
    for number, n in enumerate(lengths):
        if spare > 0 and n > counts[number]:
            counts[number] += 1
            spare -= 1
    return counts
