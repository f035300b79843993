"""The engine `glove`: compiled, lock-free AdaGrad over the cells of a co-occurrence matrix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze import kernels
from cloze.corpus.counting.cells import CellPlan
from cloze.corpus.counting.cooccurrences import BoundCooccurrences
from cloze.engines.conditions import Single, is_for, require_kernel, single, unlike
from cloze.objectives import Loss
from cloze.objectives.static.cooccurrence_regression import CooccurrenceRegression
from cloze.registry import register
from cloze.training.engine import ProgressUnit, Steps
from cloze.training.optimizers.static_optimizers import GloveAdagrad
from cloze.training.run import Run

Job = tuple[NDArray[np.int64], NDArray[np.uint64]]


@register("engine", "glove")
class GloveEngine:
    """Trains `word_vectors` on `cooccurrences` by `cooccurrence_regression` with `glove_adagrad`, cell by cell.

    A step is `training.batch` cells in the order of the plan, divided equally among the threads. Threads change vectors without
    locks: with one thread a run can be repeated bit for bit, with more it cannot. The loop differs: it sums the gradients of a
    step and updates once. Both lower the same loss.
    """

    name = "glove"
    cpu_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is a regression on co-occurrences."""
        return is_for(run, CooccurrenceRegression)

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
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
        """A hint if the kernel must be compiled first. Raises `MissingExtra` without numba."""
        return require_kernel("glove", "training GloVe in compiled code", lambda module: (module.glove(_width(run)),))

    def begin(self, steps: Steps) -> GloveTrainer:
        """Start training."""
        return GloveTrainer(steps, threads=torch.get_num_threads())


def _width(run: Run) -> int:
    network: Any = next(iter(run.step.networks.values()))
    width: int = network.width
    return width


class GloveTrainer:
    """GloVe at work on views of the parameters and of the optimizer's state, which it changes in place."""

    unit = ProgressUnit("cells", 2.0)

    def __init__(self, steps: Steps, *, threads: int) -> None:
        setup = single(steps.run)
        assert isinstance(setup, Single)  # or the engine would not fit
        self.steps, self.threads, self.feed = steps, threads, setup.feed
        data: Any = steps.run.data
        self.batch: int = data.batch
        source: Any = self.feed.source
        self.source: BoundCooccurrences = source
        network, objective = setup.network, setup.objective
        optimizer: Any = steps.run.optimizer
        cell = {"cell": torch.zeros(1, 2, dtype=torch.long)}
        self.flops_per_cell = network.flops(cell, want=frozenset({"association"}), positions=None)
        self.settings = np.array([objective.limit, objective.power, 0.0, optimizer.clip])
        self.words = self._side(network.embeddings.weight, network.bias)
        self.contexts = self._side(network.contexts.weight, network.context_bias)
        self.kernel = kernels.find("glove").glove(network.width)
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.plan = lru_cache(maxsize=2)(self._plan)

    def _side(self, vectors: torch.nn.Parameter, biases: torch.nn.Parameter) -> tuple[NDArray[np.float32], ...]:
        """Vectors, biases and the sums of squares of both, sharing the tensors' memory."""
        sums = (self.steps.optimizer_state(parameter)["sum"] for parameter in (vectors, biases))
        return tuple(_view(tensor) for tensor in (vectors, biases, *sums))

    def _plan(self, epoch: int) -> CellPlan:
        return self.source.plan(epoch, self.feed.exercise.max_tokens)

    def train(self) -> None:
        """One step: `batch` cells of the plan."""
        self.settings[2] = self.steps.rate()
        runs, after = self.feed.advance(self.steps.cursor, self.batch)
        totals = np.zeros(2)
        for epoch, rows in runs:
            totals += self._train(self.plan(epoch), int(rows[0]), int(rows[-1]) + 1)

        cells = float(self.batch)
        flops = cells * self.flops_per_cell
        self.steps.count(after, tokens=2 * cells, examples=cells, flops=flops)
        loss = Loss(torch.tensor(totals[0]), {"error": torch.tensor(totals[1])})
        self.steps.report(loss, targets=cells, tokens=2 * cells, flops=flops)

    def sync_parameters(self) -> None:
        """Nothing to do: the kernel writes into the parameters."""

    def _train(self, plan: CellPlan, low: int, high: int) -> NDArray[np.float64]:
        """Train on items `low` … `high` of an epoch, an equal part per thread. Returns the loss and the squared differences."""
        borders = np.linspace(low, high, self.threads + 1).astype(np.int64)
        jobs = [_jobs(plan, int(a), int(b)) for a, b in zip(borders[:-1], borders[1:], strict=True)]
        if self.pool is None:
            return self._work(jobs[0])
        return np.sum(list(self.pool.map(self._work, jobs)), axis=0)

    def _work(self, job: Job) -> NDArray[np.float64]:
        cells = self.source.cells
        totals = np.zeros(2)
        self.kernel((cells.rows, cells.columns, cells.counts), *job, self.words, self.contexts, self.settings, totals)
        return totals


def _jobs(plan: CellPlan, low: int, high: int) -> Job:
    """Items `low` … `high` as parts of pieces: (first cell, cells of the piece, from, to), and the pieces' keys."""
    first, last = np.searchsorted(plan.ends, [low, max(high - 1, low)], "right") - 1
    blocks = np.arange(first, last + 1)
    begins, ends = plan.ends[blocks], plan.ends[blocks + 1]
    inner = np.maximum(low, begins) - begins, np.minimum(high, ends) - begins
    return np.stack([plan.starts[blocks], ends - begins, *inner], axis=1), plan.keys[blocks]


def _view(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().numpy()
    return array
