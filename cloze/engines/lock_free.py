"""The engine `lock_free`: skip-gram and CBOW in compiled code, by threads that change the same vectors without locks.

As in word2vec.c (Hogwild!, Niu et al., 2011). A step is `training.batch` rows of the plan; a thread takes several steps at a
time, some 20,000 words. The kernel reads ids from the memory-mapped store, drops frequent words and cuts windows itself. Each row
has random numbers of its own and the learning rate of its step. So with one thread a run can be repeated, and resumed, bit for
bit; with more threads the order of updates varies. Tokens are counted before subsampling.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze import rng
from cloze.batching import Cursor, Feed
from cloze.corpus.lines import BoundLines, LinePlan
from cloze.engines.conditions import is_for, require_numba, single
from cloze.engines.tables import Table
from cloze.errors import CorpusError
from cloze.exercises.subsample import Subsample
from cloze.exercises.windows import Windows
from cloze.networks.word_vectors import WordVectors
from cloze.objectives import Loss
from cloze.objectives.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.negative_sampling import NegativeSampling
from cloze.registry import register
from cloze.training.engine import Steps, Unit, on_cpu
from cloze.training.run import Run
from cloze.training.static_optimizers import Sgd

if TYPE_CHECKING:
    from cloze.engines.kernels.parts import Job

_WORDS_PER_JOB = 20_000  # about 15 ms: long compared with handing out a job, short compared with the decay of the rate


class _Shape(NamedTuple):
    """The parts of a run of word vectors."""

    entry: str
    feed: Feed
    keep: Subsample | None
    windows: Windows
    network: WordVectors
    objective: NegativeSampling | HierarchicalSoftmax


@register("engine", "lock_free")
class LockFree:
    """Trains `word_vectors` on windows of `lines`, by `negative_sampling` or `hierarchical_softmax` with plain `sgd`."""

    name = "lock_free"
    cpu_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is one of these."""
        return is_for(run, (NegativeSampling, HierarchicalSoftmax))

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
        found = shape_of(run)
        if isinstance(found, str):
            return found
        plain = isinstance(run.optimizer, Sgd) and not run.optimizer.momentum and not run.optimizer.weight_decay
        if not plain:
            return "the optimizer is not sgd without momentum and weight decay"
        training = run.training
        if training.clip is not None or training.divide != "nothing":
            return "training.clip is set, or training.divide is not nothing"
        if run.phases:
            return "the recipe has phases"
        return "" if on_cpu(run) else "the device is not the CPU"

    def require(self, run: Run) -> str:
        """A hint if the kernel must be compiled first. Raises `MissingExtra` without numba."""
        shape = shape_of(run)
        assert not isinstance(shape, str)
        return require_numba("training word vectors in compiled code", lambda: (_kernel_of(shape),))

    def begin(self, steps: Steps) -> LockFreeTrainer:
        """Compile the kernel and start."""
        return LockFreeTrainer(steps, threads=torch.get_num_threads())


def shape_of(run: Run) -> _Shape | str:
    """The parts of a run of word vectors, or why it is not one."""
    found = single(run)
    if isinstance(found, str):
        return found
    entry, feed, network, objective, weighted = found
    if feed.packing or not isinstance(feed.source, BoundLines):
        return "the data are not lines of one corpus"
    if feed.changes:
        return "an edit follows a schedule"
    edits = [placed.edit for placed in feed.edits if placed.view == "main"]
    keep, windows = (edits[0] if len(edits) == 2 else None), (edits[-1] if edits else None)
    right = isinstance(windows, Windows) and (keep is None or isinstance(keep, Subsample))
    if not right or len(edits) != len(feed.edits) or len(edits) > 2:
        return "the exercise is not windows, after subsample or alone"
    if not isinstance(network, WordVectors) or network.both_sides:
        return "the network is not word_vectors of one side"
    if not isinstance(objective, (NegativeSampling, HierarchicalSoftmax)):
        return "the objective is neither negative_sampling nor hierarchical_softmax"
    assert isinstance(windows, Windows) and (keep is None or isinstance(keep, Subsample))
    state = next(iter(weighted.read.values()), objective.reads[0]).rpartition(".")[2]
    if state != ("context" if windows.together else "hidden") or windows.set != objective.set:
        return "the objective does not read what the windows ask: `together` goes with `read: context`, else `hidden`"
    return _Shape(entry, feed, keep, windows, network, objective)


class LockFreeTrainer:
    """Word vectors at work: all threads take jobs of several steps until something is due."""

    unit = Unit()

    def __init__(self, steps: Steps, *, threads: int) -> None:
        from cloze.engines.kernels import parts

        shape = shape_of(steps.run)
        assert not isinstance(shape, str)
        self.steps, self.shape, self.threads = steps, shape, threads
        data: Any = steps.run.data
        self.batch: int = data.batch
        self.shared = _is_shared(shape)
        micro = data.next(shape.entry, Cursor())[0][0]  # the windows of the first rows stand for all
        self.flops_per_word = steps.run.step.flops(shape.entry, micro.batch) / max(micro.tokens, 1)
        self.windows, self.targets, self.subwords = _described(shape)
        # A word that fills its own window is moved by the whole gradient many times; without a bound its vector diverges.
        bounded = self.windows.full and self.windows.predicts == parts.PREDICT_FROM_MEAN
        self.curve = parts.Curve.fine(skip=bounded or not self.targets.negatives)
        self.inputs = Table(shape.network.embeddings.weight)
        self.outputs = Table(shape.objective.head.weight)
        self.works = [parts.Work.of(self.windows, self.targets, self.inputs.padded, self.subwords) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.lock = threading.Lock()
        source: Any = shape.feed.source
        self.source: BoundLines = source
        self.tokens = np.asarray(source.store.tokens)
        _check(self.tokens, source.store.vocab_size, source.store.path)
        tokens_per_row = max(source.tokens / max(shape.feed.rows(0), 1), 1.0)
        self.steps_per_job = max(int(_WORDS_PER_JOB / (tokens_per_row * self.batch)), 1)
        self.over = False
        self._compile()

    def _compile(self) -> None:
        """Run the kernel on nothing, so that it is compiled or loaded before any time is measured."""
        none = np.zeros(0, np.int64)
        self.inputs.take()
        self.outputs.take()
        job = self._job_of(none, none, none.astype(np.float32), none.astype(np.uint64))
        self._train(job, 0, np.zeros(4))

    def train(self) -> None:
        """Steps by all threads, until something is due, a signal comes or the budget is spent."""
        totals = np.zeros((self.threads, 4))
        self.inputs.take()
        self.outputs.take()
        self.over = False
        if self.pool is None:
            self._work(0, totals[0])
        else:
            running = [self.pool.submit(self._work, number, totals[number]) for number in range(self.threads)]
            for future in running:
                future.result()  # raises the exception of a thread; the others have stopped at their next step
        words, _, loss, targets = totals.sum(axis=0).tolist()
        total = torch.tensor(loss, dtype=torch.float64)
        self.steps.report(Loss(total, {}), targets=targets, tokens=words, flops=words * self.flops_per_word)

    def settle(self) -> None:
        """Give the parameters back their own shape."""
        self.inputs.give_back()
        self.outputs.give_back()

    def _work(self, number: int, totals: NDArray[np.float64]) -> None:
        """Job after job until there is none left."""
        try:
            while (job := self._next()) is not None:
                self._train(job, number, totals)
        except BaseException:
            self.over = True
            raise

    def _train(self, job: Job, number: int, totals: NDArray[np.float64]) -> None:
        from cloze.engines.kernels import exact, shared

        inputs, outputs, work = self.inputs.rows, self.outputs.rows, self.works[number]
        if self.shared:
            shared.train_shared(job, self.windows, self.targets, inputs, outputs, work, self.curve, totals)
        else:
            exact.train_exact(
                job, self.windows, self.targets, self.subwords, inputs, outputs, work, self.curve, totals
            )

    def _next(self) -> Job | None:
        """The next steps, some 20,000 words, as a job, counted as done. None if the threads should stop."""
        with self.lock:
            if self.over:
                return None
            feed, batch, cursor = self.shape.feed, self.batch, self.steps.cursor
            many = min(self.steps_per_job, max((feed.rows(cursor.epoch) - cursor.item) // batch, 1))
            runs, after = feed.advance(cursor, many * batch)
            starts, lengths, keys = self._lines(runs)
            rates: list[float] = []
            while len(rates) < many and not self.over and self.steps.ready():
                rates.append(self.steps.rate())
                done = len(rates)
                here = after if done == many else Cursor(cursor.epoch, cursor.item + done * batch)
                words = float(lengths[(done - 1) * batch : done * batch].sum())
                if self.steps.count(here, tokens=words, examples=batch, flops=words * self.flops_per_word):
                    self.over = True
            if not rates:
                return None
            lines = len(rates) * batch
            return self._job_of(starts[:lines], lengths[:lines], np.repeat(np.array(rates, np.float32), batch), keys[:lines])

    def _lines(self, runs: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """First token, length and random key of each row in `runs`, pairs of an epoch and row numbers."""
        seed, entry = self.steps.run.seed, self.shape.entry
        found = []
        for epoch, rows in runs:
            plan = self.plan(epoch)
            chosen = plan.order[rows]
            keys = rng.row_keys(seed, "lock_free", entry, epoch, items=chosen)
            found.append((plan.start[chosen], plan.length[chosen].astype(np.int64), keys))
        starts, lengths, keys = (np.concatenate(part) for part in zip(*found, strict=True))
        return starts, lengths, keys

    def plan(self, epoch: int) -> LinePlan:
        """The rows of an epoch."""
        return self.source.plan(epoch, self.shape.feed.exercise.room)

    def _job_of(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], rates: NDArray[np.float32], keys: NDArray[np.uint64]
    ) -> Job:
        from cloze.engines.kernels.parts import Job

        return Job(self.tokens, starts, lengths, rates, keys)


def _check(tokens: NDArray[Any], vocab_size: int, path: Path) -> None:
    """Refuse ids outside the vocabulary: compiled code uses them as addresses without bounds checks."""
    for low in range(0, len(tokens), 1 << 24):
        largest = int(tokens[low : low + (1 << 24)].max())
        if largest >= vocab_size:
            raise CorpusError(
                f"{path / 'tokens.bin'}: holds the id {largest:,}, but the vocabulary has {vocab_size:,} words. The file is "
                "damaged.\n  Build the store again."
            )


def _is_shared(shape: _Shape) -> bool:
    """Whether all pairs of a centre share their negatives, so that the faster kernel can train them."""
    drawn, network = isinstance(shape.objective, NegativeSampling) and shape.objective.share, shape.network
    return drawn and shape.windows.ask == "centre" and not shape.windows.together and network.subwords is None


def _kernel_of(shape: _Shape) -> Any:
    from cloze.engines.kernels import exact, shared

    return shared.train_lines if _is_shared(shape) else exact.train_lines


def _described(shape: _Shape) -> tuple[Any, Any, Any]:
    """The parts of a run in the form that kernels take: windows, targets, subwords."""
    from cloze.engines.kernels import parts

    network, objective, windows = shape.network, shape.objective, shape.windows
    keep = np.ones(network.vocab_size) if shape.keep is None else shape.keep.keep
    predicts = {"centre": parts.PREDICT_CENTRE, "context": parts.PREDICT_CONTEXT}[windows.ask]
    cut = parts.Windows.of(
        keep, radius=windows.radius, shrinks=windows.shrink == "uniform",
        predicts=parts.PREDICT_FROM_MEAN if windows.together else predicts, full=network.gradient == "full",
        shares=isinstance(objective, NegativeSampling) and objective.share,
    )
    if isinstance(objective, NegativeSampling):
        targets = parts.Targets.sampled(
            objective.noise.numpy(), negatives=objective.negatives, redraws=objective.redraw
        )
    else:
        targets = parts.Targets.coded(*objective.codes)
    subwords = parts.Subwords.none()
    if network.subwords is not None:
        subwords = parts.Subwords(network._buffer("starts").numpy(), network._buffer("rows").numpy())
    return cut, targets, subwords
