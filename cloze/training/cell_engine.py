"""The engine `glove`: compiled, lock-free AdaGrad over the cells of a co-occurrence matrix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.cells import CellPlan
from cloze.corpus.cooccurrences import BoundCooccurrences
from cloze.networks.word_vectors import WordVectors
from cloze.objectives import Loss
from cloze.objectives.cooccurrence_regression import CooccurrenceRegression
from cloze.registry import register
from cloze.training.engine import on_processor, require_numba
from cloze.training.interrupt import Interrupt
from cloze.training.lone import Lone, lone
from cloze.training.run import Run
from cloze.training.session import Session
from cloze.training.static_optimizers import GloveAdagrad

Job = tuple[NDArray[np.int64], NDArray[np.uint64]]


@register("engine", "glove")
class GloveEngine:
    """Trains `word_vectors` on `cooccurrences` by `cooccurrence_regression` with `glove_adagrad`, cell by cell.

    A step is `training.batch` cells in the order of the plan, a part for every thread. Threads change vectors without locks:
    with one thread a run can be repeated bit for bit, with more it cannot. The loop adds up a step's gradients instead and
    updates once; both lower the same loss.
    """

    name = "glove"
    processor_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether it is a regression on co-occurrences."""
        found = lone(run)
        return not isinstance(found, str) and isinstance(found.objective, CooccurrenceRegression)

    def fits(self, run: Run) -> str:
        """Why this run cannot be trained so; empty if it can."""
        wrong = unlike(run, BoundCooccurrences, CooccurrenceRegression)
        if wrong:
            return wrong
        if not isinstance(run.optimizer, GloveAdagrad):
            return "the optimizer is not glove_adagrad"
        if run.training.clip is not None or run.training.divide != "nothing":
            return "training.clip is set, or training.divide is not nothing"
        network: Any = next(iter(run.step.networks.values()))
        return "" if network.bias is not None else "the network has no biases"

    def require(self, run: Run) -> str:
        """A word of compiling the first time. Raises `MissingExtra` without numba."""
        return require_numba("training GloVe in compiled code", lambda: _kernels(run))

    def begin(self, session: Session) -> GloveWorker:
        """The worker of a session."""
        return GloveWorker(session, threads=torch.get_num_threads())


def unlike(run: Run, source: type, objective: type, *, anywhere: bool = False) -> str:
    """Why a run is not one network of word vectors, one source of this kind and one objective of that kind, on the CPU or
    `anywhere`."""
    found = lone(run)
    if isinstance(found, str):
        return found
    if not isinstance(found.feed.source, source) or found.feed.edits:
        return f"the data are not {source.__name__.removeprefix('Bound').lower()} without edits"
    if not isinstance(found.objective, objective):
        return f"the objective is not {objective.__name__}"
    if not isinstance(found.network, WordVectors) or found.network.buckets:
        return "the network is not word_vectors without n-grams"
    return "" if anywhere or on_processor(run) else "the device is not the CPU"


def _kernels(run: Run) -> tuple[Any, ...]:
    from cloze.training.kernels.glove import glove

    network: Any = next(iter(run.step.networks.values()))
    return (glove(network.width),)


class GloveWorker:
    """GloVe under way: views of the parameters and of the optimiser's state, changed in place."""

    def __init__(self, session: Session, *, threads: int) -> None:
        from cloze.training.kernels.glove import glove

        found = lone(session.run)
        assert isinstance(found, Lone)  # or the engine would not fit
        self.session, self.threads, self.entry = session, threads, found.entry
        data: Any = session.run.data
        self.data = data
        self.objective_name = session.name(self.entry, found.weighted.name)
        network, objective = found.network, found.objective
        optimizer: Any = session.run.optimizer
        one = {"cell": torch.zeros(1, 2, dtype=torch.long)}
        self.flops_a_cell = network.flops(one, want=frozenset({"association"}), positions=None)
        self.settings = np.array([objective.limit, objective.power, 0.0, optimizer.clip])
        self.words = self._side(network.embeddings.weight, network.bias)
        self.contexts = self._side(network.contexts.weight, network.context_bias)
        self.kernel = glove(network.width)
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.plan = lru_cache(maxsize=2)(self._plan)

    def _side(self, vectors: torch.nn.Parameter, biases: torch.nn.Parameter) -> tuple[NDArray[np.float32], ...]:
        """Vectors, biases and the sums of squares of both, sharing the tensors' memory."""
        state = self.session.optimizer.state
        return tuple(_view(tensor) for tensor in (vectors, biases, state[vectors]["sum"], state[biases]["sum"]))

    def _plan(self, epoch: int) -> CellPlan:
        feed = self.data.feeds[self.entry]
        plan: CellPlan = feed.source.plan(epoch, feed.exercise.room)
        return plan

    def step(self, interrupt: Interrupt) -> None:
        """One step: `batch` cells of the plan, and whatever is due after it."""
        session = self.session
        if not session.ready(interrupt):
            return
        share = session.share
        session.learning_rate = session.run.rate(share, session.run.training.nominal_steps)
        self.settings[2] = session.learning_rate
        feed = self.data.feeds[self.entry]
        runs, after = feed.advance(session.progress.cursors[self.entry], self.data.batch)
        totals = np.zeros(2)
        for epoch, rows in runs:
            totals += self._train(self.plan(epoch), int(rows[0]), int(rows[-1]) + 1)

        cells = float(self.data.batch)
        loss = Loss(torch.tensor(totals[0]), {"error": torch.tensor(totals[1])})
        flops = cells * self.flops_a_cell
        before, share = session.advance({self.entry: after}, tokens=2 * cells, examples=cells, flops=flops)
        session.meter.add_losses({self.objective_name: loss})
        # The gradient's norm is not known here; the root of the squared differences stands for it, and is as finite.
        session.meter.add_step(
            session.step, torch.tensor(totals[1]).sqrt(), {self.objective_name: cells}, {self.objective_name: 1.0},
            tokens=2 * cells, cells=2 * cells, flops=flops,
        )
        session.attend(before, share)

    def settle(self) -> None:
        """Nothing: the kernel writes into the parameters."""

    def _train(self, plan: CellPlan, low: int, high: int) -> NDArray[np.float64]:
        """Train on items `low` … `high` of an epoch, in equal parts by as many threads; loss and squared differences."""
        borders = np.linspace(low, high, self.threads + 1).astype(np.int64)
        jobs = [_jobs(plan, int(a), int(b)) for a, b in zip(borders[:-1], borders[1:], strict=True)]
        if self.pool is None:
            return self._work(jobs[0])
        return np.sum(list(self.pool.map(self._work, jobs)), axis=0)

    def _work(self, job: Job) -> NDArray[np.float64]:
        cells = self.data.feeds[self.entry].source.cells
        totals = np.zeros(2)
        self.kernel((cells.rows, cells.columns, cells.counts), *job, self.words, self.contexts, self.settings, totals)
        return totals


def _jobs(plan: CellPlan, low: int, high: int) -> Job:
    """Items `low` … `high` as parts of pieces: (first cell, cells of the piece, from, to), and the pieces' keys."""
    first, last = np.searchsorted(plan.ends, [low, max(high - 1, low)], "right") - 1
    turns = np.arange(first, last + 1)
    begins, ends = plan.ends[turns], plan.ends[turns + 1]
    inner = np.maximum(low, begins) - begins, np.minimum(high, ends) - begins
    return np.stack([plan.starts[turns], ends - begins, *inner], axis=1), plan.keys[turns]


def _view(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().numpy()
    return found
