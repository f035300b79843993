"""The engine `translation`: TransE in compiled code, fact by fact, by threads that change the same vectors without locks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze import kernels, rng
from cloze.batching import Cursor, Feed
from cloze.engines.conditions import is_for, require_kernel, single, unlike_sgd
from cloze.engines.tables import AlignedTable
from cloze.kernels.vectors.arguments import GraphFacts, TranslationBuffers, padded
from cloze.knowledge.negatives import COIN, ENTITY, SIDE, Corruption
from cloze.knowledge.triples import BoundTriples
from cloze.networks.static.graph_vectors import GraphVectors
from cloze.objectives import Loss
from cloze.objectives.distances.margin import Margin
from cloze.registry import register
from cloze.training.engine import ProgressUnit, Steps
from cloze.training.run import Run

_FACTS_AT_ONCE = 20_000  # long compared with handing out the work, short compared with an epoch


class _Shape(NamedTuple):
    """The parts of a run of graph vectors."""

    entry: str
    feed: Feed
    network: GraphVectors
    objective: Margin


@register("engine", "translation")
class TranslationEngine:
    """Trains `graph_vectors` on `triples` by `margin` with plain `sgd`, fact by fact.

    A step is `training.batch` facts of the plan, divided equally among the threads. A fact moves its own rows and those of the
    wrong triples that break the margin at once, by the rate of the step divided as `training.divide` says; entities that moved
    get the length 1 again. The loop differs: it sums the gradients of a step and updates once. With one fact per step both do
    the same. With one thread a run can be repeated bit for bit, with more it cannot.
    """

    name = "translation"
    cpu_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is a margin."""
        return is_for(run, Margin)

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
        shape = _shape_of(run)
        return shape if isinstance(shape, str) else unlike_sgd(run)

    def require(self, run: Run) -> str:
        """A hint if the kernel must be compiled first. Raises `MissingExtra` without numba."""
        shape = _shape_of(run)
        assert not isinstance(shape, str)
        return require_kernel(
            "translation", "training vectors of a graph in compiled code", lambda module: (_kernel_of(shape.network),)
        )

    def begin(self, steps: Steps) -> TranslationTrainer:
        """Compile the kernel and start."""
        return TranslationTrainer(steps, threads=torch.get_num_threads())


def _shape_of(run: Run) -> _Shape | str:
    setup = single(run)
    if isinstance(setup, str):
        return setup
    feed, network, objective = setup.feed, setup.network, setup.objective
    if not isinstance(feed.source, BoundTriples) or feed.edits or feed.packing:
        return "the data are not triples without edits"
    if feed.source.width < 2:
        return "the facts have no negatives"
    if not isinstance(network, GraphVectors) or network.unit == "read":
        return "the network is not graph_vectors with unit updated or free"
    if not isinstance(objective, Margin) or setup.weighted.read:
        return "the objective is not margin on the distance of the network"
    return _Shape(setup.entry, feed, network, objective)


def _kernel_of(network: GraphVectors) -> Any:
    return kernels.find("translation").translation(padded(network.width), int(network.norm), network.unit == "updated")


class TranslationTrainer:
    """TransE at work on the rows of the table, which it changes in place."""

    def __init__(self, steps: Steps, *, threads: int) -> None:
        shape = _shape_of(steps.run)
        assert not isinstance(shape, str)  # or the engine would not fit
        self.steps, self.threads, self.feed = steps, threads, shape.feed
        data: Any = steps.run.data
        self.batch: int = data.batch
        source: Any = shape.feed.source
        self.source: BoundTriples = source
        self.negatives = source.width - 1
        divisors = {"targets": self.batch * self.negatives, "rows": self.batch, "nothing": 1}
        self.unit = ProgressUnit("facts", 3.0 * (1 + self.negatives))  # the fact and its wrong triples have three ids each
        self.divisor = float(divisors[steps.run.training.divide])
        self.by = np.float32(shape.objective.by)
        self.table = AlignedTable(shape.network.embeddings.weight)
        self.kernel = _kernel_of(shape.network)
        self.facts = facts_of(source)
        self.works = [TranslationBuffers.of(self.negatives, self.table.padded) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.table.take()
        if shape.network.unit == "updated" and not steps.done:  # as the loop does before its first step
            with torch.no_grad():
                shape.network._shorten()
        self._work(0, *_nothing())

    def train(self) -> None:
        """Steps of some 20,000 facts together, or fewer if something is due."""
        self.table.take()
        feed, cursor, rates = self.feed, self.steps.cursor, list[float]()
        left = max((feed.row_count(cursor.epoch) - cursor.row) // self.batch, 1)
        many = min(max(_FACTS_AT_ONCE // self.batch, 1), left)
        runs, after = feed.advance(cursor, many * self.batch)
        tokens = self.unit.tokens * self.batch
        while len(rates) < many and self.steps.ready():
            rates.append(self.steps.rate())
            done = len(rates)
            here = after if done == many else Cursor(cursor.epoch, cursor.row + done * self.batch)
            if self.steps.count(here, tokens=tokens, examples=self.batch, flops=0.0):
                break
        facts, keys = self._items(runs, len(rates) * self.batch)
        totals = self._run(facts, keys, np.repeat(np.array(rates) / self.divisor, self.batch).astype(np.float32))
        loss = Loss(torch.tensor(totals[0], dtype=torch.float64), {"correct": torch.tensor(totals[1], dtype=torch.float64)})
        self.steps.report(loss, targets=float(len(facts) * self.negatives), tokens=tokens * len(rates), flops=0.0)

    def sync_parameters(self) -> None:
        """Give the table back its own shape."""
        self.table.give_back()

    def _items(self, runs: Any, count: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The first `count` facts of these rows, by their place among the known ones, and the keys of their random numbers."""
        facts, keys = [], []
        for epoch, rows in runs:
            plan = self.source.plan(epoch, self.feed.exercise.max_tokens)
            facts.append(plan.order[rows])
            keys.append(self.source.draw(plan, rows).keys)
        return np.concatenate(facts)[:count], np.concatenate(keys)[:count]

    def _run(self, facts: NDArray[np.int64], keys: NDArray[np.uint64], rates: NDArray[np.float32]) -> NDArray[np.float64]:
        """Train on facts, an equal part per thread. Returns the loss and the number of right comparisons."""
        if self.pool is None:
            return self._work(0, facts, keys, rates)
        borders = np.linspace(0, len(facts), self.threads + 1).astype(np.int64)
        parts = [slice(a, b) for a, b in zip(borders[:-1], borders[1:], strict=True)]
        running = [self.pool.submit(self._work, n, facts[p], keys[p], rates[p]) for n, p in enumerate(parts)]
        return np.sum([future.result() for future in running], axis=0)

    def _work(
        self, number: int, facts: NDArray[np.int64], keys: NDArray[np.uint64], rates: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        totals = np.zeros(2)
        self.kernel(self.table.rows, self.facts, facts, keys, rates, self.by, self.works[number], totals)
        return totals


def _nothing() -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float32]]:
    """No facts: the kernel is compiled or loaded before any time is measured."""
    return np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.float32)


def facts_of(source: BoundTriples) -> GraphFacts:
    """The facts of a source as the kernel takes them. Its numbers are in range: a store is checked when it is opened."""
    corruption: Corruption = source.corruption
    n = corruption.negatives
    tokens = np.ascontiguousarray(source.store.triples[source.facts] + np.int32(1), np.int32)
    salts = np.array([[int(part) for part in rng.salts("main", name)] for name in (SIDE, COIN, ENTITY)], np.uint64)
    counts = np.array([n.either, n.head, n.tail, n.one_side, corruption.entities, n.known == "exclude"], np.int64)
    heads, tails = corruption.heads, corruption.tails
    return GraphFacts(
        tokens, corruption.rate, heads.of, heads.start, heads.less, tails.of, tails.start, tails.less, salts, counts
    )
