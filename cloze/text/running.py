"""The words of running text, for models trained on texts given as words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloze.text.matching import Span, ideograph

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

#: Letters and digits, joined by an apostrophe, a point or a hyphen inside (don't, U.S, 3.5, well-known); or one mark.
_WORDS = re.compile(r"[^\W_]+(?:['’.\-][^\W_]+)*|[^\w\s]|_")
#: Kana, Thai, Lao, Myanmar, Khmer: scripts other than Chinese whose words have no spaces between them.
_UNSPACED = re.compile("[\u3040-\u30ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def word_spans(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Begin and end of each word of a text in characters.

    Words are cut at spaces and marks. An ideograph is a word of its own; runs of other scripts without spaces are cut where the
    tokenizer cuts them.
    """
    found: list[Span] = []
    for match in _WORDS.finditer(text):
        begin, end = match.span()
        word = match.group()
        if word.isascii():
            found.append((begin, end))
            continue
        cuts = {begin, end}
        for place, character in enumerate(word, begin):
            if ideograph(character):
                cuts |= {place, place + 1}
        if _UNSPACED.search(word):
            cuts |= {begin + int(place) for place in tokenizer.encode_spelled([word]).begin}
        ordered = sorted(cuts)
        found += zip(ordered, ordered[1:], strict=False)
    return found


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
