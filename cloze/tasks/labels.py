"""Texts with labels: what the two classification tasks read, and their labels as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, propose
from cloze.tasks.texts import AnsweredTexts

#: Texts with labels.
Examples = AnsweredTexts[str]
_SHOWN = 8  # of the labels that a file gives by their numbers


def label_ids(
    examples: Examples, known: Sequence[str], among: str = "in the training examples", *, numbered: bool = False
) -> NDArray[np.int64]:
    """The labels as indices into `known`; one that does not occur `among` them is a `TaskError` with file and line. `numbered`:
    a file may have the numbers of the labels in their place."""
    if examples.answers is None:
        raise TaskError(f"{examples.path}: has no labels; expected a label in every row.")
    among = "in config.json" if numbered else among
    place = {label: number for number, label in enumerate(known)}
    place |= {number: place[label] for number, label in names_of_numbers(examples.answers, known, numbered=numbered).items()}
    found = np.empty(len(examples), np.int64)
    for number, (label, line) in enumerate(zip(examples.answers, examples.lines, strict=True)):
        if label not in place:
            raise TaskError(
                f"{examples.path}:{line}: the label {label!r} does not occur {among}. "
                f"{propose(label, known)}"
            )
        found[number] = place[label]
    return found


def names_of_numbers(labels: Iterable[str], known: Sequence[str], *, numbered: bool) -> dict[str, str]:
    """The labels by their numbers in `known` if all labels of a file are whole numbers and no label looks like one; else none."""
    numbers = set(labels) if numbered and not any(label.lstrip("-").isdigit() for label in known) else set()
    if not all(label.isdigit() for label in numbers):
        return {}
    return {str(number): label for number, label in enumerate(known) if str(number) in numbers}


def remark_on_numbers(names: Mapping[str, str]) -> list[str]:
    """A sentence on labels that a file gives by their numbers; none if it gives none so."""
    shown = ", ".join(f"{number} is {label}" for number, label in list(names.items())[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"the labels of the file are read as the numbers that config.json gives them: {shown}{more}"] if names else []
