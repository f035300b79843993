"""The linear model of a tagger: each word is a decision, by its letters, its shape and its neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.tagged import TaggedSentences
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Classes
from cloze.tasks.linear.features import Bags, Weighting
from cloze.tasks.linear.linear_task import LinearTask, Outputs

_AFFIX = 4  # the characters of the longest prefixes and suffixes
_AROUND = (-2, -1, 1, 2)
_RUNS = re.compile(r"(.)\1+")


class _WordClasses(Classes):
    """Rows of words have length √n instead of 1, so they need stronger regularisation than texts."""

    constants = (0.1, 1.0, 10.0)
    unit_constants = Classes.constants


class LinearLabelling(LinearTask):
    """A linear model of the label of each word."""

    blocks: ClassVar[tuple[tuple[str, Weighting], ...]] = (("words", "binary"),)
    most: ClassVar[int] = 50_000
    divided: ClassVar[bool] = True

    @property
    def estimator(self) -> Classes:
        """Multinomial logistic regression."""
        return _WordClasses(len(self.labels))

    def labels_of(self, examples: TaggedSentences) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted(set(chain.from_iterable(examples.labels or ()))))

    def texts(self, examples: TaggedSentences) -> Iterable[str]:
        """The words of each text."""
        return (" ".join(words) for words in examples.words)

    def bags(self, examples: TaggedSentences, cutter: Cutter) -> Iterator[Bags]:
        """The features of each word; words are given, so nothing is cut."""
        for words in examples.words:
            lowered = ["<", "<", *(word.lower() for word in words), ">", ">"]
            for number, word in enumerate(words):
                yield (_features(word, lowered[number : number + 5]),)

    def decisions(self, examples: TaggedSentences) -> NDArray[np.int64]:
        """The words of each text."""
        return np.array([len(words) for words in examples.words], np.int64)

    def targets(self, examples: TaggedSentences) -> NDArray[np.int64]:
        """The numbers of the labels of all words; -1 for one that is not known."""
        number = {label: index for index, label in enumerate(self.labels)}
        return np.array([number.get(label, -1) for label in chain.from_iterable(examples.labels or ())], np.int64)

    def outputs(self, scores: NDArray[Any], examples: TaggedSentences) -> list[NDArray[np.float32]]:
        """The probabilities (words, C) of each text."""
        parts: list[NDArray[np.float32]] = self.by_example(self.estimator.outputs(scores), examples)
        return parts

    def per_example(self, examples: TaggedSentences, outputs: Outputs) -> Any:
        """The labels of every text and the likeliest ones, as items of `WordLabeller.per_example`."""
        guess = [tuple(self.labels[number] for number in probabilities.argmax(1)) for probabilities in outputs]
        return self.task.per_example(examples.labels or [], guess, self.labels)


def _features(word: str, around: Sequence[str]) -> list[str]:
    """The features of a word, which is the middle one of five in lower case."""
    lower = around[2]
    affixes = [
        f"{kind}:{part}" for n in range(1, min(_AFFIX, len(lower)) + 1) for kind, part in (("<", lower[:n]), (">", lower[-n:]))
    ]
    neighbours = [f"{offset}:{around[2 + offset]}" for offset in _AROUND]
    return [
        "bias", f"0:{lower}", f"as written:{word}", f"shape:{_shape(word)}", *affixes, *neighbours,
        f"-1,0:{around[1]} {lower}", f"0,1:{lower} {around[3]}",
    ]  # fmt: skip


def _shape(word: str) -> str:
    """Kinds of characters, runs of one kind once.

    >>> _shape("McDonald's"), _shape("U.S."), _shape("1,000")
    ('XxXx-x', 'X-X-', '9-9')
    """
    kinds = "".join("X" if c.isupper() else "x" if c.isalpha() else "9" if c.isdigit() else "-" for c in word)
    return _RUNS.sub(r"\1", kinds)
