"""What a tokenizer's normalisation costs a text: letters that lose a mark, and words that become one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from cloze.text.characters import EXTENDING, IDEOGRAPHS, word_pattern

SAMPLE = 300_000  # characters of a text that are looked at
SIZEABLE = 0.005  # the share of letters from which a cost is worth a word: English text with foreign names stays far below
COVERAGE = 0.999  # the share of the characters of a text that should have an id
_WORDS = word_pattern(alone=IDEOGRAPHS, symbols=False)
_MARKED = re.compile(rf"[^\W_](?=[^\x00-\xac])[{EXTENDING}]++")


class NormaliserCosts(NamedTuple):
    """The share of letters that lose a mark, the share of different words, case aside, that become the same as another, the
    share of Turkish i with and without a dot (İ, ı), and the most frequent word that loses a mark, before and after."""

    stripped: float
    merged: float
    dotted: float
    example: tuple[str, str] = ("", "")

    @property
    def sizeable(self) -> bool:
        """Whether the marks are a part of how the text is written."""
        return self.stripped >= SIZEABLE

    def __str__(self) -> str:
        """In words.

        >>> str(NormaliserCosts(0.021, 0.008, 0.0, ("schön", "schon")))
        '2.1 % of the letters lose a mark (schön → schon), and 0.8 % of the different words become the same as another'
        """
        before, after = self.example
        return (
            f"{100 * self.stripped:.1f} % of the letters lose a mark ({before} → {after}), and {100 * self.merged:.1f} % of the "
            "different words become the same as another"
        )


def costs_of(text: str, normalise: Callable[[str], str]) -> NormaliserCosts:
    """What `normalise` costs a text."""
    letters = stripped = 0
    spellings: dict[str, set[str]] = {}
    example, most = ("", ""), 0
    for word, count in Counter(match.group() for match in _WORDS.finditer(text)).items():
        letters += count * sum(map(str.isalpha, word))
        plain = word.lower() if word.isascii() else normalise(word).strip()
        spellings.setdefault(plain.lower(), set()).add(unicodedata.normalize("NFC", word.lower()))
        lost = 0 if word.isascii() else max(_marked(word) - _marked(plain), 0)
        stripped += count * lost
        if lost and count > most:
            example, most = (word, plain), count
    different = sum(map(len, spellings.values()))
    merged = sum(len(same) for same in spellings.values() if len(same) > 1)
    dotted = text.count("ı") + text.count("İ")
    return NormaliserCosts(stripped / max(letters, 1), merged / max(different, 1), dotted / max(letters, 1), example)


def _marked(word: str) -> int:
    """How many letters of a word have a mark."""
    return len(_MARKED.findall(unicodedata.normalize("NFD", word)))


def covering(text: str, normalise: Callable[[str], str], share: float = COVERAGE) -> int:
    """How many different characters make up a share of a normalised text, the most frequent first.

    >>> covering("aaaaaaaab", str, 0.8), covering("aaaaaaaab", str, 1.0)
    (1, 2)
    """
    counts = sorted(Counter("".join(normalise(text).split())).values(), reverse=True)
    least, reached = share * sum(counts), 0
    for number, count in enumerate(counts, 1):
        reached += count
        if reached >= least:
            return number
    return 0
