"""Where words may end, by the ids of tokens alone."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.text.characters import extends, ideograph
from cloze.text.tokenizer import Tokenizer

_SPACES = ("\u0120", "\u2581", " ")  # how byte-level BPE and Unigram spell the space before a word


class Edges(NamedTuple):
    """For each id of a vocabulary (V,): whether it may continue the word of the token before it, and whether the token after it
    may continue its own word."""

    continues: NDArray[np.bool_]
    goes_on: NDArray[np.bool_]

    def cut(self, before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether a border between tokens `before` and `after` would cut a word."""
        return np.asarray(self.goes_on[before] & self.continues[after])


def word_edges(tokenizer: Tokenizer) -> Edges:
    """The edges of a tokenizer's pieces. An ideograph is a word by itself."""
    prefix = suffix = ""
    if tokenizer.kind == "wordpiece":
        prefix = json.loads(tokenizer.description)["model"].get("continuing_subword_prefix", "##")
    elif tokenizer.kind == "bpe":
        suffix = json.loads(tokenizer.description)["model"]["end_of_word_suffix"]
    continues, goes_on = np.zeros((2, tokenizer.size), np.bool_)
    if tokenizer.kind == "words":
        return Edges(continues, goes_on)
    for number, piece in enumerate(tokenizer.spellings):
        if prefix:
            continues[number], goes_on[number] = piece.startswith(prefix), True
        elif piece:
            text = piece.removesuffix(suffix) if suffix else piece
            continues[number] = _of_word(text[:1])
            goes_on[number] = _of_word(text[-1:]) and text == piece
    continues[tokenizer.special_ids] = goes_on[tokenizer.special_ids] = False
    return Edges(continues, goes_on)


def _of_word(character: str) -> bool:
    return character not in _SPACES and (character.isalnum() or extends(character)) and not ideograph(character)
