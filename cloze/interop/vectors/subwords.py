"""Composes words from the rows of their character n-grams, as fastText does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.hashed import ngram_rows

END_OF_LINE = "</s>"
_TOGETHER = 4096


@dataclass(frozen=True)
class Subwords:
    """The rows of hashed n-grams (buckets, D), perhaps mapped from a file, of `shortest` to `longest` characters.

    Bojanowski et al., 2017, §3.2; hashing and means as fastText's code has them: dictionary.cc `computeSubwords`,
    fasttext.cc `getWordVector`. `</s>` has no n-grams.
    Differs: fastText of before 2017 gave `</s>` n-grams, as gensim does; its files are read by the later rule.
    """

    rows: NDArray[np.float32]
    shortest: int
    longest: int

    def grams(self, word: str) -> list[int]:
        """The rows of a word's n-grams; one that occurs twice counts twice."""
        if word == END_OF_LINE:
            return []
        return ngram_rows(word, (self.shortest, self.longest), len(self.rows), 0)

    def unseen(self, word: str) -> NDArray[np.float32] | None:
        """The mean over the n-grams of a word that has no row of its own (D,); None if it is too short to have any."""
        grams = self.grams(word)
        return self.rows[grams].mean(0, dtype=np.float32) if grams else None

    def compose(self, words: Sequence[str], word_rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """For each word the mean over its own row (N, D) and its n-grams: (N, D)."""
        vectors = np.empty(word_rows.shape, np.float32)
        for start in range(0, len(words), _TOGETHER):
            word_grams = [self.grams(word) for word in words[start : start + _TOGETHER]]
            sizes = np.array([len(grams) for grams in word_grams])
            total = np.array(word_rows[start : start + len(word_grams)], np.float32)
            has = np.flatnonzero(sizes)
            if len(has):
                gathered = self.rows[np.concatenate([word_grams[i] for i in has])]
                total[has] += np.add.reduceat(gathered, np.concatenate(([0], np.cumsum(sizes[has])[:-1])), axis=0)
            vectors[start : start + len(word_grams)] = total / (1 + sizes)[:, None]
        return vectors
