"""The baselines of a run's objectives, counted on its own examples before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.batching import Cursor
from cloze.batching.data import Data, MicroBatch
from cloze.corpus import Store
from cloze.corpus.stores.entropy import Entropy, entropy_of
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import ObjectiveSpec, PassSpec, Recipe
from cloze.training.baselines import Baseline
from cloze.training.step import StepModule

_COUNTED_TARGETS = 50_000  # targets that are counted at most
_ROWS = 2048  # and rows that are made for them

Counts = NDArray[np.int64]


def baselines(recipe: Recipe, data: Data, store: Store, step: StepModule) -> dict[str, Baseline]:
    """The baseline of every objective whose targets are in the examples, by its name in the log.

    There is none for an objective whose targets an earlier pass makes (ELECTRA's replaced tokens), or whose loss is not a
    likelihood of the target. The frequencies of targets are counted on training examples; for tokens, the frequencies in the text
    are the prior. The cross-entropy is measured on held-out examples, or on the same examples if nothing is held out. Labelled
    text is counted for at most one epoch, because its targets are the same in the next.
    """
    data = data.whole()  # losses in the log are means over all processes
    text: Entropy | None = None
    references: dict[str, Baseline] = {}
    for name, entry in recipe.step_entries.items():
        objectives = [
            (pass_, objective) for pass_ in entry.passes for objective in pass_.objectives
            if objective.set is not None and objective.weight != 0
        ]
        most = _ROWS if recipe.task is None else min(_ROWS, data.rows_in_epoch(name))
        fields = partial(step.fields, name)
        counted = _counted(_training(data, name, most), objectives, fields)
        measured = _counted(data.held_out(name), objectives, fields)
        for pass_, objective in objectives:
            counts = counted.get((pass_.name, objective.name))
            if counts is None or not counts.sum():
                continue
            head = class_of("objective", objective.part.name)
            if not head.likelihood:
                continue
            if head.of_tokens and text is None:
                text = entropy_of(store.sample)
            prior = store.counts() if head.of_tokens else np.ones(len(counts), np.int64)
            targets = measured.get((pass_.name, objective.name), counts)
            if not targets.sum():
                continue
            weights = objective.part.arguments.get("class_weights")
            if isinstance(weights, Sequence) and not isinstance(weights, str):  # a target then counts as much as its class weighs
                counts, targets = (column * np.array(weights)[: len(column)] for column in (counts, targets))
            references[label_of(recipe, name, objective)] = Baseline(
                chance=float(np.log(len(prior))), single=_cross_entropy(counts, prior, targets, as_much=head.of_tokens),
                pairs=text.pairs if head.of_tokens and text is not None else None,
            )
    return references


def label_of(recipe: Recipe, entry: str, objective: ObjectiveSpec) -> str:
    """The name of an objective in the log; with several entries, the name of its entry precedes it."""
    return objective.name if len(recipe.step_entries) == 1 else f"{entry}/{objective.name}"


def _training(data: Data, entry: str, most: int) -> Iterator[MicroBatch]:
    """Micro-batches of `most` rows from the beginning of the first epoch, where the run starts as well."""
    cursor, rows = Cursor(), 0
    while rows < most:
        micros, cursor = data.next(entry, cursor)
        rows += sum(micro.examples for micro in micros)
        yield from micros


def _counted(
    micros: Iterator[MicroBatch], objectives: list[tuple[PassSpec, ObjectiveSpec]], fields: Callable[[str, Batch], Batch]
) -> dict[tuple[str, str], Counts]:
    """How often each target of each objective occurs; counting stops when every objective has enough targets. `fields` are those
    that the pass of a name reads."""
    counts: dict[tuple[str, str], Counts] = {}
    for micro in micros:
        for pass_, objective in objectives:
            batch, key = fields(pass_.name, micro.batch), f"targets/{objective.set}"
            if key in batch:
                targets, weights = batch[key].numpy().ravel(), batch.get(f"weights/{objective.set}")
                seen = np.bincount(targets if weights is None else targets[weights.numpy().ravel() > 0])
                counts[pass_.name, objective.name] = _sum(counts.get((pass_.name, objective.name), np.zeros(0, np.int64)), seen)
        if counts and all(counts[key].sum() >= _COUNTED_TARGETS for key in counts):
            break
    return counts


def _sum(counts: Counts, other: Counts) -> Counts:
    total = np.zeros(max(len(counts), len(other)), np.int64)
    total[: len(counts)] += counts
    total[: len(other)] += other
    return total


def _cross_entropy(counts: Counts, prior: Counts, targets: Counts, *, as_much: bool) -> float:
    """Nats per target under the counted frequencies combined with the prior: with equal weight if `as_much` (there are too few
    targets for rare ids), else with hardly any."""
    size = max(len(counts), len(prior), len(targets))
    seen, before, target = (np.pad(array, (0, size - len(array))).astype(float) for array in (counts, prior + 1, targets))
    shares = seen + before * (seen.sum() / before.sum() if as_much else 1.0)
    shares /= shares.sum()
    return float(-(target[target > 0] * np.log(shares[target > 0])).sum() / target.sum())
