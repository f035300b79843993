"""How well a vocabulary fits a text: tokens per word, and which words would save most tokens if they were pieces."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from cloze.errors import CorpusError
from cloze.text.characters import extends
from cloze.text.tokenizer import Tokenizer
from cloze.text.vocabularies.merges import add_merges

_TOGETHER = 1000  # texts that are encoded at once
_ABOVE = 0.01  # how much likelier than the best path of its pieces a new piece of a unigram model is


class CandidateWord(NamedTuple):
    """A word that the vocabulary does not have as one piece: how often it occurs, its pieces, and the tokens that it would save.

    A word with unknown characters counts as one token saved for each occurrence.
    """

    word: str
    times: int
    pieces: int

    @property
    def saved(self) -> int:
        """Tokens of the text that the word would save as a single piece."""
        return self.times * max(self.pieces - 1, 1)


@dataclass
class Fit:
    """A text in the tokens of a vocabulary: bytes, words, tokens, unknown tokens, and words that are several pieces or unknown.

    >>> Fit(bytes=60, words=10, tokens=15).fertility
    1.5
    """

    bytes: int = 0
    words: int = 0
    tokens: int = 0
    unknown: int = 0
    cut: Counter[str] = field(default_factory=Counter)
    pieces: dict[str, int] = field(default_factory=dict)

    @property
    def fertility(self) -> float:
        """Tokens per word (Rust et al., 2021, "How Good is Your Tokenizer?", §3)."""
        return self.tokens / max(self.words, 1)

    @property
    def bytes_per_token(self) -> float:
        """How much of the text a token stands for."""
        return self.bytes / max(self.tokens, 1)

    def candidates(self, *, min_count: int = 2) -> list[CandidateWord]:
        """Words of letters that are not one piece, those that save most first; equal ones in the order of their letters."""
        candidates = [
            CandidateWord(word, count, self.pieces[word]) for word, count in self.cut.items()
            if count >= min_count and any(map(str.isalpha, word)) and _is_word(word)
        ]
        return sorted(candidates, key=lambda candidate: (-candidate.saved, candidate.word))


def _is_word(word: str) -> bool:
    return all(character.isalnum() or character in "-'" or extends(character) for character in word)


def fit_of(tokenizer: Tokenizer, texts: Iterable[str], *, counts_words: bool = True) -> Fit:
    """Read texts with a tokenizer and count; without `counts_words` the words that are cut are left out."""
    fit, remaining = Fit(), iter(texts)
    unknown = tokenizer.roles.get("[UNK]", -1)
    while block := list(islice(remaining, _TOGETHER)):
        spelled = tokenizer.encode_spelled(block)
        fit.bytes += sum(len(text.encode("utf-8", "replace")) for text in block)
        fit.tokens += len(spelled.ids)
        fit.words += int(spelled.word_start.sum())
        fit.unknown += int((spelled.ids == unknown).sum())
        if counts_words:
            _count_cut(fit, tokenizer, block, spelled, unknown)
    return fit


def _count_cut(fit: Fit, tokenizer: Tokenizer, texts: Sequence[str], encoding: Any, unknown: int) -> None:
    """Add the words of several pieces, and unknown ones, as the tokenizer normalises them."""
    first = np.flatnonzero(encoding.word_start)
    sizes = np.diff(first, append=len(encoding.ids))
    several = np.flatnonzero((sizes > 1) | (encoding.ids[first] == unknown))
    whose = np.searchsorted(encoding.offsets, first[several], side="right") - 1
    for number, text in zip(several.tolist(), whose.tolist(), strict=True):
        begin, size = int(first[number]), int(sizes[number])
        word = tokenizer.normalised(texts[text][int(encoding.begin[begin]) : int(encoding.end[begin + size - 1])]).strip(" ▁")
        fit.cut[word] += 1
        fit.pieces[word] = size


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The same tokenizer with further words as single pieces, whose ids follow the others.

    In a vocabulary of byte pairs (byte_bpe) a word is added as it stands after a space, and its beginnings get ids, too
    (`merges.py`). Raises a `CorpusError` for any other kind of tokenizer.
    """
    data = json.loads(tokenizer.description)
    vocabulary = data["model"].get("vocab")
    if tokenizer.kind in ("wordpiece", "words"):
        vocabulary.update({word: tokenizer.size + number for number, word in enumerate(words)})
    elif tokenizer.kind == "unigram" and len(vocabulary) == tokenizer.size:
        scores = {piece: float(score) for piece, score in vocabulary}
        for word, pieces in zip(words, tokenizer.encode_batch(words), strict=True):
            score = sum(scores[tokenizer.piece(int(number))] for number in pieces.ids)
            vocabulary.append([f"▁{word}", score + _ABOVE])
    elif tokenizer.kind == "byte_bpe":
        read = tokenizer.encode_batch([f" {word}" for word in words])
        add_merges(
            data["model"], [[tokenizer.piece(int(number)) for number in encoding.ids] for encoding in read], size=tokenizer.size
        )
    else:
        raise CorpusError(
            f"the tokenizer is of kind {tokenizer.kind}; words can be added to a wordpiece, unigram or byte_bpe vocabulary.\n"
            "  Train a vocabulary on the text instead (`cloze corpus build TEXT --recipe NAME --out STORE`), and keep the rows\n"
            "  of common pieces: `change: [vocabulary: {new: pieces}]`."
        )
    return tokenizer.described_by(json.dumps(data, ensure_ascii=False))
