"""Vectors of words at every layer: the mean over the pieces of each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.text.characters import IDEOGRAPHS, word_pattern

Vectors = NDArray[np.float32]
Spans = NDArray[np.int64]  # (K, 2): characters of a text or columns of a row, from and up to
#: A word: an ideograph, or letters and digits; punctuation is no word.
_WORD = word_pattern(alone=IDEOGRAPHS, joins="_", symbols=False)


class WordRow(NamedTuple):
    """A text as a row, and the columns (K, 2) of each of its words, from and up to; -1 where a word was not read."""

    row: Framed
    columns: Spans


def words_of(text: str) -> Spans:
    """The characters (K, 2) of the words of a running text; punctuation is left out."""
    return np.array([match.span() for match in _WORD.finditer(text)], np.int64).reshape(-1, 2)


def join_words(words: Sequence[str]) -> tuple[str, Spans]:
    """Words as a text with single spaces, and their characters (K, 2)."""
    sizes = np.array([len(word) for word in words], np.int64)
    ends = np.cumsum(sizes + 1) - 1
    return " ".join(words), np.stack([ends - sizes, ends], axis=1).reshape(-1, 2)


def word_rows(reader: Reader, texts: Sequence[str], spans: Sequence[Spans], *, length: int | None = None) -> list[WordRow]:
    """Texts as rows with the tokens of their words, which are given by `spans` of characters.

    A word is not read if the tokenizer leaves no token of it, or if it stands behind what the network can read.
    """
    rows = reader.encode(texts, max_length=length)
    spelled = reader.tokenizer.encode_spelled(list(texts))
    rows_of_words = []
    for number, (row, characters) in enumerate(zip(rows, spans, strict=True)):
        part = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
        begin, end = np.asarray(spelled.begin[part], np.int64), np.asarray(spelled.end[part], np.int64)
        first = np.searchsorted(end, characters[:, 0], side="right")  # tokens that end after the beginning of the word
        last = np.searchsorted(begin, characters[:, 1], side="left")  # and begin before its end
        places = np.flatnonzero(row.part == 0)
        last = np.minimum(last, len(places))
        read = first < last
        columns = np.full((len(characters), 2), -1, np.int64)
        columns[read, 0], columns[read, 1] = places[first[read]], places[last[read] - 1] + 1
        rows_of_words.append(WordRow(row, columns))
    return rows_of_words


def row_states(reader: Reader, rows: Sequence[Framed], *, size: int = 32) -> Iterator[tuple[int, Vectors]]:
    """The number of each row and the states (N + 1, L, D) of its tokens, long rows first; see `word_states`."""
    if "layers" not in reader.network.gives:
        raise UserError("this network gives only its top layer: it has no states by layer.")
    for index in reader.batches([len(row) for row in rows], rows=size):
        with torch.inference_mode():
            layers: Any = reader.states(reader.batch([rows[i] for i in index]), {"layers"})["layers"].float().cpu()
        for position, number in enumerate(index):
            yield int(number), layers[:, position, : len(rows[number])].numpy()


def word_states(reader: Reader, rows: Sequence[WordRow], *, size: int = 32) -> Iterator[tuple[int, Vectors]]:
    """The number of each text and its words' vectors (N + 1, K, D), long texts first; zeros for words that were not read.

    The first layer is the input, and the last is what heads read (`Network.finish`, such as a final norm); the layers between are
    as the next layer reads them. A network without the state `layers` is a `UserError`.
    """
    for number, states in row_states(reader, [row.row for row in rows], size=size):
        yield number, _means(states, rows[number].columns)


def _means(states: Vectors, columns: Spans) -> Vectors:
    """The means (N + 1, K, D) of the states (N + 1, L, D) over each word's columns; zeros for words that were not read."""
    sums = np.pad(states.cumsum(1, dtype=np.float64), ((0, 0), (1, 0), (0, 0)))
    begin, end = np.maximum(columns.T, 0)
    means = (sums[:, end] - sums[:, begin]) / np.maximum(end - begin, 1)[:, None]
    return np.where((columns[:, 0] >= 0)[:, None], means, 0.0).astype(np.float32)
