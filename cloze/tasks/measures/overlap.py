"""How much of a written text is right: exact match, F1 over words, ROUGE."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from cloze.errors import TaskError
from cloze.text.characters import EXTENDING, IDEOGRAPHS, UNSPACED, word_pattern

#: Letters whose words are not written apart, so that each counts alone, with its marks.
_ALONE = IDEOGRAPHS + UNSPACED
_WORD = word_pattern(alone=_ALONE, symbols=False)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_APART = re.compile(f"([{_ALONE}][{EXTENDING}]*)")
#: What an answer loses: the punctuation of ASCII, as in the published script, and that of ideographic writing.
_PUNCTUATION = re.compile(
    f"[{re.escape(string.punctuation)}\\u3001-\\u3003\\u3008-\\u3011\\u3014-\\u301f"
    "\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65]"
)


def words(text: str) -> list[str]:
    """The words that ROUGE compares: lower case, punctuation left out."""
    return _WORD.findall(text.lower().replace("_", " "))


def answer_words(text: str) -> list[str]:
    """The words of an answer, as SQuAD's evaluation script takes them: lower case, ASCII punctuation deleted, no articles.

    Deleting joins what it stood between: `don't` is dont, `U.S.` is us, `3.5` is 35, `well-known` is wellknown.
    """
    plain = _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower()))
    return _APART.sub(r" \1 ", plain).split()


def exact(written: str, wanted: str) -> float:
    """1 if both are the same text, however it is spaced."""
    return float(written.split() == wanted.split())


def f1(written: str, wanted: str) -> float:
    """F1 of the words that both have (Rajpurkar et al., SQuAD, 2016, §6, and its evaluation script); 1 if both have none.

    Differs: ideographs are words of their own and their punctuation is deleted too, where the script splits at spaces alone.
    """
    written_words, wanted_words = answer_words(written), answer_words(wanted)
    if not written_words or not wanted_words:
        return float(written_words == wanted_words)
    return _f1((Counter(written_words) & Counter(wanted_words)).total(), len(written_words), len(wanted_words))


def rouge_n(written: Sequence[str], wanted: Sequence[str], n: int) -> float:
    """F1 of the n-grams that both have, each as often as the rarer has it (Lin, ROUGE, 2004, §2)."""
    written_ngrams, wanted_ngrams = (Counter(zip(*(text[i:] for i in range(n)), strict=False)) for text in (written, wanted))
    return _f1((written_ngrams & wanted_ngrams).total(), written_ngrams.total(), wanted_ngrams.total())


def rouge_l(written: Sequence[str], wanted: Sequence[str]) -> float:
    """F1 of the longest common subsequence of words, over the whole text (Lin, 2004, §3.1, with β = 1)."""
    return _f1(longest_common(written, wanted), len(written), len(wanted))


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence: a row of the usual table at a time, kept as the bits of a number.

    Hyyrö, Bit-parallel LCS-length computation revisited, 2004: bit i is 0 where the row steps up at i.
    """
    places: dict[str, int] = {}
    for number, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << number
    every = (1 << len(one)) - 1
    row = every
    for word in other:
        hit = row & places.get(word, 0)
        row = (row + hit | row - hit) & every
    return len(one) - row.bit_count()


def _f1(common: int, ours: int, theirs: int) -> float:
    return 2 * common / (ours + theirs) if common else 0.0


#: What ROUGE and F1 compare, in words.
TOKENIZATION = "lower-case words, no punctuation, letters of scripts without spaces (Chinese, Thai, …) one by one, no stemming"
#: The names of `overlap`'s figures.
NAMES = ("exact_match", "f1", "rouge1", "rouge2", "rougeL")


def overlap(written: Sequence[str], wanted: Sequence[Sequence[str]]) -> dict[str, float]:
    """The mean over texts of every figure, each against the one of the references that is best for it.

    Exact match looks at the texts, the others at their `words`. Differs: no stemming, and letters of every script count, where
    the `rouge_score` package knows a-z and 0-9 alone.
    """
    if not wanted:
        raise TaskError("no examples with targets to measure on.")
    scores = [figures(ours, references) for ours, references in zip(written, wanted, strict=True)]
    return {name: sum(score[name] for score in scores) / len(scores) for name in NAMES}


def figures(written: str, references: Sequence[str]) -> dict[str, float]:
    """Every figure of one text, against the reference that is best for it."""
    written_words = words(written)
    scores = []
    for text in references:
        reference_words = words(text)
        scores.append((
            exact(written, text), f1(written, text), rouge_n(written_words, reference_words, 1),
            rouge_n(written_words, reference_words, 2), rouge_l(written_words, reference_words),
        ))  # fmt: skip
    return {name: max(values) for name, values in zip(NAMES, zip(*scores, strict=True), strict=True)}
