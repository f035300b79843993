"""Linear models of texts and of pairs of texts with one class, several classes or a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.tasks.kinds.classifier import class_metrics, judged_classes
from cloze.tasks.labels import label_ids
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Classes, Numbers
from cloze.tasks.linear.features import Bags
from cloze.tasks.linear.linear_task import LinearTask, Outputs, of_texts
from cloze.tasks.measures.agreement import agreement


class LinearTexts(LinearTask):
    """A task on one text or two."""

    def texts(self, examples: Any) -> Iterable[str]:
        """The texts; of two, both together."""
        return (" ".join(texts) for texts in examples.rows())

    def texts_apart(self, examples: Any) -> Iterable[Sequence[str]]:
        """The text, or the two."""
        return iter(examples.rows())

    def bags(self, examples: Any, cutter: Cutter) -> Iterator[Bags]:
        """N-grams of words and of characters."""
        return of_texts(examples, cutter)


class LinearClassification(LinearTexts):
    """One class for each example."""

    @property
    def estimator(self) -> Classes:
        """Multinomial logistic regression."""
        return Classes(len(self.labels))

    def labels_of(self, examples: Any) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted(set(examples.known())))

    def targets(self, examples: Any) -> NDArray[np.int64]:
        """The numbers of the labels."""
        return label_ids(examples, self.labels)

    def judged(self, examples: Any, outputs: Outputs) -> NDArray[np.int64]:
        """See `judged_classes`."""
        return judged_classes(self.targets(examples), outputs, self.task)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Those of classification."""
        return class_metrics(judged, len(self.labels), self.task.at)


class LinearRegression(LinearTexts):
    """A number for each example."""

    @property
    def estimator(self) -> Numbers:
        """Ridge regression."""
        return Numbers()

    def targets(self, examples: Any) -> NDArray[np.float64]:
        """The numbers."""
        return np.array(examples.known(), np.float64)

    def outputs(self, scores: NDArray[Any], examples: Any) -> NDArray[Any]:
        """The only score of each example, (N,)."""
        return scores[:, 0]

    def judged(self, examples: Any, outputs: Outputs) -> NDArray[np.float64]:
        """The given number of every example and the predicted one, (N, 2)."""
        return np.stack([self.targets(examples), outputs], axis=1)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Correlations and squared error."""
        return agreement(*np.asarray(judged, np.float64).reshape(-1, 2).T)
