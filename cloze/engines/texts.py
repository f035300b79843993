"""The engine `lock_free_texts`: fastText's classifier in compiled code, by threads that change the same rows without locks.

A step is `training.batch` texts, each of which is an update of its own (`cloze/kernels/vectors/texts.py`). The kernel reads ids
from the memory-mapped store and finds the rows of their n-grams itself. The loop, which is the reference, sums the gradients of a
step and updates once; with a batch of one text both do the same. With one thread a run can be repeated, and resumed, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze import kernels, rng
from cloze.batching import Feed
from cloze.corpus import BoundRecords
from cloze.engines.conditions import is_for, require_kernel, single, unlike_sgd
from cloze.engines.tables import AlignedTable, TurnedTable
from cloze.engines.threads import NO_KEYS, Arrays, Threads
from cloze.exercises.frame import Frame, split_template
from cloze.exercises.targets.label import Label
from cloze.exercises.targets.value import Value
from cloze.kernels.vectors.arguments import HIERARCHICAL, ONE_VERSUS_ALL, SOFTMAX, RecordClasses, Terms, TextJob, TextWork
from cloze.networks.static.bag_of_ngrams import BagOfNGrams
from cloze.objectives.static.linear_classification import LinearClassification
from cloze.registry import register
from cloze.training.engine import Steps
from cloze.training.run import Run


class _Shape(NamedTuple):
    """The parts of a run of the classifier; `end`: the id behind every text, -1 for none."""

    entry: str
    feed: Feed
    source: BoundRecords
    network: BagOfNGrams
    objective: LinearClassification
    end: int


@register("engine", "lock_free_texts")
class LockFreeTexts:
    """Trains `bag_of_ngrams` on records by `linear_classification` with plain `sgd`."""

    name = "lock_free_texts"
    cpu_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is this one."""
        return is_for(run, LinearClassification)

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
        shape = shape_of(run)
        if isinstance(shape, str):
            return shape
        if not (shape.network.embeddings.weight.requires_grad and shape.objective.head.weight.requires_grad):
            return "the recipe does not train everything"
        return unlike_sgd(run) or ("" if run.training.divide == "nothing" else "training.divide is not nothing")

    def require(self, run: Run) -> str:
        """A hint if the kernel must be compiled first. Raises `MissingExtra` without numba."""
        return require_kernel("texts", "training the classifier in compiled code", lambda module: (module.train_texts,))

    def begin(self, steps: Steps) -> TextTrainer:
        """Compile the kernel and start."""
        return TextTrainer(steps, threads=torch.get_num_threads())


def shape_of(run: Run) -> _Shape | str:
    """The parts of a run of the classifier, or why it is not one."""
    setup = single(run)
    if isinstance(setup, str):
        return setup
    entry, feed, network, objective, _ = setup
    if feed.packing or not isinstance(feed.source, BoundRecords) or feed.source.store.texts > 1:
        return "the data are not records with one text"
    if not isinstance(objective, LinearClassification):
        return "the objective is not linear_classification"
    edits: list[Any] = [placed.edit for placed in feed.edits]
    right = len(edits) == 2 and isinstance(edits[0], Frame) and isinstance(edits[1], Value if objective.several else Label)
    if not right or feed.source.source.stride is not None:
        return "the exercise is not frame and label"
    if not isinstance(network, BagOfNGrams) or network.bag is None:
        return "the network is not bag_of_ngrams"
    template = split_template(edits[0].template)
    roles = [text for kind, text in template[1:] if kind == "role"]
    if template[0] != ("part", "A") or len(roles) != len(template) - 1 or roles not in ([], ["[EOS]"]):
        return "the template is neither {A} nor {A} [EOS]"
    end = int(feed.source.store.header["roles"]["[EOS]"]) if roles else -1
    return _Shape(entry, feed, feed.source, network, objective, end)


class TextTrainer(Threads):
    """The classifier at work: all threads take jobs of several steps until something is due."""

    def __init__(self, steps: Steps, *, threads: int) -> None:
        shape = shape_of(steps.run)
        assert not isinstance(shape, str) and shape.network.bag is not None
        super().__init__(steps, shape.entry, shape.feed, threads=threads)
        self.shape = shape
        self.terms = Terms.of(shape.network.bag, shape.end)
        self.classes = _classes(shape)
        rows: Any = shape.network.embeddings.weight
        output: Any = shape.objective.head.weight
        self.inputs = AlignedTable(rows)
        self.outputs = AlignedTable(output) if self.classes.formula == HIERARCHICAL else TurnedTable(output)
        most = self.terms.most(min(int(shape.source.store.lengths.max(initial=1)), shape.feed.length))
        self.works = [TextWork.of(most, self.inputs.padded, self.outputs.padded) for _ in range(threads)]
        self.kernel = kernels.find("texts").train_texts
        self.compile(np.zeros(0, np.int64), NO_KEYS)

    def train_rows(self, rows: Arrays, rates: NDArray[np.float32], number: int, totals: NDArray[np.float64]) -> None:
        """Train on texts: first token, length, record and random key of each."""
        starts, lengths, records, keys = rows
        if (weights := self.shape.objective.class_weights) is not None:  # of a text's loss, and so of its step
            rates = rates * weights.numpy()[self.classes.labels[self.classes.begins[records]]]
        job = TextJob(self.tokens, starts, lengths, records, rates, keys)
        self.kernel(job, self.terms, self.classes, self.inputs.rows, self.outputs.rows, self.works[number], totals)

    def gather(self, runs: Any) -> Arrays:
        """First token, length, record and random key of each row in `runs`."""
        seed, entry, source, max_tokens = self.steps.run.seed, self.entry, self.shape.source, self.feed.exercise.max_tokens
        pieces = []
        for epoch, rows in runs:
            plan = source.plan(epoch, max_tokens)
            chosen = plan.order[rows]
            keys = rng.row_keys(seed, "lock_free_texts", entry, epoch, items=chosen)
            records = source.records[plan.passages.record[chosen]]
            pieces.append((plan.start[chosen], plan.passages.length[chosen].astype(np.int64), records, keys))
        return tuple(np.concatenate(part) for part in zip(*pieces, strict=True))


def _classes(shape: _Shape) -> RecordClasses:
    """The classes of all records, and the loss, in the form that the kernel takes."""
    store, objective = shape.source.store, shape.objective
    labels = np.asarray(store.columns["label"]).astype(np.int64)
    begins = np.arange(store.documents + 1) if store.bounds is None else np.asarray(store.bounds)
    formula = {"softmax": SOFTMAX, "one_versus_all": ONE_VERSUS_ALL, "hierarchical": HIERARCHICAL}[objective.formula]
    if objective.codes is None:
        none = np.zeros((1, 1), np.int32)
        return RecordClasses(begins, labels, formula, objective.classes, none, none.astype(np.int8), none[0])
    points, bits, depths = objective.codes
    return RecordClasses(begins, labels, formula, objective.classes, points, bits, depths)
