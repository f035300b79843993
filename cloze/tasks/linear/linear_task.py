"""What a linear model of a task is: its features, its targets, what its scores mean, and how they are measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Estimator, TrainingRows
from cloze.tasks.linear.features import Bags, Weighting, prefixed

Outputs = Any  # probabilities (N, C), numbers (N,), or an array for each example


class LinearTask(ABC):
    """The linear model of a task. A row of features is a decision: an example has one, or several if it is about its parts.

    `labels` are the classes in the order of probabilities, none for tasks without. `blocks` are the kinds of features. At most
    `most` decisions are learned.
    """

    blocks: ClassVar[tuple[tuple[str, Weighting], ...]] = (("words", "tfidf"), ("characters", "tfidf"))

    most: ClassVar[int] = 100_000  # decisions that are learned
    divided: ClassVar[bool] = False  # an example has several decisions

    def __init__(self, task: Any, labels: Sequence[str] = ()) -> None:
        self.task, self.labels = task, tuple(labels)

    def labels_of(self, examples: Any) -> tuple[str, ...]:
        """The classes of training examples; none for tasks without."""
        return ()

    @property
    @abstractmethod
    def estimator(self) -> Estimator:
        """What learns the weights."""

    @abstractmethod
    def texts(self, examples: Any) -> Iterable[str]:
        """The texts by which it is decided how texts are cut."""

    def texts_apart(self, examples: Any) -> Iterable[Sequence[str]]:
        """The texts that each example is about, by which examples that belong together are found."""
        return ((text,) for text in self.texts(examples))

    @abstractmethod
    def bags(self, examples: Any, cutter: Cutter) -> Iterator[Bags]:
        """The features of every decision, by block."""

    def targets(self, examples: Any) -> NDArray[Any]:
        """The right answer of every decision: (D,), or (D, C) for sets."""
        return np.asarray(self.task.truth(examples, self.labels))

    def decisions(self, examples: Any) -> NDArray[np.int64]:
        """How many decisions each example has, (N,)."""
        return np.ones(len(examples), np.int64)

    def outputs(self, scores: NDArray[Any], examples: Any) -> Outputs:
        """What the scores (D, K) of all decisions say: probabilities, or numbers."""
        return self.estimator.outputs(scores)

    def constant(self, train: Any, examples: Any) -> Outputs:
        """The outputs of a model without features: how frequent answers are in `train`, or their mean."""
        nothing = np.zeros(int(self.decisions(train).sum()) + 1, np.int64)
        empty = TrainingRows.of(np.zeros(0, np.int32), np.zeros(0, np.float32), nothing, 1)
        weights = self.estimator.fit(empty, self.targets(train), self.estimator.constants[0])
        return self.outputs(np.tile(weights.intercepts, (int(self.decisions(examples).sum()), 1)), examples)

    def by_example(self, values: NDArray[Any], examples: Any) -> Outputs:
        """Values (D, …) of all decisions in the form of outputs: an array for each example if it has several decisions."""
        if not self.divided:
            return values
        return np.split(values, np.cumsum(self.decisions(examples))[:-1]) if len(examples) else []

    def loss(self, examples: Any, outputs: Outputs) -> float:
        """The mean negative log-likelihood of the answers of examples, or their mean squared error."""
        return self.estimator.loss(np.concatenate(outputs) if isinstance(outputs, list) else outputs, self.targets(examples))

    def per_example(self, examples: Any, outputs: Outputs) -> Any:
        """The items of `Learner.per_example` for examples with answers."""
        return self.task.per_example(self.task.truth(examples, self.labels), outputs, self.labels)

    def compute_metrics(self, per_example: Any) -> dict[str, float]:
        """The metrics of the items, by the names that the learner gives them."""
        metrics: dict[str, float] = self.task.compute_metrics(per_example, self.labels)
        return metrics


class LinearTexts(LinearTask):
    """A task on one text or two."""

    def texts(self, examples: Any) -> Iterable[str]:
        """The texts; of two, both together."""
        return (" ".join(texts) for texts in examples.rows())

    def texts_apart(self, examples: Any) -> Iterable[Sequence[str]]:
        """The text, or the two."""
        return iter(examples.rows())

    def bags(self, examples: Any, cutter: Cutter) -> Iterator[Bags]:
        """The n-grams of words and of characters; of two texts also which words both have, and which only one has."""
        for text, *more_texts in examples.rows():
            yield of_pair(text, more_texts[0], cutter) if more_texts else (cutter.words(text), cutter.characters(text))


def of_pair(text: str, other: str, cutter: Cutter) -> tuple[list[str], list[str]]:
    """The n-grams of two texts, each with the text that it is of, and those of both and of one alone."""
    words = _sides(cutter.words(text), cutter.words(other))
    characters = _sides(cutter.characters(text), cutter.characters(other))
    return words, characters


def _sides(first: Sequence[str], second: Sequence[str]) -> list[str]:
    first_set, second_set = set(first), set(second)
    both, either = first_set & second_set, first_set | second_set
    share = round(_STEPS * len(both) / len(either)) if either else 0
    return [
        *prefixed("1:", first), *prefixed("2:", second), *prefixed("=:", both), *prefixed("-:", first_set - second_set),
        *prefixed("+:", second_set - first_set), *(f"share:{step}" for step in range(share)),
    ]  # fmt: skip


_STEPS = 10  # by which the share of common n-grams is told
