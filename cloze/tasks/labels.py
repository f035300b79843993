"""Texts with labels: what the two classification tasks read, and their labels as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, nearest
from cloze.tasks.texts import AnsweredTexts

#: Texts with labels.
Examples = AnsweredTexts[str]


def label_ids(examples: Examples, known: Sequence[str], among: str = "in the training examples") -> NDArray[np.int64]:
    """The labels as indices into `known`; one that does not occur `among` them is a `TaskError` with file and line."""
    if examples.answers is None:
        raise TaskError(f"{examples.path}: has no labels; expected a label in every row.")
    place = {label: number for number, label in enumerate(known)}
    found = np.empty(len(examples), np.int64)
    for number, (label, line) in enumerate(zip(examples.answers, examples.lines, strict=True)):
        if label not in place:
            raise TaskError(
                f"{examples.path}:{line}: the label {label!r} does not occur {among}. "
                f"{nearest(label, known)}"
            )
        found[number] = place[label]
    return found
