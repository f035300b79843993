"""Rule-based sentence splitting for English and Chinese, without a model or a download. Only white space is lost.

English: a full stop, question mark or exclamation mark ends a sentence if white space follows and the next word does not begin
with a lower-case letter, unless the stop belongs to an abbreviation, an initial, a number or a list marker. Chinese: the marks
。！？；… end a sentence, together with closing quotes and brackets after them. A blank line always ends one.
"""

from __future__ import annotations

import re
from typing import Literal

from cloze.errors import CorpusError, propose

Language = Literal["auto", "english", "chinese"]

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_CLOSING = "\"'”’»\\)\\]"
_CHINESE_CLOSING = "”’\"'」』）)》〉】〕］"
_CHINESE_TAIL = rf"[。！？；｡…!?]*+[{_CHINESE_CLOSING}]*+(?![，、：,])"

# Each branch looks back at the mark just read: a single leading character class lets the scan run at full speed.
_BLANK_LINE = r"(?<=\n)[^\S\n]*\n"
_ENGLISH = rf"(?<=[.!?…])[{_CLOSING}]*\s+"
_CHINESE = (
    rf"(?<=[。！？；｡]){_CHINESE_TAIL}"
    rf"|(?<=…)…*(?=[{_CHINESE_CLOSING}]*[{_CJK}“‘「『（]){_CHINESE_TAIL}"
    rf"|(?<=[!?])(?=[{_CJK}“「『]){_CHINESE_TAIL}"
)
_PATTERNS = {
    "english": re.compile(rf"[.!?…\n](?:{_ENGLISH}|{_BLANK_LINE})"),
    "chinese": re.compile(rf"[。！？；｡…!?\n](?:{_CHINESE}|{_BLANK_LINE})"),
    "auto": re.compile(rf"[.。！？；｡…!?\n](?:{_CHINESE}|{_ENGLISH}|{_BLANK_LINE})"),
}


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_NEVER_LAST = _words(
    "mr mrs ms messrs dr prof rev hon gen col maj capt cpt cmdr lt sgt cpl pvt gov sen rep pres supt mt mme mlle fr sr "
    "vs cf e.g i.e viz al approx ca née aka a.k.a st ste op ed eds trans"
)
_BEFORE_NUMBER = _words(
    "no nos nr pp p vol vols fig figs ch chap sec art para eq jan feb mar apr jun jul aug sep sept oct nov dec"
)
_SOMETIMES_LAST = _words("inc ltd co corp bros llc plc jr esq etc dept univ assn ave blvd rd ft a.m p.m ph.d m.d b.a m.a")
_STARTERS = _words(
    "the a an he she it they we you i this that these those there here his her its their our my in on at by for from with "
    "as after before during since when while although though however but and so if then what who how why where not no "
    "some many most all one two both each other according another also"
)
_DOUBTFUL = _NEVER_LAST | _BEFORE_NUMBER | _SOMETIMES_LAST
_WORD_BEFORE = re.compile(r"[^\s(\[\"'“‘—–]*$")
_WORD_AFTER = re.compile(r"[\"'“‘«(\[—–\-]*(\w*)")

# Most lines contain only English marks and no line end. There the scan itself decides what the rules decide without looking at
# words: nothing ends before a lower-case letter; ! and ? end, and a stop after white space, an opening, another mark, or a word
# in no list. The rules decide the rest, which matches a group: the text before the stop (1), or after it (2).
_OTHER_MARKS = re.compile(r"[。！？；｡…\n]")
_CHINESE_BEHIND = re.compile(rf"[!?][{_CJK}“「『]")


def _before_a_sure_end() -> str:
    """Text before a mark that certainly ends a sentence. Words in capitals are left to the rules."""
    letters = [word for word in _DOUBTFUL if word.isascii() and word.isalpha()]
    both = {form[-5:] for word in letters for form in (word, word.capitalize())}
    unlike = {n: rf"(?<!(?:{'|'.join(sorted(word for word in both if len(word) == n))})\.)" for n in (2, 3, 4, 5)}
    short = [rf"(?<=[^A-Za-z][A-Za-z][a-z]{{{size - 1}}}\.){unlike[size]}" for size in (4, 3, 2)]
    year = r"(?<=[A-Za-z,] [0-9]{4}\.)"
    return "|".join([rf"(?<=[A-Za-z][a-z]{{4}}\.){unlike[5]}", *short, r"(?<=[\s(\[\"'“‘—–.!?]\.)", r"(?<=[!?])", year])


def _plain_pattern(marks: str) -> re.Pattern[str]:
    opening = r"[\"'“‘«(\[—–\-]*+"
    return re.compile(
        rf"{marks}(?=[{_CLOSING}]*+\s)(?:{_before_a_sure_end()}|())[{_CLOSING}]*+\s++"
        rf"(?!{opening}[a-z])(?:(?={opening}(?:[\0-\x7f]|\Z))|())"
    )


_STOPS = _plain_pattern(r"\.")  # the scan for one character is twice as fast
_MARKS = _plain_pattern("[.!?]")


def split_sentences(text: str, language: Language = "auto") -> list[str]:
    """The sentences of a text, stripped of white space.

    `language` is "english", "chinese" or "auto" (both sets of marks). Joining the result gives back every character that
    is not white space.
    """
    if language == "auto" or language == "english":
        asks = "!" in text or "?" in text
        plain = "\n" not in text if text.isascii() else not _OTHER_MARKS.search(text)
        if plain and not (asks and _CHINESE_BEHIND.search(text)):
            return _split_plain(text, _MARKS if asks else _STOPS)
    pattern = _PATTERNS.get("english" if language == "auto" and text.isascii() else language)
    if pattern is None:
        raise CorpusError(f"sentence splitting: unknown language {language!r}. {propose(language, _PATTERNS)}")
    sentences: list[str] = []
    begin = 0
    for match in pattern.finditer(text):
        end = match.end()
        mark = match.start()
        if text[mark] in ".!?…" and text[end - 1].isspace():
            # The common case, decided with three string methods: a plain word, a full stop, a capital.
            last = text[text.rfind(" ", begin, mark) + 1 : mark]
            plain = len(last) > 1 and last.isalpha() and last.lower() not in _DOUBTFUL
            if not (plain and text[mark] == "." and text[end : end + 1].isupper()) and not _ends_english(text, begin, mark, end):
                continue
        piece = text[begin:end].strip()
        if piece:
            sentences.append(piece)
        begin = end
    rest = text[begin:].strip()
    if rest:
        sentences.append(rest)
    return sentences


def _split_plain(text: str, pattern: re.Pattern[str]) -> list[str]:
    """The sentences of a text with only English marks and no line end."""
    match = pattern.search(text)
    if match is None:
        sentence = text.strip()
        return [sentence] if sentence else []
    sentences: list[str] = []
    begin = 0
    while match is not None:
        end = match.end()
        if match.lastindex is None or _ends_english(text, begin, match.start(), end):
            sentences.append(text[begin:end].strip())
            begin = end
        match = pattern.search(text, end)
    rest = text[begin:].strip()
    if rest:
        sentences.append(rest)
    return sentences


def _ends_english(text: str, begin: int, mark: int, end: int) -> bool:
    """Whether the mark at `mark` ends the sentence that begins at `begin`, where the next would begin at `end`."""
    after = _WORD_AFTER.match(text, end)
    word = after.group(1) if after else ""
    if word[:1].islower():
        return False
    if text[mark] != "." or text[mark - 1 : mark] in (".", "!", "?"):
        return True
    before = _WORD_BEFORE.search(text[max(begin, mark - 24) : mark])
    last = before.group().lower() if before else ""
    if not last:
        return True
    if last in _NEVER_LAST:
        return False
    if last in _BEFORE_NUMBER:
        return not word[:1].isdigit()
    if last.isdigit():
        return bool(text[begin:mark].strip() != last)
    if len(last) == 1 and last.isalpha() or last in _SOMETIMES_LAST or _is_acronym(last):
        return word.lower() in _STARTERS
    return True


def _is_acronym(word: str) -> bool:
    """Whether a word is letters with stops between them, as in u.s or d.c."""
    return "." in word and all(len(part) == 1 for part in word.split("."))
