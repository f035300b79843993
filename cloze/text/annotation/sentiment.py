"""The polarity of words in context, from a list of the senses of words with their scores and glosses."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cloze.errors import RecipeError
from cloze.registry import register
from cloze.text.annotation.annotator import Annotator, Unit
from cloze.text.matching import RUNS, read_bytes, read_text


class WordSense(NamedTuple):
    """A sense of a word: its rank, its score (positive minus negative), and the words of its gloss with their counts."""

    rank: int
    score: float
    gloss: Counter[str]


def polarity(ranks: Sequence[int], cosines: Sequence[float], scores: Sequence[float]) -> float:
    """The score of a word in a sentence: the mean of the scores of its senses, weighted by a softmax of (cosine + 1) / (2 rank).

    A cosine compares the gloss of a sense with the sentence (SentiLARE; Ke et al., 2020, §3.1). Scores are rounded to eight
    digits, so that senses cancel out exactly.

    >>> polarity([1, 2], [1.0, 0.0], [0.5, -0.5])  # 0.5 tanh(0.375)
    0.17917886
    """
    weights = [math.exp((cosine + 1) / (2 * rank)) for rank, cosine in zip(ranks, cosines, strict=True)]
    return round(sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights), 8)


@register("annotator", "word_senses")
class WordSenses(Annotator):
    """Words with the polarity that their senses have in the sentence, `negative` or `positive`: a word of score 0 has none
    (SentiLARE; Ke et al., 2020, §3.1).

    file: the layout of SentiWordNet 3: part of speech, id, positive score, negative score, terms such as `good#1 well#3`, gloss,
      with tabs between them; `#` begins a comment.

    Differs: the authors compare a gloss with the sentence by the cosine of Sentence-BERT's vectors, here it is that of the words'
    counts; and senses of all parts of speech count, because an annotator reads the text alone. Words are looked up as they are
    spelled, in lower case.
    """

    labelled = True
    of_any_text = True

    def __init__(self, *, file: str | None = None) -> None:
        self.file = file
        self._senses: dict[str, list[WordSense]] = {}
        self._hash: str | None = None
        if file is None:
            return
        where = "text.annotate: word_senses.file"
        self._hash = hashlib.sha256(json.dumps("word_senses:1").encode() + read_bytes(file, where)).hexdigest()
        for line, row in enumerate(read_text(file, where).split("\n"), 1):
            row = row.rstrip("\r")
            if row.strip() and not row.startswith("#"):
                self._add(f"{file}:{line}", row)
        if not self._senses:
            raise RecipeError(f"{file}: no senses; expected lines in the layout of SentiWordNet 3.")

    def _add(self, where: str, row: str) -> None:
        """Add the senses of one line."""
        cells = row.split("\t")
        try:
            _, _, good, bad, terms, gloss = cells[:6]
            score = float(good) - float(bad)
            parts = [term.rpartition("#") for term in terms.split()]
            ranks = [(word.replace("_", " ").lower(), int(rank)) for word, _, rank in parts]
        except ValueError:
            ranks = []
            score, gloss = 0.0, ""
        if not ranks or not all(word and rank > 0 for word, rank in ranks):
            raise RecipeError(
                f"{where}: {row[:60]!r}; expected part of speech, id, positive score, negative score, terms such as good#1, and "
                "a gloss, with tabs between them."
            )
        words = _counts(gloss.partition('"')[0])  # the gloss, without its examples
        for word, rank in ranks:
            self._senses.setdefault(word, []).append(WordSense(rank, score, words))

    @property
    def hash(self) -> str | None:
        """A hash of the file; None without a file."""
        return self._hash

    @property
    def labels(self) -> Sequence[str]:
        """In the order of the authors."""
        return ("negative", "positive")

    def annotate(self, text: str) -> list[Unit]:
        """The words of a text that have a polarity there."""
        sentence, units = _counts(text), []
        for match in RUNS.finditer(text):
            senses = self._senses.get(match.group().lower())
            if senses is None or not any(sense.score for sense in senses):
                continue
            cosines = [_cosine(sense.gloss, sentence) for sense in senses]
            score = polarity([sense.rank for sense in senses], cosines, [sense.score for sense in senses])
            if score:
                units.append((match.start(), match.end(), int(score > 0)))
        return units


def _counts(text: str) -> Counter[str]:
    return Counter(match.group().lower() for match in RUNS.finditer(text))


def _cosine(first: Counter[str], second: Counter[str]) -> float:
    """The cosine of two texts by their words' counts; 0 for an empty one."""
    product = sum(count * second[word] for word, count in first.items())
    lengths = math.sqrt(sum(c * c for c in first.values()) * sum(c * c for c in second.values()))
    return product / lengths if lengths else 0.0
