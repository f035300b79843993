"""The n-grams of a text: of words, and of characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, pairwise

from cloze.text.characters import IDEOGRAPHS, UNSPACED, word_pattern
from cloze.text.running import is_segmented

LONGEST = 4000  # characters that are read of a text
_SAMPLE = 1000  # texts by which a corpus is judged
_WORD = word_pattern(alone=IDEOGRAPHS, joins="['’]")
_UNSPACED = re.compile(f"[{IDEOGRAPHS}{UNSPACED}]")
_SPACED_SIZES, _PLAIN_SIZES = range(2, 6), range(1, 4)


@dataclass(frozen=True)
class Cutter:
    """Cuts texts in lower case into n-grams. `spaced`: the script writes spaces between words.

    With spaces, n-grams of 2 to 5 characters are those of each word with a space on either side (scikit-learn's `char_wb`).
    Without, n-grams have 1 to 3 characters of running text, and n-grams of words would repeat them: there are none.
    """

    spaced: bool = True
    _known: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)  # the n-grams of words

    @classmethod
    def of(cls, texts: Iterable[str]) -> Cutter:
        """The cutter for texts like these: without spaces if most of their letters are of scripts that write none."""
        sample = [text[:LONGEST] for text in islice(texts, _SAMPLE)]
        letters = sum(sum(map(str.isalpha, text)) for text in sample)
        unspaced = sum(len(_UNSPACED.findall(text)) for text in sample if not is_segmented(text))
        return cls(spaced=2 * unspaced <= letters)

    def words(self, text: str) -> list[str]:
        """The words of a text and its pairs of neighbouring words; none for a script without spaces."""
        if not self.spaced:
            return []
        words: list[str] = _WORD.findall(text[:LONGEST].lower())
        return words + [f"{first} {second}" for first, second in pairwise(words)]

    def characters(self, text: str) -> list[str]:
        """The n-grams of characters of a text.

        >>> Cutter().characters("ab")
        [' a', 'ab', 'b ', ' ab', 'ab ', ' ab ']
        """
        lower = text[:LONGEST].lower()
        if not self.spaced:
            running = " ".join(lower.split())
            return [running[at : at + size] for size in _PLAIN_SIZES for at in range(len(running) - size + 1)]
        grams: list[str] = []
        for word in lower.split():
            if (word_grams := self._known.get(word)) is None:
                word_grams = self._known[word] = _of_word(word)
            grams += word_grams
        return grams


def _of_word(word: str) -> list[str]:
    padded = f" {word} "
    grams: list[str] = []
    for size in _SPACED_SIZES:
        grams += [padded[at : at + size] for at in range(max(len(padded) - size, 0) + 1)]
        if len(padded) <= size:  # longer n-grams of a short word would be the same
            break
    return grams
