"""Classify one text or a pair of texts: the two task types, and how their files are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cloze.corpus.readers.class_folders import read_class_folders
from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import Format, Quoting, Table, read_table
from cloze.decoding.reader import Checkpoint
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.classifier import Classifier, load
from cloze.tasks.labels import Examples, label_ids
from cloze.tasks.metrics import METRICS, measure


@dataclass(frozen=True)
class Classification:
    """A task: which columns hold the text, the second text (None: single text) and the label, and how a file is read.

    `columns` names the columns of files without a header line; `format` and `quoting` are those of `read_table`.
    """

    name: str
    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"

    @property
    def pair(self) -> bool:
        """Whether the task is about two texts."""
        return self.text_b is not None

    @property
    def metrics(self) -> Mapping[str, bool]:
        """Accuracy first; of all of them more is better."""
        return dict.fromkeys(METRICS, True)

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> Classification:
        """The same task for files that are written in another way."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def deciding(self, *, beams: int | None, length_penalty: float | None) -> Classification:
        """The same task: a label is chosen, there is nothing to search."""
        if beams is not None or length_penalty is not None:
            raise TaskError(f"--beams and --length-penalty are for tasks that write a text; {self.name} chooses a label.")
        return self

    def read(self, path: Path | str, *, labelled: bool = True) -> Examples:
        """The examples of a file, or of a folder per class. With `labelled=False` labels are read if the column is there."""
        if not self.pair and Path(path).is_dir() and not is_columnar(path):
            filed = list(read_class_folders(path))
            numbers = tuple(one.number for one in filed)
            return Examples([one.text for one in filed], None, [one.label for one in filed], str(path), numbers)
        table = read_table(path, format=self.format, columns=self.columns, quoting=self.quoting)
        texts = table.column(self.text, "--text NAME")
        others = table.column(self.text_b, "--text-b NAME") if self.text_b is not None else None
        labels = self._labels(table) if labelled or self.label in table.columns else None
        return Examples(texts, others, labels, table.path, table.lines)

    def _labels(self, table: Table) -> list[str]:
        labels = [label.strip() for label in table.column(self.label, "--label NAME")]
        for label, line in zip(labels, table.lines, strict=True):
            if not label:
                raise TaskError(f"{table.path}:{line}: an empty {self.label!r}; expected a label in every row.")
        return labels

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
        """The classifier of a fine-tuned folder."""
        return load(loaded, self, described, precision)

    def constant(self, always: str, examples: Examples, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        truth = label_ids(examples, labels)
        return measure(truth, np.full_like(truth, list(labels).index(always)), len(labels))

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "text_b": self.text_b, "label": self.label}}


@register("task", "sentence_classification")
def sentence_classification(text: str = "text", label: str = "label") -> Classification:
    """The class of a text: sentiment, topic, acceptability. The arguments are names of columns."""
    return Classification("sentence_classification", text, None, label)


@register("task", "pair_classification")
def pair_classification(text: str = "text", text_b: str = "text_b", label: str = "label") -> Classification:
    """The relation of two texts: entailment, paraphrase. The arguments are names of columns."""
    return Classification("pair_classification", text, text_b, label)
