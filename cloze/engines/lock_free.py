"""The engine `lock_free`: skip-gram, CBOW and paragraph vectors in compiled code, by threads that change the same vectors without
locks.

As in word2vec.c (Hogwild!, Niu et al., 2011). A step is `training.batch` rows of the plan; a thread takes several steps at a
time, some 20,000 words. The kernel reads ids from the memory-mapped store, drops frequent words and cuts windows itself. Each row
has random numbers of its own and the learning rate of its step. So with one thread a run can be repeated, and resumed, bit for
bit; with more threads the order of updates varies. Tokens are counted before subsampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze import kernels, rng
from cloze.batching import Feed
from cloze.corpus.sources.lines import BoundLines
from cloze.corpus.sources.plan import Cut, RowPlan
from cloze.engines.conditions import is_for, require_kernel, single, unlike_sgd
from cloze.engines.tables import AlignedTable
from cloze.engines.threads import NO_KEYS, Arrays, Threads
from cloze.errors import CorpusError
from cloze.exercises.noise.subsample import Subsample
from cloze.exercises.paragraph import Paragraph
from cloze.exercises.targets.predict import Predict
from cloze.exercises.targets.windows import WindowPairs
from cloze.kernels.vectors import arguments
from cloze.kernels.vectors.arguments import TrainingLines
from cloze.networks.static.paragraph_vectors import ParagraphVectors
from cloze.networks.static.word_vectors import WordVectors
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.negative_sampling import NegativeSampling
from cloze.registry import register
from cloze.training.engine import Steps
from cloze.training.run import Run


class _Shape(NamedTuple):
    """The parts of a run of word vectors."""

    entry: str
    feed: Feed
    keep: Subsample | None
    asked: WindowPairs | Predict  # the words of windows, or all words, from the paragraph
    network: WordVectors
    objective: NegativeSampling | HierarchicalSoftmax


@register("engine", "lock_free")
class LockFree:
    """Trains `word_vectors` and `paragraph_vectors` on `lines`, by `negative_sampling` or `hierarchical_softmax` with `sgd`."""

    name = "lock_free"
    cpu_only = True

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is one of these."""
        return is_for(run, (NegativeSampling, HierarchicalSoftmax))

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
        shape = shape_of(run)
        if isinstance(shape, str):
            return shape
        return unlike_sgd(run) or ("" if run.training.divide == "nothing" else "training.divide is not nothing")

    def require(self, run: Run) -> str:
        """A hint if the kernel must be compiled first. Raises `MissingExtra` without numba."""
        shape = shape_of(run)
        assert not isinstance(shape, str)
        return require_kernel(
            _kernel_name(shape), "training word vectors in compiled code", lambda module: (module.train_lines,)
        )

    def begin(self, steps: Steps) -> LockFreeTrainer:
        """Compile the kernel and start."""
        return LockFreeTrainer(steps, threads=torch.get_num_threads())


def shape_of(run: Run) -> _Shape | str:
    """The parts of a run of word vectors, or why it is not one."""
    setup = single(run)
    if isinstance(setup, str):
        return setup
    entry, feed, network, objective, weighted = setup
    if feed.packing or not isinstance(feed.source, BoundLines):
        return "the data are not lines of one corpus"
    if feed.is_scheduled:
        return "an edit follows a schedule"
    if not isinstance(network, WordVectors) or network.both_sides:
        return "the network is not word_vectors of one side"
    if not isinstance(objective, (NegativeSampling, HierarchicalSoftmax)):
        return "the objective is neither negative_sampling nor hierarchical_softmax"
    owned = isinstance(network, ParagraphVectors)
    parts = asked_of([placed.edit for placed in feed.edits if placed.view == "main"], owned=owned)
    if parts is None or any(placed.view != "main" for placed in feed.edits):
        return "the exercise is not windows, after subsample or alone, or for paragraphs those or `predict: all`"
    keep, edit = parts
    together = isinstance(edit, WindowPairs) and edit.together
    state = next(iter(weighted.read.values()), objective.reads[0]).rpartition(".")[2]
    if state != ("context" if together else "hidden") or edit.set != objective.set:
        return "the objective does not read what the windows ask: `together` goes with `read: context`, else `hidden`"
    return _Shape(entry, feed, keep, edit, network, objective)


def asked_of(edits: Sequence[Any], *, owned: bool) -> tuple[Subsample | None, WindowPairs | Predict] | None:
    """The edits that drop words and that ask for them, None if they are others. Paragraphs are `owned` lines."""
    left = list(edits)
    if owned:
        if Paragraph() not in left:
            return None
        left.remove(Paragraph())
    keep = left.pop(0) if left and isinstance(left[0], Subsample) else None
    if len(left) != 1:
        return None
    edit = left[0]
    if isinstance(edit, WindowPairs) and (edit.together or not owned):
        return keep, edit
    return (keep, edit) if owned and isinstance(edit, Predict) and edit == Predict("all", set=edit.set) else None


class LockFreeTrainer(Threads):
    """Word vectors at work: all threads take jobs of several steps until something is due."""

    def __init__(self, steps: Steps, *, threads: int) -> None:
        shape = shape_of(steps.run)
        assert not isinstance(shape, str)
        super().__init__(steps, shape.entry, shape.feed, threads=threads)
        self.shape = shape
        source: Any = shape.feed.source
        self.source: BoundLines = source
        self.shared, self.kernel = _is_shared(shape), kernels.find(_kernel_name(shape))
        self.windows, self.targets, self.subwords = described(shape.asked, shape.keep, shape.network, shape.objective)
        self.owned = isinstance(shape.network, ParagraphVectors)
        # A word that fills its own window is moved by the whole gradient many times; without a bound its vector diverges.
        bounded = self.owned or (self.windows.full and self.windows.predicts == arguments.PREDICT_FROM_MEAN)
        self.curve = arguments.Sigmoid.fine(skip=bounded or not self.targets.negatives)
        self.inputs = AlignedTable(shape.network.embeddings.weight)
        self.outputs = AlignedTable(shape.objective.head.weight)
        self.works = [
            arguments.ThreadBuffers.of(self.windows, self.targets, self.inputs.padded, self.subwords)
            for _ in range(threads)
        ]
        self.compile(NO_KEYS)

    def train_rows(self, rows: Arrays, rates: NDArray[np.float32], number: int, totals: NDArray[np.float64]) -> None:
        """Train on lines: first token, length and random key of each."""
        starts, lengths, keys = rows
        self._train(TrainingLines(self.tokens, starts, lengths, rates, keys, self._owners(starts)), number, totals)

    def _owners(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the paragraphs that these lines belong to; none for words."""
        network = self.shape.network
        if not isinstance(network, ParagraphVectors):
            return np.zeros(0, np.int64)
        document = self.source.sentences_of(starts)[1]
        if document.max(initial=0) >= len(self.inputs.rows) - network.first:  # an address in compiled code
            raise CorpusError(f"{self.source.store.path}: the document {int(document.max()):,} has no vector. Train again.")
        return document + network.first

    def _train(self, job: TrainingLines, number: int, totals: NDArray[np.float64]) -> None:
        inputs, outputs, work = self.inputs.rows, self.outputs.rows, self.works[number]
        if self.shared:
            self.kernel.train_shared(job, self.windows, self.targets, inputs, outputs, work, self.curve, totals)
        else:
            self.kernel.train_exact(
                job, self.windows, self.targets, self.subwords, inputs, outputs, work, self.curve, totals
            )

    def gather(self, runs: Any) -> Arrays:
        """First token, length and random key of each row in `runs`."""
        seed, entry = self.steps.run.seed, self.entry
        pieces = []
        for epoch, rows in runs:
            plan = self.plan(epoch)
            chosen = plan.order[rows]
            keys = rng.row_keys(seed, "lock_free", entry, epoch, items=chosen)
            pieces.append((plan.start[chosen], plan.passages.length[chosen].astype(np.int64), keys))
        return tuple(np.concatenate(part) for part in zip(*pieces, strict=True))

    def plan(self, epoch: int) -> RowPlan[Cut]:
        """The rows of an epoch."""
        return self.source.plan(epoch, self.shape.feed.exercise.max_tokens)


def _is_shared(shape: _Shape) -> bool:
    """Whether all pairs of a centre share their negatives, so that the faster kernel can train them."""
    drawn, network = isinstance(shape.objective, NegativeSampling) and shape.objective.share, shape.network
    centred = isinstance(shape.asked, WindowPairs) and shape.asked.ask == "centre" and not shape.asked.together
    return drawn and centred and network.subwords is None


def _kernel_name(shape: _Shape) -> str:
    return "skipgram" if _is_shared(shape) else "windows"


def described(
    edit: WindowPairs | Predict, keep: Subsample | None, network: WordVectors,
    objective: NegativeSampling | HierarchicalSoftmax, *,
    frozen: bool = False,
) -> tuple[Any, Any, Any]:
    """The parts of a run in the form that kernels take: windows, targets, subwords."""
    chances = np.ones(network.vocab_size) if keep is None else keep.keep
    full = network.gradient == "full"
    if isinstance(edit, WindowPairs):
        predicts = {"centre": arguments.PREDICT_CENTRE, "context": arguments.PREDICT_CONTEXT}[edit.ask]
        cut = arguments.WindowSampling.of(
            chances, radius=edit.radius, shrinks=edit.shrink == "uniform",
            predicts=arguments.PREDICT_FROM_MEAN if edit.together else predicts, full=full,
            shares=isinstance(objective, NegativeSampling) and objective.share, frozen=frozen,
        )
    else:
        cut = arguments.WindowSampling.of(chances, radius=1, predicts=arguments.PREDICT_FROM_OWNER, full=full, frozen=frozen)
    if isinstance(objective, NegativeSampling):
        targets = arguments.Targets.sampled(
            objective.noise.numpy(), negatives=objective.negatives, redraws=objective.redraw
        )
    else:
        targets = arguments.Targets.coded(*objective.codes)
    subwords = arguments.SubwordRows.none()
    if network.subwords is not None:
        subwords = arguments.SubwordRows(*(rows.numpy() for rows in network.table_rows()))
    return cut, targets, subwords
