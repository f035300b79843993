"""Marks around the spans of a text: tokens of the vocabulary, such as the # and $ of ERNIE (Zhang et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

Int64 = NDArray[np.int64]


class SpanMarks(NamedTuple):
    """The marks of one text: `ids` (2K,) of the tokens that stand before the tokens `places` (2K,), from the first to the last,
    and the first and the last token of each span behind them, `spans` (K, 2)."""

    places: Int64
    ids: Int64
    spans: Int64


def mark_ids(tokenizer: Tokenizer, marks: Sequence[str]) -> Int64:
    """The token of each mark; a `TaskError` for a mark that is not one token of the vocabulary."""
    tokens = [tokenizer.encode(mark).ids for mark in marks]
    for mark, ids in zip(marks, tokens, strict=True):
        if len(ids) != 1 or ids[0] == tokenizer.roles.get("[UNK]"):
            raise TaskError(
                f"class_of_spans: the mark {mark!r} is not one token of this vocabulary. Name others, such as "
                "--set 'corpus.answer.class_of_spans.marks=[\"(\", \"*\"]', or tune without marks: --recipe span_classification."
            )
    return np.array([ids[0] for ids in tokens], np.int64)


def marks_around(spans: Int64, ids: Int64) -> SpanMarks:
    """The marks of spans (K, 2), first and last tokens: `ids` (K,) before and after each. Where two meet, spans end first, and
    the longer span is outside."""
    first, last = spans.T
    places = np.concatenate([first, last + 1])
    opens = np.repeat([True, False], len(spans))
    order = np.lexsort((np.concatenate([-last, -first]), opens, places))
    moved = spans + (places <= spans[..., None]).sum(-1)
    return SpanMarks(places[order], np.concatenate([ids, ids])[order], moved)


def with_marks(values: NDArray[Any], layer: NDArray[Any], places: Int64) -> NDArray[Any]:
    """The `values` (T,) of a `layer` (T,) of units for the tokens with marks at `places`; a mark inside a unit belongs to it."""
    inside = np.append(layer, 0)[places] > 1
    return np.insert(values, places, np.where(inside, np.append(values, 0)[places], 0))
