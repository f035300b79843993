"""Self-training: what simple models that have seen a few labels say of texts without labels, a network learns.

The teacher is the linear model on n-grams, which learns from the texts, too (`unlabelled.py`), mixed with a linear model on the
vectors of the frozen network. Its answers are taken for labels (Lee, 2013, "Pseudo-Label"); the student reads the same network's
text with them, so that one ordinary network answers nearly as well as both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.assembly.build import Loaded
from cloze.comparison.best.question import Rows
from cloze.decoding.embedding import embed, length_of, sentence_head
from cloze.decoding.reader import Reader
from cloze.tasks.linear.fit import fold_numbers
from cloze.tasks.linear.shares import Shares, choose_shares
from cloze.tasks.linear.task import Outputs
from cloze.tasks.linear.unlabelled import fit_with_texts
from cloze.tasks.linear.vectors import Scaling, Vectors, fit_vectors
from cloze.tasks.mixture import pooled
from cloze.tasks.task import selected

LABELLED, WITHOUT = "labelled", "without"  # arrays of vectors
TAUGHT = 4_000  # texts without labels that a student learns from, at most
#: Values of a student's recipe: it reads each of its texts twice.
STUDENT = ("training.epochs=2", "task.patience=0")


def vectors_of(loaded: Loaded, examples: Any) -> Vectors:
    """The vectors (N, W) of examples: those that a sentence encoder was trained to give, else the means of the states of the
    middle layer and of the top layer, one after the other. A network that reads one text at a time, as encoders of sentences and
    tables of words do, gives a pair both vectors and their absolute difference."""
    reader, head = Reader.of(loaded), sentence_head(loaded)
    network: Any = loaded.network
    depth = len(network.layers) if head is None and "layers" in network.gives and not network.of_words else 0
    layers = [depth // 2, -1] if depth > 1 else [-1]

    def read(texts: Sequence[str], others: Sequence[str] | None = None) -> Vectors:
        framed = reader.encode(texts, others, max_length=length_of(loaded))
        return np.concatenate([embed(reader, framed, layer=layer, head=head) for layer in layers], axis=1)

    if examples.others is None or not (head is not None or network.of_words):
        return read(examples.texts, examples.others)
    first, second = read(examples.texts), read(examples.others)
    return np.concatenate([first, second, np.abs(first - second)], axis=1)


def vectors_for(loaded: Loaded, rows: Rows) -> dict[str, Vectors]:
    """The vectors that a teacher needs: of labelled rows and of the first texts without labels."""
    vectors = {LABELLED: vectors_of(loaded, rows.labelled)}
    if rows.texts is not None:
        vectors[WITHOUT] = vectors_of(loaded, selected(rows.texts, range(min(TAUGHT, len(rows.texts)))))
    return vectors


def scaling_of(vectors: Mapping[str, Vectors]) -> Scaling:
    """The scaling of the vectors of labelled rows and of texts without labels."""
    return Scaling.of(np.concatenate([vectors[name] for name in (LABELLED, WITHOUT) if name in vectors]))


def teach(rows: Rows, vectors: Mapping[str, Vectors], learned: NDArray[np.bool_] | None = None) -> list[tuple[str, str]]:
    """Texts without labels, with the answers of a teacher that has `learned` some of the labelled rows (N,), or all."""
    learned = np.ones(len(rows.labelled), bool) if learned is None else learned
    train = selected(rows.labelled, np.flatnonzero(learned).tolist())
    words = fit_with_texts(rows.kind, train, rows.texts, labels=rows.labels)
    model, held = fit_vectors(rows.linear, train, vectors[LABELLED][learned], scaling_of(vectors))
    texts = selected(rows.texts, range(len(vectors[WITHOUT])))
    shares = shares_of(rows, train, held, words.held)
    answers = pooled(rows.linear, model.outputs(vectors[WITHOUT]), words.linear.outputs(texts), *shares)
    return [(text, rows.labels[number]) for text, number in zip(texts.texts, answers.argmax(1), strict=True)]


def shares_of(rows: Rows, examples: Any, first: Outputs, second: Outputs) -> Shares:
    """How two systems are mixed best, by their answers to examples that they have not seen."""
    task = rows.linear
    return choose_shares(
        lambda share, sharp: task.loss(examples, pooled(task, first, second, share, sharp)), len(examples),
        sharpens=task.estimator.sharpens,
    )


def write_rows(
    rows: Rows, folder: Path, learned: NDArray[np.bool_] | None = None, taught: Sequence[tuple[str, str]] = ()
) -> dict[str, Path]:
    """Files of rows to train on and of dev rows: four fifths and one fifth of the labelled rows that are `learned` (N,), of all
    without it. What was `taught` is trained on, too."""
    numbers = np.arange(len(rows.labelled)) if learned is None else np.flatnonzero(learned)
    held = (fold_numbers(len(numbers)) == 0) & ~_first_of_class(rows, numbers)
    parts = {"train": selected(rows.labelled, numbers[~held].tolist()), "dev": selected(rows.labelled, numbers[held].tolist())}
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"{part}.jsonl" for part in parts}
    for part, examples in parts.items():
        records = [_record(rows.kind, *row) for row in zip(examples.rows(), examples.known(), strict=True)]
        records += [_record(rows.kind, (text,), label) for text, label in taught if part == "train"]
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        paths[part].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def _first_of_class(rows: Rows, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are the first of their class, so that a network that trains on them knows every class; (N,)."""
    answers = rows.linear.targets(rows.labelled)[numbers]
    first = np.zeros(len(numbers), bool)
    if rows.labels and answers.ndim == 1:
        first[np.unique(answers, return_index=True)[1]] = True
    return first


def _record(kind: Any, texts: Sequence[str], answer: Any) -> dict[str, Any]:
    """A row of a task as a JSON object."""
    second = {} if len(texts) == 1 else {kind.text_b: texts[1]}
    return {kind.text: texts[0], **second, kind.label: answer}
