"""Answers to questions: exact match and F1 as the published scripts of SQuAD and of CMRC 2018 define them.

Every function is pure: texts in, a share out. A question may have several right answers, of which the one that is met best
counts, or none at all, which only an empty answer meets.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from cloze.errors import TaskError
from cloze.text.characters import word_pattern

Scoring = Literal["squad", "cmrc"]
Score = Callable[[str, str], float]

ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)
#: What CMRC's script leaves out, and what it cuts at. Its `……` is two characters and so never met by one.
_MARKS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_MARKS_OUT = str.maketrans("", "", _MARKS)
_PIECE = word_pattern(alone="\u4e00-\u9fa5")


def squad_words(text: str) -> list[str]:
    """Lower case, ASCII punctuation deleted, no articles, split at white space (Rajpurkar et al., 2016; `normalize_answer`)."""
    return ARTICLES.sub(" ", text.lower().translate(_ASCII)).split()


def squad_exact(prediction: str, reference: str) -> float:
    """1 if both are the same words in the same order.

    >>> squad_exact("The U.S. Army", "us army")
    1.0
    """
    return float(squad_words(prediction) == squad_words(reference))


def squad_f1(prediction: str, reference: str) -> float:
    """F1 of the words that both have, each as often as the rarer has it; 1 if neither has any (version 2)."""
    return words_f1(squad_words(prediction), squad_words(reference))


def cmrc_pieces(text: str) -> list[str]:
    """Lower case without the script's punctuation; ideographs one by one, the text between them in words.

    Differs: the script cuts what is not Chinese with NLTK's tokenizer, which takes English contractions and abbreviations apart;
    here letters and digits are a word and any other sign is one.
    """
    return _PIECE.findall(text.lower().strip().translate(_MARKS_OUT))


def cmrc_exact(prediction: str, reference: str) -> float:
    """1 if both are the same characters, but for case, the space around them and punctuation (`calc_em_score`)."""
    written_characters, wanted_characters = (text.lower().strip().translate(_MARKS_OUT) for text in (prediction, reference))
    return float(written_characters == wanted_characters)


def cmrc_f1(prediction: str, reference: str) -> float:
    """F1 of the longest run of pieces that both have (`calc_f1_score`, `find_lcs`: a substring, not a subsequence).

    >>> cmrc_f1("在1998年出版", "1998年")
    0.5714285714285714
    """
    written_pieces, wanted_pieces = cmrc_pieces(prediction), cmrc_pieces(reference)
    return shared_f1(longest_run(written_pieces, wanted_pieces), len(written_pieces), len(wanted_pieces))


def longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest run of pieces that both contain."""
    most, before = 0, [0] * (len(second) + 1)
    for piece in first:
        now = [0] * (len(second) + 1)
        for column, against in enumerate(second):
            if piece == against:
                now[column + 1] = before[column] + 1
        most, before = max(most, *now), now
    return most


def words_f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the words that both have, each as often as the rarer has it; 1 if neither has any."""
    if not prediction or not reference:
        return float(prediction == reference)
    return shared_f1((Counter(prediction) & Counter(reference)).total(), len(prediction), len(reference))


def shared_f1(common: int, size: int, other_size: int) -> float:
    """F1 of two sides of so many pieces, of which so many are common."""
    return 2 * common / (size + other_size) if common else 0.0


_SCORES: dict[Scoring, tuple[Score, Score]] = {"squad": (squad_exact, squad_f1), "cmrc": (cmrc_exact, cmrc_f1)}


def best(score: Score, prediction: str, references: Sequence[str]) -> float:
    """The score against the answer that is met best."""
    return max(score(prediction, answer) for answer in references)


def answer_scores(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, scoring: Scoring = "squad"
) -> dict[str, float]:
    """`exact_match` and `f1`, the means over questions; `references` are the right answers to each, none where it has none.

    Where some questions have answers and some have none, also `f1_answered` and `f1_unanswerable` of each kind alone. As in the
    script of SQuAD 2, answers without a word do not count as answers.

    Raises:
        TaskError: no questions.
    """
    if not references:
        raise TaskError("no questions with answers to measure on.")
    scores = [question_scores(text, answers, scoring=scoring) for text, answers in zip(predictions, references, strict=True)]
    return means(scores, [bool(real_answers(answers, scoring=scoring)) for answers in references])


class QuestionScores(NamedTuple):
    """How well one question was answered: 1 for an exact match, else 0, and F1."""

    exact: float
    f1: float


def real_answers(references: Sequence[str], *, scoring: Scoring = "squad") -> list[str]:
    """The answers that have a word."""
    words = squad_words if scoring == "squad" else cmrc_pieces
    return [answer for answer in references if words(answer)]


def question_scores(prediction: str, references: Sequence[str], *, scoring: Scoring = "squad") -> QuestionScores:
    """The scores of what was written for one question; see `answer_scores`."""
    exact, f1 = _SCORES[scoring]
    answers = real_answers(references, scoring=scoring)
    return QuestionScores(
        best(exact, prediction, answers or [""]), best(f1, prediction, answers) if answers else exact(prediction, "")
    )


def means(scores: Sequence[QuestionScores], answerable: Sequence[bool]) -> dict[str, float]:
    """The metrics of `answer_scores` from the scores of every question."""
    metrics = {"exact_match": _mean([score.exact for score in scores]), "f1": _mean([score.f1 for score in scores])}
    kinds = {
        name: [score.f1 for score, answers in zip(scores, answerable, strict=True) if answers == has]
        for name, has in (("f1_answered", True), ("f1_unanswerable", False))
    }
    return metrics | ({name: _mean(part) for name, part in kinds.items()} if all(kinds.values()) else {})


def scoring_of(answers: Iterable[str]) -> Scoring:
    """Whose definition fits: CMRC's where most letters of the answers are Chinese characters, which no space separates."""
    letters = [letter for answer in answers for letter in answer if letter.isalpha()]
    return "cmrc" if 2 * sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > len(letters) else "squad"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
