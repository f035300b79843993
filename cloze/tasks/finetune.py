"""Fine-tune a checkpoint on a task: one small loop, the best epoch kept, several seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.decoding.reader import Checkpoint
from cloze.errors import DeviceError, RunError, TaskError, nearest
from cloze.rng import permutation
from cloze.tasks.settings import OPTIMIZERS, Settings
from cloze.tasks.task import Row, Task, chosen_metric, clock_of
from cloze.tasks.trained import TrainedLearner, TrainedTask
from cloze.training.each_stage import stage_starts
from cloze.training.movement import Everything, Movement, set_rate
from cloze.training.optimizers import clip, gradient_norm
from cloze.training.precision import Precision, choose_precision
from cloze.training.rates import tell_rate

ROWS_PER_BUCKET = 50  # batches whose rows are sorted by length together


def as_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """`auto`, `fp32` or `bf16` as what a `Reader` casts to; None is fp32."""
    if precision not in get_args(Precision):
        raise DeviceError(f"unknown precision {precision!r}. {nearest(precision, get_args(Precision))}")
    return torch.bfloat16 if choose_precision(cast(Precision, precision), device) == "bf16" else None


@dataclass(frozen=True)
class Moment:
    """Where a run stands, for progress and log. `dev` is there at the end of an epoch."""

    seed: int
    epoch: int
    step: int
    steps: int
    loss: float
    learning_rate: float
    dev: dict[str, float] | None = None


@dataclass(frozen=True)
class Trial:
    """One seed: the best epoch, how many were run, and the dev metrics of the best."""

    seed: int
    epoch: int
    epochs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Result:
    """All seeds, the best of them by the dev metric with what it learned, and the log, one record per event.

    `cut`: by part and column how many rows did not fit.
    """

    trials: tuple[Trial, ...]
    best: Trial
    tuned: TrainedLearner
    settings: Settings
    log: tuple[dict[str, Any], ...]
    cut: dict[str, dict[str, int]]


Report = Callable[[Moment], None]


def finetune(
    loaded: Checkpoint,
    task: Task,
    train: Any,
    dev: Any,
    *,
    settings: Settings | None = None,
    seed: int = 1,
    precision: torch.dtype | None = None,
    report: Report = lambda moment: None,
) -> Result:
    """Fine-tune a copy of a checkpoint with one seed; see `finetune_seeds`."""
    return finetune_seeds(
        loaded, task, train, dev, settings=settings, seeds=(seed,), precision=precision, report=report
    )


def finetune_seeds(
    loaded: Checkpoint,
    task: Task,
    train: Any,
    dev: Any,
    *,
    settings: Settings | None = None,
    seeds: Sequence[int],
    precision: torch.dtype | None = None,
    report: Report = lambda moment: None,
) -> Result:
    """Fine-tune a copy of a checkpoint on the task's examples, once per seed; `loaded` itself is left as it was.

    Batches of like length, gradients clipped, optimiser and rate by the settings; the epoch with the best dev metric is kept
    (the first of equals). New weights, order of the examples and dropout are pure functions of the seed, so the same call
    gives the same result on the same machine. With several seeds `tuned` is that of the best one; the figure to report is
    the mean over `trials`. Metrics that the choice does not need are measured once, on the epoch that was kept.
    """
    settings = settings or Settings()
    metric = chosen_metric(task, settings.metric)
    if not hasattr(task, "begin"):
        raise TaskError(f"{task.name} is trained by its recipe, which has no such options. See: cloze show {task.name}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise TaskError(f"seeds {','.join(map(str, seeds)) or '(none)'}: expected one or more different numbers.")
    log: list[dict[str, Any]] = []
    best: tuple[Trial, TrainedLearner] | None = None
    trials, cut = [], {}
    for seed in seeds:
        learner = cast(TrainedTask, task).begin(loaded, train, settings, seed, precision)
        rows = {"train": learner.answered(train), "dev": learner.answered(dev)}
        cut = {part: count_cut(some) for part, some in rows.items()}
        trial = _trial(_Run(learner, settings, seed, rows["train"]), rows["dev"], metric, log, report)
        trials.append(trial)
        if best is None or better(task, metric, trial.metrics, best[0].metrics):
            best = trial, learner.eval()
    assert best is not None  # there is at least one seed
    return Result(tuple(trials), best[0], best[1], settings, tuple(log), cut)


def count_cut(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows lost tokens of each column, because they were longer than what is read or written."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({column: int(lost > 0) for column, lost in row.cut.items()})
    return dict(found)


def better(task: Task, metric: str, one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether the first metrics are strictly better."""
    return one[metric] > other[metric] if task.metrics[metric] else one[metric] < other[metric]


def _trial(run: _Run, dev: Sequence[Any], metric: str, log: list[dict[str, Any]], report: Report) -> Trial:
    """Train one seed; afterwards the learner has the weights of its best epoch."""
    settings, learner = run.settings, run.learner
    size = 2 * settings.batch
    best: tuple[dict[str, float], int, dict[str, Any]] | None = None
    epoch = 0
    for epoch in range(1, settings.epochs + 1):
        moments = list(_reported(run.epoch(epoch), report))
        metrics = learner.measure(dev, metric, size=size)
        loss = sum(moment.loss for moment in moments) / len(moments)
        end = replace(moments[-1], loss=loss, dev=metrics)
        report(end)
        log.append({**asdict(end), "event": "epoch"})
        run.hear(metrics[metric] * (-1 if learner.task.metrics[metric] else 1))
        if best is None or better(learner.task, metric, metrics, best[0]):
            best = metrics, epoch, {name: tensor.detach().clone() for name, tensor in learner.state_dict().items()}
        if settings.patience is not None and epoch - best[1] >= settings.patience:
            break
    assert best is not None  # there is at least one epoch
    learner.load_state_dict(best[2])
    run.movement.release()
    whole = best[0] if best[0].keys() == learner.task.metrics.keys() else learner.measure(dev, size=size)
    learner.kept = None
    return Trial(run.seed, best[1], epoch, whole)


def _reported(moments: Iterator[Moment], report: Report) -> Iterator[Moment]:
    for moment in moments:
        report(moment)
        yield moment


class _Run:
    """The optimiser's side of one run."""

    def __init__(self, learner: TrainedLearner, settings: Settings, seed: int, rows: Sequence[Any]) -> None:
        self.learner, self.settings, self.seed, self.rows = learner, settings, seed, rows
        self.per_epoch = math.ceil(len(self.rows) / settings.batch)
        self.steps = settings.epochs * self.per_epoch
        self.step = 0
        network = learner.reader.network
        self.clock = clock_of(network)
        unfreeze = settings.unfreeze or Everything()
        starts = stage_starts(unfreeze, len(network.depth_groups()), epochs=settings.epochs, per_epoch=self.per_epoch)
        self.rate = replace(settings, rate=settings.rate or learner.usual_rate).rates(network.width, starts)
        self.heard: list[float] = []
        self.parameters = [p for p in learner.parameters() if p.requires_grad]
        self.optimizer = OPTIMIZERS[settings.optimizer].optimizer(settings).build(learner.named_parameters())
        self.movement = Movement(
            learner, {"network": network}, train={"network": unfreeze}, layerwise=settings.layerwise
        )
        self.movement.prepare(self.optimizer)

    def hear(self, loss: float) -> None:
        """Tell a rate that wants to know how well an epoch ended; less is better."""
        self.heard.append(loss)
        tell_rate(self.rate, self.heard)

    def epoch(self, number: int) -> Iterator[Moment]:
        """One pass over the training rows."""
        self.learner.train()
        lengths = [len(row) for row in self.rows]
        for index in shuffled_batches(lengths, self.settings.batch, self.seed, number):
            yield self._update(index, number)

    def _update(self, index: NDArray[np.int64], epoch: int) -> Moment:
        share = self.step / self.steps
        rate = self.rate(share)
        self.clock.set(seed=self.seed, step=self.step, first_row=0, share=share)
        self.learner.share = share
        self.movement.enter(epochs=epoch - 1 + self.step % self.per_epoch / self.per_epoch, share=share)
        set_rate(self.optimizer, rate)
        loss = self.learner.loss([self.rows[i] for i in index])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip(self.parameters, gradient_norm(self.parameters), self.settings.clip)
        self.optimizer.step()
        self.step += 1
        value = float(loss.detach())
        if not math.isfinite(value):
            raise RunError(f"the loss is {value} at step {self.step}. Try a lower learning rate: --rate {rate / 4:.1e}")
        return Moment(self.seed, epoch, self.step, self.steps, value, rate)


def shuffled_batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Batches of like length in random order; a pure function of its arguments. Every row occurs once."""
    order = permutation(len(lengths), seed, "finetune", epoch)
    pool = size * ROWS_PER_BUCKET
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), pool):
        some = order[start : start + pool]
        some = some[np.argsort(np.asarray(lengths)[some], kind="stable")]
        batches += [some[i : i + size] for i in range(0, len(some), size)]
    return [batches[i] for i in permutation(len(batches), seed, "batches", epoch)]
