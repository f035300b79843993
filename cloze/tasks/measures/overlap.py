"""How much of a written text is right: exact match, F1 over words, ROUGE, chrF, and BLEU by sacrebleu (`cloze-lm[bleu]`)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, propose
from cloze.tasks.measures.answers import ARTICLES, shared_f1, words_f1
from cloze.text.characters import EXTENDING, IDEOGRAPHS, UNSPACED, word_pattern

Counts = NDArray[np.int64]
ORDERS, BETA = 6, 2.0  # of chrF
#: How sacrebleu cuts texts into words without further packages: `13a` for English and its kin, `zh` for Chinese, `char` for any.
TOKENIZATIONS = ("13a", "intl", "zh", "char", "none")
#: Letters whose words are not written apart, so that each counts alone, with its marks.
_ALONE = IDEOGRAPHS + UNSPACED
_WORD = word_pattern(alone=_ALONE, symbols=False)
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
    plain = ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower()))
    return _APART.sub(r" \1 ", plain).split()


def exact(prediction: str, reference: str) -> float:
    """1 if both are the same text, however it is spaced."""
    return float(prediction.split() == reference.split())


def f1(prediction: str, reference: str) -> float:
    """F1 of the words that both have (Rajpurkar et al., SQuAD, 2016, §6, and its evaluation script); 1 if both have none.

    Differs: ideographs are words of their own and their punctuation is deleted too, where the script splits at spaces alone.
    """
    return words_f1(answer_words(prediction), answer_words(reference))


def rouge_n(prediction: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the n-grams that both have, each as often as the rarer has it (Lin, ROUGE, 2004, §2)."""
    ours, right = (Counter(zip(*(text[i:] for i in range(n)), strict=False)) for text in (prediction, reference))
    return shared_f1((ours & right).total(), ours.total(), right.total())


def rouge_l(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence of words, over the whole text (Lin, 2004, §3.1, with β = 1)."""
    return shared_f1(longest_common(prediction, reference), len(prediction), len(reference))


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence: a row of the usual table at a time, kept as the bits of a number.

    Hyyrö, Bit-parallel LCS-length computation revisited, 2004: bit i is 0 where the row steps up at i.
    """
    places: dict[str, int] = {}
    for number, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << number
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        hit = row & places.get(word, 0)
        row = (row + hit | row - hit) & every
    return len(first) - row.bit_count()


#: What ROUGE and F1 compare, in words.
TOKENIZATION = "lower-case words, no punctuation, letters of scripts without spaces (Chinese, Thai, …) one by one, no stemming"
#: The names of `overlap`'s figures.
NAMES = ("exact_match", "f1", "rouge1", "rouge2", "rougeL")


def overlap(predictions: Sequence[str], reference_lists: Sequence[Sequence[str]]) -> dict[str, float]:
    """The mean over texts of every figure, each against the one of the references that is best for it.

    Exact match looks at the texts, the others at their `words`. Differs: no stemming, and letters of every script count, where
    the `rouge_score` package knows a-z and 0-9 alone.
    """
    if not reference_lists:
        raise TaskError("no examples with targets to measure on.")
    scores = [figures(ours, references) for ours, references in zip(predictions, reference_lists, strict=True)]
    return {name: sum(score[name] for score in scores) / len(scores) for name in NAMES}


def figures(prediction: str, references: Sequence[str]) -> dict[str, float]:
    """Every figure of one text, against the reference that is best for it."""
    written_words = words(prediction)
    scores = []
    for text in references:
        reference_words = words(text)
        scores.append((
            exact(prediction, text), f1(prediction, text), rouge_n(written_words, reference_words, 1),
            rouge_n(written_words, reference_words, 2), rouge_l(written_words, reference_words),
        ))  # fmt: skip
    return {name: max(values) for name, values in zip(NAMES, zip(*scores, strict=True), strict=True)}


def ngrams(text: str, n: int) -> Counter[str]:
    """The n-grams of a text's characters, white space left out."""
    plain = "".join(text.split())
    return Counter(plain[i : i + n] for i in range(len(plain) - n + 1))


def chrf_counts(prediction: str, references: Sequence[str]) -> Counts:
    """(6, 3): for n from 1 to 6 the n-grams of what was written, those of the reference and those that both have, each as often
    as the rarer has it; of several references the one with the best score."""
    written_ngrams = [ngrams(prediction, n) for n in range(1, ORDERS + 1)]
    counts = []
    for reference in references:
        reference_ngrams = [ngrams(reference, n) for n in range(1, ORDERS + 1)]
        counts.append(np.array([
            (grams.total() if other else 0, other.total(), (grams & other).total())
            for grams, other in zip(written_ngrams, reference_ngrams, strict=True)
        ], np.int64))  # fmt: skip
    return max(counts, key=chrf_of)


def chrf_of(counts: Counts) -> float:
    """The F score, with recall twice as important, of the mean precision and the mean recall over the n that both texts have.

    Popović, "chrF: character n-gram F-score for automatic MT evaluation", 2015, §3; over a corpus the counts of all texts are
    added first, as in mjpost/sacrebleu (metrics/chrf.py), whose score is this one times 100.
    """
    hypothesis, reference, both = counts[(counts[:, 0] > 0) & (counts[:, 1] > 0)].T
    if not both.any():
        return 0.0
    precision, recall = float((both / hypothesis).mean()), float((both / reference).mean())
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def chrf(predictions: Sequence[str], reference_lists: Sequence[Sequence[str]]) -> float:
    """chrF of a corpus: texts, and the references of each."""
    pairs = zip(predictions, reference_lists, strict=True)
    return chrf_of(np.sum([chrf_counts(prediction, references) for prediction, references in pairs], axis=0))


def bleu_metric(tokenization: str) -> Any:
    """sacrebleu's metric. Without the package, and for a tokenization that is not known, a `TaskError`."""
    if tokenization not in TOKENIZATIONS:
        raise TaskError(f"--bleu {tokenization}: no such tokenization. {propose(tokenization, TOKENIZATIONS)}")
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise TaskError("--bleu needs the package sacrebleu, which is not installed: pip install 'cloze-lm[bleu]'") from None
    return BLEU(tokenize=tokenization)


def bleu(metric: Any, predictions: Sequence[str], reference_lists: Sequence[Sequence[str]]) -> float:
    """BLEU of a corpus, from 0 to 100: texts, and the references of each."""
    return float(_score(metric, predictions, reference_lists).score)


def bleu_remark(metric: Any, reference_lists: Sequence[Sequence[str]], tokenization: str) -> str | None:
    """Why BLEU is 0 whatever is written: no target has the four words in a row that it counts."""
    if _score(metric, [references[0] for references in reference_lists], reference_lists).totals[-1]:
        return None
    return (
        f"BLEU is 0 whatever is written, because no target has four words as {tokenization!r} cuts them: --bleu zh cuts Chinese, "
        "--bleu char any text into characters"
    )


def _score(metric: Any, predictions: Sequence[str], reference_lists: Sequence[Sequence[str]]) -> Any:
    most = max(map(len, reference_lists))
    streams = [[references[min(number, len(references) - 1)] for references in reference_lists] for number in range(most)]
    return metric.corpus_score(list(predictions), streams)
