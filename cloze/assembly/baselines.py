"""The baselines of a run's objectives, counted on its own examples before the first step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.assembly.parts import builder_of, class_of
from cloze.assembly.recipe import ObjectiveSpec, PassSpec, Recipe
from cloze.batching import Cursor
from cloze.batching.data import Data, MicroBatch
from cloze.corpus import Store
from cloze.corpus.entropy import Entropy, entropy_of
from cloze.training.baselines import Baseline

_ANSWERS = 50_000  # answers that are counted at most
_ROWS = 8192  # and rows that are made for them

Counts = NDArray[np.int64]


def baselines(recipe: Recipe, data: Data, store: Store) -> dict[str, Baseline]:
    """The baseline of every objective whose answers the examples hold, by the name that it has in the log.

    Answers that a pass makes for a later one are not in the examples (ELECTRA's replaced tokens): their objectives have none, nor
    have those whose loss is no likelihood of the answer.
    The shares of answers are counted on training examples, for a vocabulary with those of the text as a prior, and measured
    on held-out examples, or on the same ones where nothing is held out. Labelled text is counted for one epoch at most: its
    answers are the same in the next.
    """
    text: Entropy | None = None
    found: dict[str, Baseline] = {}
    for name, entry in recipe.step_entries.items():
        asked = [(run, objective) for run in entry.passes for objective in run.objectives if objective.set is not None]
        most = _ROWS if recipe.task is None else min(_ROWS, data.items(name))
        counted = _counted(_training(data, name, most), asked)
        measured = _counted(data.held_out(name), asked)
        for run, objective in asked:
            counts = counted.get((run.name, objective.name))
            if counts is None or not counts.sum():
                continue
            builder = builder_of("objective", objective.part.name)
            if not class_of("objective", objective.part.name).likelihood:
                continue
            vocabulary = "vocab_size" in inspect.signature(builder).parameters
            if vocabulary and text is None:
                text = entropy_of(store)
            prior = store.counts() if vocabulary else np.ones(len(counts), np.int64)
            answers = measured.get((run.name, objective.name), counts)
            found[label_of(recipe, name, objective)] = Baseline(
                chance=float(np.log(len(prior))), single=_cross_entropy(counts, prior, answers, as_much=vocabulary),
                pairs=text.pairs if vocabulary and text is not None else None,
            )
    return found


def label_of(recipe: Recipe, entry: str, objective: ObjectiveSpec) -> str:
    """The name of an objective in the log: its own, behind that of its entry where there are several."""
    return objective.name if len(recipe.step_entries) == 1 else f"{entry}/{objective.name}"


def _training(data: Data, entry: str, most: int) -> Iterator[MicroBatch]:
    """Micro-batches of `most` rows from the beginning of the first epoch; a run that follows begins there again."""
    cursor, rows = Cursor(), 0
    while rows < most:
        micros, cursor = data.next(entry, cursor)
        rows += sum(micro.examples for micro in micros)
        yield from micros


def _counted(micros: Iterator[MicroBatch], asked: list[tuple[PassSpec, ObjectiveSpec]]) -> dict[tuple[str, str], Counts]:
    """How often each answer of each objective comes up, until every objective has enough of them."""
    counts: dict[tuple[str, str], Counts] = {}
    for micro in micros:
        for run, objective in asked:
            view: Mapping[str, Any] = micro.batch.view(run.view)
            key = f"targets/{objective.set}"
            if key in view:
                seen = np.bincount(view[key].numpy().ravel())
                counts[run.name, objective.name] = _sum(counts.get((run.name, objective.name), np.zeros(0, np.int64)), seen)
        if counts and all(counts[key].sum() >= _ANSWERS for key in counts):
            break
    return counts


def _sum(one: Counts, other: Counts) -> Counts:
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


def _cross_entropy(counts: Counts, prior: Counts, answers: Counts, *, as_much: bool) -> float:
    """Nats per answer under the counted shares with those of the prior, which count `as_much` (answers are too few for rare
    ids) or hardly."""
    size = max(len(counts), len(prior), len(answers))
    seen, before, asked = (np.pad(array, (0, size - len(array))).astype(float) for array in (counts, prior + 1, answers))
    shares = seen + before * (seen.sum() / before.sum() if as_much else 1.0)
    shares /= shares.sum()
    return float(-(asked[asked > 0] * np.log(shares[asked > 0])).sum() / asked.sum())
