"""Self-training: what simple models that have seen a few labels say of texts without labels, a network learns.

The teacher is the linear model on n-grams, which learns from the texts, too (`tasks/linear/unlabelled.py`), mixed with a linear
model on the vectors of the frozen network. Its answers are taken for labels (Lee, 2013, "Pseudo-Label"); the student reads the
same network's text with them, so that one ordinary network answers nearly as well as both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.comparison.best.question import QuestionRows
from cloze.comparison.best.vectors import LABELLED, WITHOUT, scaling_of
from cloze.tasks.kinds.multiple_choice import LinearChoice
from cloze.tasks.linear.fit import fold_numbers
from cloze.tasks.linear.linear_task import LinearTask, LinearTexts, Outputs
from cloze.tasks.linear.linear_words import LinearLabelling
from cloze.tasks.linear.shares import Shares, choose_shares
from cloze.tasks.linear.unlabelled import fit_with_texts
from cloze.tasks.linear.vectors import Vectors, fit_vectors
from cloze.tasks.mixture import pooled
from cloze.tasks.task import selected

#: Values of a student's recipe: it reads each of its texts twice.
STUDENT = ("training.epochs=2", "task.patience=0")


def teach(rows: QuestionRows, vectors: Mapping[str, Vectors], learned: NDArray[np.bool_] | None = None) -> list[tuple[str, str]]:
    """Texts without labels, with the answers of a teacher that has `learned` some of the labelled rows (N,), or all."""
    learned = np.ones(len(rows.labelled), bool) if learned is None else learned
    train = selected(rows.labelled, np.flatnonzero(learned).tolist())
    words = fit_with_texts(rows.kind, train, rows.texts, labels=rows.labels)
    model, held = fit_vectors(rows.linear, train, vectors[LABELLED][learned], scaling_of(vectors))
    texts = selected(rows.texts, range(len(vectors[WITHOUT])))
    shares = shares_of(rows, train, held, words.held)
    answers = pooled(rows.linear, model.outputs(vectors[WITHOUT], texts), words.linear.outputs(texts), *shares)
    return [(text, rows.labels[number]) for text, number in zip(texts.texts, answers.argmax(1), strict=True)]


def shares_of(rows: QuestionRows, examples: Any, first: Outputs, second: Outputs) -> Shares:
    """How two systems are mixed best, by their answers to examples that they have not seen."""
    task = rows.linear
    return choose_shares(
        lambda share, sharp: task.loss(examples, pooled(task, first, second, share, sharp)), len(task.targets(examples)),
        sharpens=task.estimator.sharpens,
    )


def write_rows(
    rows: QuestionRows, folder: Path, learned: NDArray[np.bool_] | None = None, taught: Sequence[tuple[str, str]] = ()
) -> dict[str, Path]:
    """Files of rows to train on and of dev rows: four fifths and one fifth of the labelled rows that are `learned` (N,), of all
    without it. What was `taught` is trained on, too."""
    numbers = np.arange(len(rows.labelled)) if learned is None else np.flatnonzero(learned)
    held = (fold_numbers(rows.linear, selected(rows.labelled, numbers.tolist())) == 0) & ~_first_of_class(rows, numbers)
    parts = {"train": selected(rows.labelled, numbers[~held].tolist()), "dev": selected(rows.labelled, numbers[held].tolist())}
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"{part}.jsonl" for part in parts}
    for part, examples in parts.items():
        records = list(records_of(rows.linear, examples))
        records += [_record(rows.kind, (text,), label) for text, label in taught if part == "train"]
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        paths[part].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def _first_of_class(rows: QuestionRows, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are the first of their class, so that a network that trains on them knows every class; (N,)."""
    first = np.zeros(len(numbers), bool)
    classes = rows.classes
    if classes is not None:
        first[np.unique(classes[numbers], return_index=True)[1]] = True
    return first


@singledispatch
def records_of(linear: LinearTask, examples: Any) -> Iterator[dict[str, Any]]:
    """Examples with answers as JSON objects that the task reads."""
    raise NotImplementedError(f"{type(linear).__name__} has no records")


@records_of.register(LinearTexts)
@records_of.register(LinearChoice)
def _texts_as_records(linear: LinearTask, examples: Any) -> Iterator[dict[str, Any]]:
    return (_record(linear.task, *row) for row in zip(examples.rows(), examples.require_labels(), strict=True))


@records_of.register
def _words_as_records(linear: LinearLabelling, examples: Any) -> Iterator[dict[str, Any]]:
    task = linear.task
    return ({task.text: words, task.label: labels} for words, labels in zip(examples.words, examples.labels, strict=True))


def _record(kind: Any, texts: Sequence[Any], answer: Any) -> dict[str, Any]:
    """A row of a task as a JSON object."""
    second = {} if len(texts) == 1 else {kind.text_b: texts[1]}
    return {kind.text: texts[0], **second, kind.label: answer}
