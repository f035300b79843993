"""The engine `lock_free`: skip-gram and CBOW in compiled code, by threads that change the same vectors without locks.

Niu et al., Hogwild!, 2011, as word2vec.c does it. A step is `training.batch` rows of the plan; threads take
steps of some 20,000 words together. Ids are read from the memory-mapped store; words are left out and windows cut inside the
kernel. Every row draws from its own address and learns at the rate of its step, so with one thread a run can be repeated, and
resumed, bit for bit; with more the order in which vectors change is not the same twice. Tokens are counted before words are
left out.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze import rng
from cloze.batching import Cursor, Feed
from cloze.corpus.lines import BoundLines, LinePlan
from cloze.errors import CorpusError
from cloze.exercises.subsample import Subsample
from cloze.exercises.windows import Windows
from cloze.networks.word_vectors import WordVectors
from cloze.objectives import Loss
from cloze.objectives.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.negative_sampling import NegativeSampling
from cloze.registry import register
from cloze.training.engine import on_processor, require_numba
from cloze.training.interrupt import Interrupt
from cloze.training.lone import lone
from cloze.training.meter import NotFinite
from cloze.training.run import Run
from cloze.training.session import Session
from cloze.training.static_optimizers import Sgd

if TYPE_CHECKING:
    from cloze.training.kernels.parts import Job

_WORDS_A_JOB = 20_000  # about 15 ms: long beside the handing out, short beside the decay of the rate
_WORDS_A_LOG = 500_000  # fewer between two log events would make threads wait for each other too often


class _Shape(NamedTuple):
    """The live parts of a run that this engine trains."""

    entry: str
    feed: Feed
    keep: Subsample | None
    windows: Windows
    network: WordVectors
    objective: NegativeSampling | HierarchicalSoftmax
    name: str


@register("engine", "lock_free")
class LockFree:
    """Trains `word_vectors` on windows of `lines`, by `negative_sampling` or `hierarchical_softmax` with plain `sgd`."""

    name = "lock_free"
    processor_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether it is word vectors by one of these objectives."""
        found = lone(run)
        return not isinstance(found, str) and isinstance(found.network, WordVectors) and isinstance(
            found.objective, (NegativeSampling, HierarchicalSoftmax)
        )

    def fits(self, run: Run) -> str:
        """Why this run cannot be trained so; empty if it can."""
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
        return "" if on_processor(run) else "the device is not the CPU"

    def require(self, run: Run) -> str:
        """A word of compiling the first time. Raises `MissingExtra` without numba."""
        shape = shape_of(run)
        assert not isinstance(shape, str)
        return require_numba("training word vectors in compiled code", lambda: (_kernel_of(shape),))

    def begin(self, session: Session) -> LockFreeWorker:
        """The worker of a session."""
        return LockFreeWorker(session, threads=torch.get_num_threads())


def shape_of(run: Run) -> _Shape | str:
    """The parts of a run of word vectors, or why it is none."""
    found = lone(run)
    if isinstance(found, str):
        return found
    entry, feed, network, objective, weighted = found
    if feed.packing or not isinstance(feed.source, BoundLines):
        return "the data are not lines of one corpus"
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
    return _Shape(entry, feed, keep, windows, network, objective, weighted.name)


class LockFreeWorker:
    """Word vectors under way: bursts of steps by all threads, up to the next thing that is due."""

    def __init__(self, session: Session, *, threads: int) -> None:
        from cloze.training.kernels import parts

        shape = shape_of(session.run)
        assert not isinstance(shape, str)
        self.session, self.shape, self.threads = session, shape, threads
        data: Any = session.run.data
        self.data, self.shares = data, _shares(shape)
        self.name = session.name(shape.entry, shape.name)
        micro = self.data.next(shape.entry, Cursor())[0][0]  # the windows of the first rows stand for all
        self.flops_a_word = session.model.flops(shape.entry, micro.batch) / max(micro.tokens, 1)
        self.windows, self.answers, self.subwords = _described(shape)
        # A word that fills its own window is moved by the whole gradient many times: without a border its rows run away.
        bounded = self.windows.full and self.windows.ask == parts.ASK_TOGETHER
        self.curve = parts.Curve.fine(skip=bounded or not self.answers.negatives)
        self.inputs = _Table(shape.network.embeddings.weight)
        self.outputs = _Table(shape.objective.head.weight)
        self.works = [parts.Work.of(self.windows, self.answers, self.inputs.padded, self.subwords) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.lock = threading.Lock()
        source: Any = shape.feed.source
        self.source: BoundLines = source
        self.tokens = np.asarray(source.store.tokens)
        _check(self.tokens, source.store.vocab_size, source.store.path)
        a_row = max(source.tokens / max(shape.feed.rows(0), 1), 1.0)
        self.steps_a_job = max(int(_WORDS_A_JOB / (a_row * data.batch)), 1)
        self.over, self.logging, self.first_token = False, False, 0
        self._compile()

    def _compile(self) -> None:
        """Run the kernel on nothing: it is compiled, or read from the cache, before any time is measured."""
        none = np.zeros(0, np.int64)
        self.inputs.take()
        self.outputs.take()
        job = self._job_of(none, none, none.astype(np.float32), none.astype(np.uint64))
        self._train(job, 0, np.zeros(4))
        self.session.meter.clear()

    def step(self, interrupt: Interrupt) -> None:
        """Steps by all threads until a log event, an evaluation, a checkpoint, a signal or the end of the budget; what is due."""
        session = self.session
        if not session.ready(interrupt):
            return
        before = session.progress.share
        self._burst(interrupt)
        session.attend(before, session.share, self.settle)

    def settle(self) -> None:
        """Give the parameters back their own shape."""
        self.inputs.give_back()
        self.outputs.give_back()

    def _burst(self, interrupt: Interrupt) -> None:
        session, tokens = self.session, self.session.progress.spent.tokens
        totals = np.zeros((self.threads, 4))
        self.inputs.take()
        self.outputs.take()
        self.over, self.logging, self.first_token = False, False, tokens
        if self.pool is None:
            self._work(0, totals[0], interrupt)
        else:
            running = [self.pool.submit(self._work, number, totals[number], interrupt) for number in range(self.threads)]
            for future in running:
                future.result()  # a thread's exception is raised here, the others having stopped at their next step
        words, _, loss, heard = totals.sum(axis=0).tolist()
        if not math.isfinite(loss):
            raise NotFinite(session.step, loss)
        session.meter.add_losses({self.name: Loss(torch.tensor(loss, dtype=torch.float64), {})})
        flops = words * self.flops_a_word
        session.meter.add_step(
            session.step, None, {self.name: heard}, {self.name: 1.0}, tokens=words, cells=words, flops=flops
        )

    def _work(self, number: int, totals: NDArray[np.float64], interrupt: Interrupt) -> None:
        """Step after step, until there is none to be had."""
        try:
            while (job := self._next(interrupt)) is not None:
                self._train(job, number, totals)
        except BaseException:
            self.over = True
            raise

    def _train(self, job: Job, number: int, totals: NDArray[np.float64]) -> None:
        from cloze.training.kernels import exact, shared

        inputs, outputs, work = self.inputs.rows, self.outputs.rows, self.works[number]
        if self.shares:
            shared.train_shared(job, self.windows, self.answers, inputs, outputs, work, self.curve, totals)
        else:
            exact.train_exact(
                job, self.windows, self.answers, self.subwords, inputs, outputs, work, self.curve, totals
            )

    def _next(self, interrupt: Interrupt) -> Job | None:
        """The coming steps, some 20,000 words, as a job, counted as done; None where the burst is over."""
        with self.lock:
            session, feed, batch = self.session, self.shape.feed, self.data.batch
            if self.over or interrupt:
                return None
            session.progress.spent.seconds = session.clock_now()
            cursor = session.progress.cursors[self.shape.entry]
            many = min(self.steps_a_job, max((feed.rows(cursor.epoch) - cursor.item) // batch, 1))
            runs, after = feed.advance(cursor, many * batch)
            starts, lengths, keys = self._lines(runs)
            rates: list[float] = []
            while len(rates) < many and not self.over and session.share < 1:
                rates.append(session.run.rate(session.share, session.run.training.nominal_steps))
                done = len(rates)
                here = after if done == many else Cursor(cursor.epoch, cursor.item + done * batch)
                self._count(float(lengths[(done - 1) * batch : done * batch].sum()), here)
            if not rates:
                return None
            session.learning_rate = rates[-1]
            lines = len(rates) * batch
            return self._job_of(starts[:lines], lengths[:lines], np.repeat(np.array(rates, np.float32), batch), keys[:lines])

    def _count(self, words: float, after: Cursor) -> None:
        """Count a step, and end the burst where something is due behind it."""
        session, entry = self.session, self.shape.entry
        flops = words * self.flops_a_word
        before, share = session.advance({entry: after}, tokens=words, examples=self.data.batch, flops=flops)
        self.logging |= session.due_log(before, share)
        enough = session.run.training.log_every is not None
        enough |= session.progress.spent.tokens - self.first_token >= _WORDS_A_LOG
        self.over |= session.due_evaluation(before, share) or session.due_checkpoint(before, share)
        self.over |= self.logging and enough

    def _lines(self, runs: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """First token, length and key of the rows of some runs, (epoch, row numbers) each."""
        seed, entry = self.session.run.seed, self.shape.entry
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
        from cloze.training.kernels.parts import Job

        return Job(self.tokens, starts, lengths, rates, keys)


def _check(tokens: NDArray[Any], vocab_size: int, path: Path) -> None:
    """Refuse ids that are no words: compiled code uses them as addresses and looks at no bounds."""
    for low in range(0, len(tokens), 1 << 24):
        largest = int(tokens[low : low + (1 << 24)].max())
        if largest >= vocab_size:
            raise CorpusError(
                f"{path / 'tokens.bin'}: holds the id {largest:,}, but the vocabulary has {vocab_size:,} words. The file is "
                "damaged.\n  Build the store again."
            )


class _Table:
    """A matrix of rows that kernels can read by whole registers: a copy in the parameter's place, wide enough and in huge pages.

    Rows are read at random; with pages of 4 KB a fifth of the time went into finding them.
    """

    def __init__(self, parameter: Tensor) -> None:
        from cloze.training.kernels.parts import SIMD_WIDTH

        self.parameter = parameter
        self.width = parameter.shape[1]
        self.padded = -(-self.width // SIMD_WIDTH) * SIMD_WIDTH
        self.taken = False
        self.rows: NDArray[np.float32] = np.zeros((0, self.padded), np.float32)

    def take(self) -> None:
        """Make `rows` the parameter's rows; columns beyond its width are 0 and stay so."""
        if self.taken:
            return
        from cloze.training.kernels.parts import aligned

        held = self.parameter.data
        self.rows, self.taken = aligned(len(held), self.padded), True
        wide = torch.from_numpy(self.rows)
        wide[:, : self.width] = held
        self.parameter.data = wide[:, : self.width]

    def give_back(self) -> None:
        """Make the parameter contiguous again."""
        if self.taken and self.padded != self.width:
            self.rows = self.rows[:0]
            self.parameter.data = self.parameter.data.contiguous()
            self.taken = False


def _shares(shape: _Shape) -> bool:
    """Whether the pairs of a centre share their negatives, so that the fast kernel can train them."""
    drawn, network = isinstance(shape.objective, NegativeSampling) and shape.objective.share, shape.network
    return drawn and shape.windows.ask == "centre" and not shape.windows.together and network.subwords is None


def _kernel_of(shape: _Shape) -> Any:
    from cloze.training.kernels import exact, shared

    return shared.train_lines if _shares(shape) else exact.train_lines


def _described(shape: _Shape) -> tuple[Any, Any, Any]:
    """The live parts as the kernels are given them: windows, answers, subwords."""
    from cloze.training.kernels import parts

    network, objective, windows = shape.network, shape.objective, shape.windows
    keep = np.ones(network.vocab_size) if shape.keep is None else shape.keep.keep
    ask = {"centre": parts.ASK_CENTRE, "context": parts.ASK_CONTEXT}[windows.ask]
    cut = parts.Windows.of(
        keep, radius=windows.radius, shrinks=windows.shrink == "uniform",
        ask=parts.ASK_TOGETHER if windows.together else ask, full=network.gradient == "full",
        shares=isinstance(objective, NegativeSampling) and objective.share,
    )
    if isinstance(objective, NegativeSampling):
        answers = parts.Answers.drawn(
            objective.noise.numpy(), negatives=objective.negatives, redraws=objective.redraw
        )
    else:
        answers = parts.Answers.coded(*objective.codes)
    subwords = parts.Subwords.none()
    if network.subwords is not None:
        subwords = parts.Subwords(network._buffer("starts").numpy(), network._buffer("rows").numpy())
    return cut, answers, subwords
