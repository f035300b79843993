"""Ids of distinct chunks: plain words by our own greedy match, everything else by the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.text.tokenizer import Tokenizer

Int64 = NDArray[np.int64]


class ChunkMatcher:
    """Gives the marked ids of many chunks: 2 x id, plus 1 where a word begins.

    Most new chunks need no normaliser and no pre-tokenizer. For WordPiece these are ASCII letters and digits, or one ASCII mark:
    they are matched here, longest piece first, with [UNK] for the word if no piece fits (Devlin et al. 2019; the
    `WordpieceTokenizer` of google-research/bert), six times faster than `tokenizers`. For byte-level BPE, ASCII letters or
    digits after at most one space are one word and go to the bare model. For whole words, it is ASCII without control
    characters, unless it spells a special token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._plain_word: Callable[[bytes], list[int] | None] = _strange
        if tokenizer.kind == "wordpiece":
            self._plain_word = _GreedyMatch(json.loads(tokenizer.description)["model"], tokenizer.role("[UNK]"))
        elif tokenizer.kind == "byte_bpe":
            self._plain_word = _BareModel(tokenizer.bare_model())
        elif tokenizer.kind == "words":
            self._plain_word = _WholeWord(tokenizer)

    def match(self, chunks: list[bytes]) -> tuple[NDArray[np.int32], Int64]:
        """Marked ids of all chunks in one array, and the number per chunk (n,)."""
        encoded = list(map(self._plain_word, chunks))
        strange = [i for i, ids in enumerate(encoded) if ids is None]
        if len(strange) == len(chunks):
            return self._ask(chunks)
        if strange:
            marked, counts = self._ask([chunks[i] for i in strange])
            bounds = [0, *np.cumsum(counts).tolist()]
            flat = marked.tolist()
            for i, begin, end in zip(strange, bounds[:-1], bounds[1:], strict=True):
                encoded[i] = flat[begin:end]
        lists = [ids or [] for ids in encoded]
        counts = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        return np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(counts.sum())), counts

    def _ask(self, chunks: list[bytes]) -> tuple[NDArray[np.int32], Int64]:
        ids, starts, offsets = self._tokenizer.encode_flat(list(map(bytes.decode, chunks, repeat("utf-8"))))
        return 2 * ids + starts, np.diff(offsets)


def _strange(chunk: bytes) -> list[int] | None:
    return None


class _BareModel:
    """One word of ASCII letters or digits through byte-level BPE."""

    def __init__(self, model: Any) -> None:
        self._tokenize = model.tokenize

    def __call__(self, chunk: bytes) -> list[int] | None:
        if not (chunk.isalpha() or chunk.isdigit()):
            rest = chunk[1:]
            if chunk[:1] != b" " or not (rest.isalpha() or rest.isdigit()):
                return None
            chunk = b"\xc4\xa0" + rest  # a space in the byte alphabet
        ids = [2 * token.id for token in self._tokenize(chunk.decode())]
        if ids:
            ids[0] += 1
        return ids


class _WholeWord:
    """One ASCII chunk, already lower-cased if the tokenizer does that, that is a word or unknown."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._special = set(tokenizer.special_ids.tolist())
        self._id = tokenizer.id  # no dictionary of our own, which would take a hundred bytes a word
        self._apart = set(tokenizer.literals.values())
        self._unknown = 2 * tokenizer.role("[UNK]") + 1

    def __call__(self, chunk: bytes) -> list[int] | None:
        word = chunk.decode()
        if not word.isascii() or not word.isprintable() or word in self._apart:
            return None
        piece_id = self._id(word)
        return [self._unknown if piece_id is None or piece_id in self._special else 2 * piece_id + 1]


class _GreedyMatch:
    """One ASCII word or mark, already lower-cased if the tokenizer does that, through WordPiece."""

    def __init__(self, model: Mapping[str, Any], unknown: int) -> None:
        prefix = model["continuing_subword_prefix"]
        plain = {piece: i for piece, i in model["vocab"].items() if piece.isascii()}
        self._unknown = [2 * unknown + 1]
        self._longest_word = int(model["max_input_chars_per_word"])
        self._first = {p.encode(): 2 * i + 1 for p, i in plain.items()}
        self._inside = {p[len(prefix) :].encode(): 2 * i for p, i in plain.items() if p.startswith(prefix)}
        self._longest = max(map(len, [b" ", *self._first, *self._inside]))

    def __call__(self, word: bytes) -> list[int] | None:
        if not word.isalnum() and not (len(word) == 1 and word.isascii() and b"!" <= word <= b"~"):
            return None
        word_id = self._first.get(word)
        if word_id is not None:
            return [word_id]
        size = len(word)
        if size > self._longest_word:
            return self._unknown
        ids: list[int] = []
        begin = 0
        table = self._first
        while begin < size:
            for end in range(min(size, begin + self._longest), begin, -1):
                piece_id = table.get(word[begin:end])
                if piece_id is not None:
                    ids.append(piece_id)
                    break
            else:
                return self._unknown
            begin = end
            table = self._inside
        return ids
