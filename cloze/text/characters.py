"""What a word of running text is: the classes of characters, and the pattern that every part cuts words with."""

from __future__ import annotations

import re
import unicodedata

#: Classes of characters, as they stand between the brackets of a pattern. Ideographs may form words without spaces around them.
IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: Kana, Thai, Lao, Myanmar, Khmer, the Tai scripts, Javanese and Balinese: their words have no spaces between them, either.
UNSPACED = (
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaadf\u1780-\u17ff\u1950-\u19df"
    "\u1a20-\u1aaf\ua980-\ua9df\u1b00-\u1b7f"
)
#: Characters that are neither seen nor a part of a word: zero-width spaces and the controls of writing direction.
INVISIBLE = "\u200b\u200e\u200f\u061c\u202a-\u202e\u2061-\u206f\ufeff"

_SPANS = (  # of code points in which marks are looked for: no later plane has any but the variation selectors
    (0x300, 0x1F000),
    (0xE0100, 0xE01F0),
)
#: Soft hyphens, joiners, the modifiers of emoji (skin tones, tags), the Armenian signs that stand on a letter (ի՞նչ), and the
#: format controls of Mongolian and two other scripts.
_OTHER = "\u00ad\u055b\u055c\u055e\u200c\u200d\u2060\u180e"
_OTHER += "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U00013430-\U0001343f\U0001bca0-\U0001bca3"


def _marks() -> str:
    """The class of Unicode's category M: combining marks, vowel signs, variation selectors."""
    ranges: list[list[int]] = []
    for begin, end in _SPANS:
        for point in range(begin, end):
            if unicodedata.category(chr(point))[0] != "M":
                continue
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1][1] = point
            else:
                ranges.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


#: Characters that belong to the character before them and never begin a word.
EXTENDING = _marks() + _OTHER
_EXTENDS = re.compile(f"[{EXTENDING}]").match
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]").match
_EXTENSION = rf"(?=[^\x00-\xac])[{EXTENDING}]++"  # most characters fail the first test, which is cheaper
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
_SYMBOL = rf"[^\w\s{INVISIBLE}](?:{_EXTENSION}(?:(?<=\u200d)[^\w\s\x00-\x7f])?+)*+"


def word_pattern(*, alone: str = "", first: str = "", joins: str = "", symbols: bool = True) -> re.Pattern[str]:
    """The pattern of a word of running text: a run of letters and digits with their marks, or one symbol.

    alone: a class of letters each of which is a word by itself.
    first: a pattern of words that are cut in another way than the rest of this would cut them.
    joins: a pattern of what keeps two runs of letters in one word.
    symbols: whether symbols are words; an emoji or a flag is one word, however many characters it has.
    """
    letter = rf"[^\W_{alone}]"
    # Nothing continues a keycap: each is a word.
    run = rf"{letter}++(?:{_EXTENSION}(?:(?<!\u20e3){letter}++)?+)*+"
    word = rf"{run}(?:{joins}{run})*+" if joins else run
    single = rf"[{alone}](?:{_EXTENSION})?+" if alone else ""
    symbol_patterns = [_FLAG, _SYMBOL, rf"_(?:{_EXTENSION})?+"] if symbols else []
    return re.compile("|".join(filter(None, [first, word, single, *symbol_patterns])))


def ideograph(character: str) -> bool:
    """Whether a character is a CJK ideograph, which may form words without spaces around them."""
    return character >= "\u3400" and _IDEOGRAPH(character) is not None


def extends(character: str) -> bool:
    """Whether a character belongs to the one before it: a combining mark, a joiner, a variation selector, a soft hyphen."""
    return character >= "\u00ad" and _EXTENDS(character) is not None


def alphabetic(word: str) -> bool:
    """Whether a word has letters and their marks only.

    >>> alphabetic("हिन्दी"), alphabetic("x2")
    (True, False)
    """
    return word.isalpha() or (word[:1].isalpha() and all(character.isalpha() or extends(character) for character in word))


def inside_run(text: str, position: int) -> bool:
    """Whether a boundary at `position` would cut a run of letters or digits (not ideographs), or a character from its marks."""
    if not 0 < position < len(text):
        return False
    if extends(text[position]):
        return not text[position - 1].isspace()
    base = position - 1
    while base > 0 and extends(text[base]):
        base -= 1
    before, after = text[base], text[position]
    return before.isalnum() and after.isalnum() and not ideograph(before) and not ideograph(after)
