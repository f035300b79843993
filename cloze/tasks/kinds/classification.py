"""Classify one text or a pair of texts: the two task types, and how their files are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.class_folders import read_class_folders
from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import OPTION, Table, single_class
from cloze.decoding.reader import Checkpoint
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.kinds.classifier import Classifier, load
from cloze.tasks.labels import Examples, label_ids
from cloze.tasks.linear.classes import LinearClassification
from cloze.tasks.measures.metrics import METRICS, at_most, ks_of, measure, require_share
from cloze.tasks.texts import TextTask


@dataclass(frozen=True)
class Classification(TextTask):
    """A task whose answers are labels; `name` says whether it is about one text or two, and `at`
    for which numbers of most probable labels precision and recall are measured, too. `threshold` is the probability from which on
    the second of two labels is given; None: the more probable one."""

    name: str = "sentence_classification"
    at: tuple[int, ...] = ()
    threshold: float | None = None
    does: ClassVar[str] = "chooses a label"

    def __post_init__(self) -> None:
        require_share(self.threshold)

    @property
    def metrics(self) -> Mapping[str, bool]:
        """Accuracy first; of all of them more is better."""
        return dict.fromkeys(METRICS, True)

    def read(self, path: Path | str, *, labelled: bool = True) -> Examples:
        """The examples of a file, or of a folder per class. With `labelled=False` labels are read if the column is there."""
        if self.text_b is not None or not Path(path).is_dir() or is_columnar(path):
            return super().read(path, labelled=labelled)
        filed = list(read_class_folders(path))
        numbers = tuple(example.number for example in filed)
        return Examples([example.text for example in filed], None, [example.label for example in filed], str(path), numbers)

    def answers(self, table: Table) -> list[str]:
        """The labels; a cell without a single one is a `TaskError` with file and line."""
        labels = []
        for cell, line in zip(table.column(self.label, OPTION.sibling("label", "NAME")), table.lines, strict=True):
            try:
                labels.append(single_class(cell, self.label))
            except ValueError as error:
                raise TaskError(f"{table.path}:{line}: {error}") from None
        return labels

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
        """The classifier of a fine-tuned folder."""
        return load(loaded, self, described, precision)

    def linear(self, labels: Sequence[str] = ()) -> LinearClassification | None:
        """A class by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearClassification(self, labels)

    def constant(self, always: str, examples: Examples, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        truth = label_ids(examples, labels)
        index = list(labels).index(always)
        return {**measure(truth, np.full_like(truth, index), len(labels)), **self.constant_at(truth, index)}

    def constant_at(self, truth: NDArray[np.int64], always: int) -> dict[str, float]:
        """What one label is right, by precision and recall of one answer."""
        return at_most((truth != always).astype(np.int64), [k for k in self.at if k == 1], 2)


@register("task", "sentence_classification")
def sentence_classification(
    text: str = "text", label: str = "label", picture: str | None = None, at: Sequence[int] = (), threshold: float | None = None
) -> Classification:
    """The class of a text: sentiment, topic, acceptability. The arguments are names of columns; `at` and `threshold`: see
    `Classification`."""
    return Classification(text, None, label, picture=picture, at=ks_of(at), threshold=threshold)


@register("task", "pair_classification")
def pair_classification(
    text: str = "text", text_b: str = "text_b", label: str = "label", picture: str | None = None, at: Sequence[int] = (),
    threshold: float | None = None,
) -> Classification:
    """The relation of two texts: entailment, paraphrase. The arguments are names of columns; `at` and `threshold`: see
    `Classification`."""
    return Classification(text, text_b, label, picture=picture, name="pair_classification", at=ks_of(at), threshold=threshold)
