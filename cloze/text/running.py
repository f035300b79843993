"""The words of running text, for models trained on texts given as words."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
