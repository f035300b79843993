"""The words of running text, for models trained on texts given as words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cloze.text.characters import EXTENDING, IDEOGRAPHS, UNSPACED, extends, ideograph, word_pattern
from cloze.text.matching import Span

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_LETTER = rf"[^\W\d_](?:(?=[^\x00-\xac])[{EXTENDING}]++)?+"
#: Words that are not simply cut at symbols, as treebanks of many languages have them (reproductions/words.md).
_FIRST = "|".join([
    rf"(?:(?:{_LETTER}){{1,2}}\.){{2,}}(?![^\W_])",  # abbreviations with their last point: U.S., e.g., т.е.
    # French and Italian elisions before a vowel: l'|homme, qu'|il, dell'|arte
    r"(?i:(?:[cdjlmnst]|(?:lors|puis|jus|quoi)?qu|(?:[dnsc]?[aeou]|que|be)ll|un)['’](?=[aeiouyhâàäéèêëîïíôòóœæ]))",
    r"([.!?*`'\-])\1++",  # ..., --, !!!
])
_JOINS = "(?:" + "|".join([
    r"['’.\-]",  # don't, 3.5, well-known
    r"(?<=\d)[,٫٬](?=\d)",  # 1,000
    r'(?<=[א-ת])["״](?=[א-ת](?![א-ת]))',  # Hebrew abbreviations
    r"(?<=[^\W\d_]):(?=[^\W\d_])",  # Finnish and Swedish endings of abbreviations: EU:n
]) + ")"  # fmt: skip
_WORDS = word_pattern(alone=IDEOGRAPHS, first=_FIRST, joins=_JOINS)
_SEGMENTED = word_pattern(first=_FIRST, joins=_JOINS)
_APART = re.compile(rf"[{IDEOGRAPHS}]\s+[{IDEOGRAPHS}]")
_RUN = re.compile(f"[{IDEOGRAPHS}]+")
_ADJACENT = re.compile(f"[{IDEOGRAPHS}]{{2}}")
_CHARACTERS = 1.2  # ideographs of a word, on average, where the words of a file are characters: names may be whole
_LONGEST = 3  # ideographs between two spaces, on average: words have fewer, clauses more
_UNSPACED = re.compile(f"[{UNSPACED}]")


def word_spans(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Begin and end of each word of a text in characters.

    Words are cut at spaces and symbols. An ideograph is a word of its own, unless the text is segmented (`is_segmented`). Runs of
    other scripts without spaces are cut where the tokenizer cuts them, but never before a combining mark.
    """
    spans: list[Span] = []
    for match in (_SEGMENTED if is_segmented(text) else _WORDS).finditer(text):
        begin, end = match.span()
        word = match.group()
        if word.isascii() or not _UNSPACED.search(word):
            spans.append((begin, end))
            continue
        cuts = {begin + int(offset) for offset in tokenizer.encode_spelled([word]).begin}
        ordered = sorted({begin, end} | {cut for cut in cuts if begin < cut < end and not extends(text[cut])})
        spans += zip(ordered, ordered[1:], strict=False)
    return spans


def is_segmented(text: str) -> bool:
    """Whether the spaces of a Chinese text are the boundaries of its words: they stand between ideographs, in short runs.

    >>> is_segmented("我 爱 北京 。"), is_segmented("今天天气很好 我们出去玩")
    (True, False)
    """
    if not _APART.search(text):
        return False
    runs = _RUN.findall(text)
    return sum(map(len, runs)) <= _LONGEST * len(runs)


class IdeographsOfWords:
    """Counts how many ideographs words have that are written in them: one, if characters are the words of a file."""

    def __init__(self) -> None:
        self.words, self.ideographs = 0, 0

    def add(self, words: Iterable[str]) -> None:
        """Count further words."""
        sizes = [len(word) for word in words if _RUN.fullmatch(word)]
        self.words, self.ideographs = self.words + len(sizes), self.ideographs + sum(sizes)

    @property
    def mean(self) -> float | None:
        """The mean number of a word; None if no word is written in ideographs."""
        return round(self.ideographs / self.words, 2) if self.words else None


def remark_on_units(texts: Sequence[str | None], ideographs: float | None) -> str | None:
    """A sentence on texts whose ideographs are taken for words by a model whose words had `ideographs` on average; None without
    such texts. A text that was given as words is None.

    >>> print(remark_on_units(["我爱北京", "我 爱 北京", None], 1.6))
    each Chinese character of 1 of 3 texts is taken for a word, and words of training have 1.6: put spaces between words
    """
    if ideographs is None or ideographs < _CHARACTERS:
        return None
    cut = sum(text is not None and bool(_ADJACENT.search(text)) and not is_segmented(text) for text in texts)
    return (
        f"each Chinese character of {cut} of {len(texts)} texts is taken for a word, and words of training have {ideographs:g}: "
        "put spaces between words"
    ) if cut else None


def as_text(words: Sequence[str]) -> tuple[str, list[Span]]:
    """Words joined to a text, with the offset of each: spaces between them, but none between ideographs."""
    parts: list[str] = []
    places: list[Span] = []
    at = 0
    for word in words:
        if parts and not (ideograph(parts[-1][-1]) and ideograph(word[0])):
            parts.append(" ")
            at += 1
        parts.append(word)
        places.append((at, at + len(word)))
        at += len(word)
    return "".join(parts), places
