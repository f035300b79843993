"""Fine-tune a classifier: one small loop, the best epoch kept, several seeds."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.decoding.reader import Checkpoint, Reader, heads_by_kind
from cloze.errors import DeviceError, RunError, TaskError, nearest
from cloze.rng import fold, permutation
from cloze.tasks.classification import Classification, Examples, label_ids, label_names
from cloze.tasks.classifier import Classifier, copy_pool, fresh_network, make_head
from cloze.tasks.metrics import check_metric, measure
from cloze.training.optimizers import AdamW, clip, gradient_norm
from cloze.training.precision import Precision, choose_precision
from cloze.training.rates import Linear

ROWS_PER_BUCKET = 50  # batches whose rows are sorted by length together


@dataclass(frozen=True)
class Settings:
    """The numbers of a fine-tuning run.

    `rate` None: 5e-5 for a width of 768 and in inverse proportion for others (3e-4 for tiny, 1.5e-4 for mini: within the
    authors' list for small BERTs). `patience`: epochs without a better dev `metric` before stopping, None to run through.
    The best epoch is kept either way. `from_scratch` trains a randomly initialised twin instead.
    """

    epochs: int = 4
    batch: int = 32
    rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.1
    length: int = 128
    patience: int | None = 2
    metric: str = "accuracy"
    from_scratch: bool = False

    def __post_init__(self) -> None:
        check_metric(self.metric)
        for name in ("epochs", "batch", "length"):
            if getattr(self, name) < 1:
                raise TaskError(f"--{name} {getattr(self, name)}: expected at least 1.")
        if self.rate is not None and not self.rate > 0:
            raise TaskError(f"--rate {self.rate}: expected a learning rate above 0, such as 5e-5.")

    def rate_for(self, width: int) -> float:
        """The peak learning rate for a network of this width."""
        return self.rate if self.rate is not None else 5e-5 * 768 / width


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
    """All seeds, the best of them by the dev metric with its classifier, and the log, one record per event."""

    trials: tuple[Trial, ...]
    best: Trial
    classifier: Classifier
    settings: Settings
    log: tuple[dict[str, Any], ...]


Report = Callable[[Moment], None]


def finetune(
    loaded: Checkpoint,
    task: Classification,
    train: Examples,
    dev: Examples,
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
    task: Classification,
    train: Examples,
    dev: Examples,
    *,
    settings: Settings | None = None,
    seeds: Sequence[int],
    precision: torch.dtype | None = None,
    report: Report = lambda moment: None,
) -> Result:
    """Fine-tune a copy of a checkpoint on labelled examples, once per seed; `loaded` itself is left as it was.

    AdamW, linear warm-up and decay, batches of like length, gradients clipped; the epoch with the best dev metric is kept
    (the first of equals). Weights of the head, order of the examples and dropout are pure functions of the seed, so the
    same call gives the same result on the same machine. With several seeds the classifier is that of the best one; the
    figure to report is the mean over `trials`. Labels are those of the training examples; a dev example with another is
    a `TaskError`.
    """
    settings = settings or Settings()
    if not seeds or len(set(seeds)) < len(seeds):
        raise TaskError(f"seeds {','.join(map(str, seeds)) or '(none)'}: expected one or more different numbers.")
    labels = label_names(train.labels or ())
    if len(labels) < 2:
        raise TaskError(f"{train.path}: {len(labels)} distinct labels in {task.label!r}; expected at least two.")
    answers, dev_answers = label_ids(train, labels), label_ids(dev, labels)
    log: list[dict[str, Any]] = []
    best: tuple[Trial, Classifier] | None = None
    trials = []
    for seed in seeds:
        classifier = build(loaded, task, labels, settings, seed, precision)
        trial = _trial(_Run(classifier, settings, seed, train, answers), dev, dev_answers, log, report)
        trials.append(trial)
        if best is None or trial.metrics[settings.metric] > best[0].metrics[settings.metric]:
            best = trial, classifier.eval()
    assert best is not None  # there is at least one seed
    return Result(tuple(trials), best[0], best[1], settings, tuple(log))


def _trial(
    run: _Run, dev: Examples, answers: NDArray[np.int64], log: list[dict[str, Any]], report: Report
) -> Trial:
    """Train one seed; afterwards the classifier has the weights of its best epoch."""
    settings, classifier = run.settings, run.classifier
    rows = classifier.encode(dev)
    best: tuple[dict[str, float], int, dict[str, Any]] | None = None
    epoch = 0
    for epoch in range(1, settings.epochs + 1):
        moments = list(_reported(run.epoch(epoch), report))
        guess = classifier.probabilities(rows, rows=2 * settings.batch).argmax(1)
        metrics = measure(answers, guess, len(classifier.labels))
        loss = sum(moment.loss for moment in moments) / len(moments)
        end = replace(moments[-1], loss=loss, dev=metrics)
        report(end)
        log.append({**asdict(end), "event": "epoch"})
        if best is None or metrics[settings.metric] > best[0][settings.metric]:
            best = metrics, epoch, {name: tensor.detach().clone() for name, tensor in classifier.state_dict().items()}
        if settings.patience is not None and epoch - best[1] >= settings.patience:
            break
    assert best is not None  # there is at least one epoch
    classifier.load_state_dict(best[2])
    return Trial(run.seed, best[1], epoch, best[0])


def _reported(moments: Iterator[Moment], report: Report) -> Iterator[Moment]:
    for moment in moments:
        report(moment)
        yield moment


def build(
    loaded: Checkpoint, task: Classification, labels: Sequence[str], settings: Settings, seed: int,
    precision: torch.dtype | None = None,
) -> Classifier:
    """A classifier before training: the checkpoint's network or a fresh twin, and a head drawn from the seed."""
    if settings.from_scratch:
        network = fresh_network(loaded.network, dict(loaded.network_arguments), seed)
    else:
        network = copy.deepcopy(loaded.network)
    reader = Reader(network, loaded.tokenizer, loaded.reading, loaded.order, precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(seed, "head") % 2**63)
        labels_tokens = "token_labelling" in heads_by_kind(loaded)
        head = make_head(reader, classes=len(labels), dropout=settings.dropout, labels_tokens=labels_tokens)
    if not settings.from_scratch:
        copy_pool(head.objective, loaded)
    head.objective.to(reader.device)
    return Classifier(reader, head, labels, task, length=settings.length)


class _Run:
    """The optimiser's side of one run."""

    def __init__(
        self, classifier: Classifier, settings: Settings, seed: int, train: Examples, answers: NDArray[np.int64]
    ) -> None:
        self.classifier, self.settings, self.seed = classifier, settings, seed
        self.rows, self.answers = classifier.encode(train), answers
        self.steps = settings.epochs * math.ceil(len(self.rows) / settings.batch)
        self.step = 0
        network = classifier.reader.network
        self.clock = network.clock
        self.rate = Linear(settings.rate_for(network.width), warmup=settings.warmup)
        self.parameters = [p for p in classifier.parameters() if p.requires_grad]
        self.optimizer = AdamW(weight_decay=settings.weight_decay).build(classifier.named_parameters())

    def epoch(self, number: int) -> Iterator[Moment]:
        """One pass over the training rows."""
        self.classifier.train()
        lengths = [len(row) for row in self.rows]
        for index in shuffled_batches(lengths, self.settings.batch, self.seed, number):
            yield self._update(index, number)

    def _update(self, index: NDArray[np.int64], epoch: int) -> Moment:
        share = self.step / self.steps
        rate = self.rate(share)
        self.clock.set(seed=self.seed, step=self.step, first_row=0, share=share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.classifier.loss([self.rows[i] for i in index], self.answers[index])
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
