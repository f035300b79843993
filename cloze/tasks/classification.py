"""Classify one text or a pair of texts: the two task types, and their examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, nearest
from cloze.registry import lookup, names, register
from cloze.tasks.table import Format, Quoting, Table, read_table


@dataclass(frozen=True)
class Examples:
    """Texts, second texts (None for single-text tasks), labels (None where a file has none) and where they come from."""

    texts: list[str]
    others: list[str] | None
    labels: list[str] | None
    path: str
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)


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

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> Classification:
        """The same task for files that are written in another way."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def read(self, path: Path | str, *, labelled: bool = True) -> Examples:
        """The examples of a file. With `labelled=False` labels are read if the column is there."""
        table = read_table(path, format=self.format, columns=self.columns, quoting=self.quoting)
        texts = table.column(self.text, "--text")
        others = table.column(self.text_b, "--text-b") if self.text_b is not None else None
        labels = self._labels(table) if labelled or self.label in table.columns else None
        return Examples(texts, others, labels, table.path, table.lines)

    def _labels(self, table: Table) -> list[str]:
        labels = [label.strip() for label in table.column(self.label, "--label")]
        for label, line in zip(labels, table.lines, strict=True):
            if not label:
                raise TaskError(f"{table.path}:{line}: an empty {self.label!r}; expected a label in every row.")
        return labels


@register("task", "sentence_classification")
def sentence_classification(text: str = "text", label: str = "label") -> Classification:
    """The class of a text: sentiment, topic, acceptability. The arguments are names of columns."""
    return Classification("sentence_classification", text, None, label)


@register("task", "pair_classification")
def pair_classification(text: str = "text", text_b: str = "text_b", label: str = "label") -> Classification:
    """The relation of two texts: entailment, paraphrase. The arguments are names of columns."""
    return Classification("pair_classification", text, text_b, label)


def task(name: str, *, text: str | None = None, text_b: str | None = None, label: str | None = None) -> Classification:
    """A registered task by name with the columns that are given; an unknown name is a `TaskError`."""
    if name not in names("task"):
        raise TaskError(f"unknown task {name!r}. {nearest(name, names('task'))}")
    given = {"text": text, "text_b": text_b, "label": label}
    if name == "sentence_classification" and text_b is not None:
        raise TaskError("--text-b names a second text; sentence_classification has one. Use --task pair_classification.")
    made: Classification = lookup("task", name)(**{key: value for key, value in given.items() if value is not None})
    return made


def label_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The distinct labels in order: by number if all are whole numbers, else alphabetically."""
    known = set(labels)
    if all(label.lstrip("-").isdecimal() for label in known):
        return tuple(sorted(known, key=lambda label: (int(label), label)))
    return tuple(sorted(known))


def label_ids(examples: Examples, known: Sequence[str]) -> NDArray[np.int64]:
    """The labels as indices into `known`; one that is not there is a `TaskError` naming file, line and the known ones."""
    if examples.labels is None:
        raise TaskError(f"{examples.path}: has no labels; expected a label in every row.")
    place = {label: number for number, label in enumerate(known)}
    found = np.empty(len(examples), np.int64)
    for number, (label, line) in enumerate(zip(examples.labels, examples.lines, strict=True)):
        if label not in place:
            raise TaskError(
                f"{examples.path}:{line}: the label {label!r} does not occur in the training examples. "
                f"{nearest(label, known)}"
            )
        found[number] = place[label]
    return found
