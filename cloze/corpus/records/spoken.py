"""Texts that are heard: a token for each word that is said, in the place of which a network reads the word's recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cloze.corpus.items.recordings import spoken_words

if TYPE_CHECKING:
    from cloze.text.tokenizer import Spelled, Tokenizer


def spell_spoken(tokenizer: Tokenizer, texts: Sequence[str], *, spoken: Sequence[bool]) -> Spelled:
    """The tokens of texts; of those that are `spoken` a token for each word of `spoken_words`, the word's first."""
    spelled = tokenizer.encode_spelled(texts)
    bounds, unknown = spelled.offsets.tolist(), tokenizer.roles.get("[UNK]", 0)
    pieces = []
    for text, is_spoken, low, high in zip(texts, spoken, bounds, bounds[1:], strict=False):
        span = slice(low, high)
        ids, begin, end, word_start = spelled.ids[span], spelled.begin[span], spelled.end[span], spelled.word_start[span]
        if is_spoken:
            words = np.array(spoken_words(text), np.int64).reshape(-1, 2)
            first = np.searchsorted(end, words[:, 0], side="right")  # the first token that ends behind the word's beginning
            has_token = np.append(begin, np.iinfo(np.int64).max)[first] < words[:, 1]
            ids = np.where(has_token, np.append(ids, unknown)[first], unknown).astype(np.int32)
            begin, end, word_start = words[:, 0], words[:, 1], np.ones(len(words), np.bool_)
        pieces.append((ids, word_start, begin, end))
    if not pieces:
        return spelled
    ids, word_start, begin, end = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return spelled._replace(
        ids=ids, word_start=word_start, begin=begin, end=end, offsets=np.cumsum([0, *(len(piece[0]) for piece in pieces)])
    )
