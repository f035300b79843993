"""Fits the new heads of a task to the states of the frozen network (`training.new_heads: fitted`), where fine-tuning starts.

Fine-tuning from a random head distorts what the network has learned; from a fitted head it does so less, and what is known before
the first step is not lost (Kumar et al., 2022, "Fine-Tuning can Distort Pretrained Features and Underperform
Out-of-Distribution"). The network reads the rows once, without dropout. A first map without a norm behind it then starts as the
identity, centred and scaled to where its nonlinearity is nearly straight, and `head.output` minimises the objective's own loss
plus an L2 penalty. Its weight is chosen by the loss of the first dev rows (256, `Data.held_out_rows`), or of rows left out if
there are few of those, among the weights that leave something to learn: a head that is sure of its training rows gives the
network no gradients. Everything is deterministic and the same in every process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.batching import Data, MicroBatch
from cloze.decoding.progress import DecodingProgress
from cloze.errors import RecipeError, Say
from cloze.networks.remembered import remembering
from cloze.objectives.heads import ClassHead
from cloze.objectives.labels.sequence_labelling import LabellingHead, MixedLabellingHead
from cloze.objectives.pooled import PooledHead
from cloze.objectives.transforms import Nonlinearity
from cloze.training.selection import Metrics
from cloze.training.step import StepModule
from cloze.uncompiled import eager

ROWS, NUMBERS = 10_000, 2**24  # that are read at most: rows of an entry, and numbers of states of a head
PIECE = 64  # rows of a micro-batch
GAIN = 0.5  # the standard deviation of what the nonlinearity reads
CENTRES: Mapping[Nonlinearity, float] = {"tanh": 0.0, "gelu": 1.0, "gelu_tanh": 1.0, "relu": 1.0}  # and its mean
PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)  # tried in this order, for states of variance 1
LEFT = 0.5  # the least loss of the training rows, as a share of that of other rows
ENOUGH, FOLDS = 50, 5  # targets of dev rows that choose the penalty; with fewer, parts of the training rows do
FITTABLE_HEADS = (ClassHead, LabellingHead, MixedLabellingHead, PooledHead)
STEPS, LAST_STEPS = 30, 200  # of L-BFGS for each penalty that is tried, and for the one that is taken


class ObjectiveReading(NamedTuple):
    """What an objective reads of a micro-batch, the shapes of its readings by name, and what its head reads; later what its
    output reads, in float64."""

    batch: Batch
    shapes: Mapping[str, torch.Size]
    inputs: tuple[Any, ...]


@dataclass
class _Recorder:
    """Records what an objective and its head read in the passes of a step; reads no more once it has `NUMBERS` of states."""

    objective: Any
    pieces: list[ObjectiveReading]
    numbers: int = 0

    def __post_init__(self) -> None:
        self._readings: tuple[Mapping[str, Tensor], Batch] = {}, Batch({})
        self.hooks = [
            self.objective.register_forward_pre_hook(self._note_readings),
            self.objective.head.register_forward_pre_hook(self._note_inputs),
        ]

    def _note_readings(self, _: Any, arguments: tuple[Any, ...]) -> None:
        self._readings = arguments[0], arguments[1]

    def _note_inputs(self, _: Any, arguments: tuple[Any, ...]) -> None:
        if self.numbers < NUMBERS:
            readings, batch = self._readings
            inputs = tuple(argument.cpu() if isinstance(argument, Tensor) else argument for argument in arguments)
            self.pieces.append(ObjectiveReading(batch.to("cpu"), {name: state.shape for name, state in readings.items()}, inputs))
            self.numbers += sum(tensor.numel() for tensor in inputs if isinstance(tensor, Tensor))


class Losses(NamedTuple):
    """The mean losses of the rows that a head was fitted to, and of rows left out."""

    trained: float
    held: float


class _Output(nn.Module):
    """Stands in for a head whose output is all that is fitted: its scores of the `states` of one piece, whatever it is given."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__()
        self.output, self.states = output, torch.zeros(0)

    def forward(self, *inputs: Any) -> Tensor:
        scores: Tensor = self.output(self.states)
        return scores


def fit_heads(
    step: StepModule, data: Data, keys: Collection[str], *, device: torch.device, say: Say,
    measure: Callable[[], Metrics] | None = None,
) -> Metrics | None:
    """Fit the heads `keys` of a step to the first rows of its entries, which the networks read on `device`; one line each.

    `data` must have the same order in every run and process. Returns what `measure()` says of the dev rows afterwards; None
    without it, or if there are no heads. The networks read the dev rows once for both, in the batches in which `measure` reads
    them, so that later measurements agree with it to the last bit.

    Raises a `RecipeError` if a head has no output map that its scores are linear in.
    """
    for key in keys:
        objective: Any = step.objectives[key]
        if not objective.fittable or not isinstance(objective.module, FITTABLE_HEADS):
            raise RecipeError(
                f"training.new_heads: the head {key!r} is not linear in the states of the frozen network, so it cannot be "
                "fitted.\n  Use scaled or drawn: --set training.new_heads=scaled"
            )
    if not keys:
        return None
    with remembering(step.networks.values()):
        if measure is not None:
            with _evaluating(step, device):
                measure()
        _fit_to_rows(step, data, keys, device, say)
        if measure is None:
            return None
        with _evaluating(step, device):
            return measure()


@contextmanager
def _evaluating(step: StepModule, device: torch.device) -> Iterator[None]:
    """A context in which a step is on `device`, without dropout."""
    training = step.training
    step.to(device).eval()
    try:
        yield
    finally:
        step.to("cpu").train(training)


def _fit_to_rows(step: StepModule, data: Data, keys: Collection[str], device: torch.device, say: Say) -> None:
    """Fit the heads `keys` to the first rows of the entries."""
    began = time.perf_counter()
    rows = {entry: min(ROWS, data.rows_in_epoch(entry)) for entry in step.entries}
    dev = _read(step, {entry: data.held_out(entry) for entry in step.entries}, keys, device)
    folds = 1 if all(_count_targets(step.objectives[key], dev[key]) >= ENOUGH for key in keys) else 2 * FOLDS
    training = {entry: data.first_rows(entry, count, max(1, min(PIECE, count // folds))) for entry, count in rows.items()}
    with DecodingProgress(sum(rows.values()), "rows read to fit the heads") as progress:
        seen = _read(step, training, keys, device, progress)
    for key in keys:
        objective: Any = step.objectives[key]
        if not seen[key]:
            continue
        start_straight(objective.head, seen[key])
        penalty = fit_output(objective, _features(objective, seen[key]), _features(objective, dev[key]))
        seconds, began = time.perf_counter() - began, time.perf_counter()
        targets = int(_count_targets(objective, seen[key]))
        say(f"{key}: fitted to the frozen network ({targets:,} targets, penalty {penalty:g}, {seconds:.0f} s)")


def _read(
    step: StepModule, micros: Mapping[str, Iterable[MicroBatch]], keys: Collection[str], device: torch.device,
    progress: Callable[[int], None] = lambda rows: None,
) -> dict[str, list[ObjectiveReading]]:
    """What the heads `keys` read of some micro-batches of every entry; `progress` gets the number of rows of each."""
    recorders = {key: _Recorder(step.objectives[key], []) for key in keys}
    try:
        with _evaluating(step, device), torch.no_grad():
            for entry, batches in micros.items():
                for micro in batches:
                    step.clock.set(step=0, first_row=micro.first_row)
                    step(entry, micro.batch.to(device))
                    progress(micro.examples)
    finally:
        for recorder in recorders.values():
            for hook in recorder.hooks:
                hook.remove()
    return {key: recorder.pieces for key, recorder in recorders.items()}


def _count_targets(objective: Any, pieces: Sequence[ObjectiveReading]) -> float:
    return sum(float(objective.count(piece.batch)) for piece in pieces)


@torch.no_grad()
def start_straight(head: nn.Module, pieces: Sequence[ObjectiveReading]) -> None:
    """Start the first map of a head as the identity, centred and scaled on what it reads; a map with a norm behind it, or to
    another width, stays as it is."""
    if not isinstance(head, ClassHead | LabellingHead):
        return
    first, kind = head.first, head.transform
    if kind is None or first is None or head.norm is not None or first.in_features != first.out_features:
        return
    read: list[Tensor] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].flatten(0, -2)))
    for piece in pieces:
        head(*piece.inputs)
    hook.remove()
    states = torch.cat(read).double()
    gain = GAIN / states.var(0, correction=0).mean().sqrt().clamp(min=1e-6)
    first.weight.copy_(torch.eye(len(first.weight)) * gain)
    if first.bias is not None:
        first.bias.copy_(CENTRES[kind] - states.mean(0) * gain)


@torch.no_grad()
def _features(objective: Any, pieces: Sequence[ObjectiveReading]) -> list[ObjectiveReading]:
    """The pieces with what the output of the head reads in place of what the head reads."""
    read: list[Tensor] = []
    head = objective.head
    training = head.training
    head.eval()
    hook = head.output.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    for piece in pieces:
        head(*piece.inputs)
    hook.remove()
    head.train(training)
    return [piece._replace(inputs=(states.double(),)) for piece, states in zip(pieces, read, strict=True)]


def fit_output(objective: Any, pieces: Sequence[ObjectiveReading], dev: Sequence[ObjectiveReading]) -> float:
    """Fit the output of a head; returns the penalty.

    The loss that chooses the penalty is that of the dev pieces, or of parts of the training pieces that are left out in turn.
    """
    fit = _Fit(objective, pieces)
    if _count_targets(objective, dev) >= ENOUGH:
        parts = [(pieces, dev)]
    else:
        folds = min(FOLDS, len(pieces))
        parts = [
            ([piece for number, piece in enumerate(pieces) if number % folds != fold], pieces[fold::folds])
            for fold in range(folds)
        ]
    with DecodingProgress(len(parts) * len(PENALTIES), "penalties tried") as progress:
        penalty = choose_penalty([fit.path(train, held, progress) for train, held in parts])
    fit.start()
    fit.minimise(pieces, penalty, LAST_STEPS)
    fit.copy_to(objective)
    return penalty


def choose_penalty(paths: Sequence[Sequence[Losses]]) -> float:
    """The penalty with the lowest mean held-out loss. The search stops before penalties that bring the training loss below `LEFT`
    times the held-out loss."""
    best, lowest = PENALTIES[0], float("inf")
    for penalty, losses in zip(PENALTIES, zip(*paths, strict=False), strict=False):
        held, trained = sum(fold.held for fold in losses), sum(fold.trained for fold in losses)
        if trained < LEFT * held and lowest < float("inf"):
            break
        if held < lowest:
            best, lowest = penalty, held
    return best


class _Fit:
    """L-BFGS on the loss of an objective as a function of its output, in float64."""

    def __init__(self, objective: Any, pieces: Sequence[ObjectiveReading]) -> None:
        self.objective = deepcopy(objective).cpu().double().train(False)
        self.objective.head = self.head = _Output(self.objective.head.output)
        output = self.head.output
        self.fitted = [p for p in (output.weight, output.bias) if p is not None and p.requires_grad]
        states = torch.cat([piece.inputs[0].flatten(0, -2) for piece in pieces])
        self.scale = float(states.var(0, correction=0).mean())

    @torch.no_grad()
    def start(self) -> None:
        """All parameters at zero."""
        for parameter in self.fitted:
            parameter.zero_()

    def loss(self, pieces: Sequence[ObjectiveReading]) -> Tensor:
        """The summed loss of some pieces."""
        losses = []
        for piece in pieces:
            (self.head.states,) = piece.inputs
            readings = {name: torch.zeros((), dtype=torch.float64).expand(shape) for name, shape in piece.shapes.items()}
            losses.append(self.objective.loss_per_target(self.objective.scores(readings, piece.batch), piece.batch).total)
        return torch.stack(losses).sum()

    def minimise(self, pieces: Sequence[ObjectiveReading], penalty: float, steps: int = STEPS) -> None:
        """Continue from the parameters as they are to the minimum of the loss plus the penalty; offsets are free."""
        optimizer = eager(torch.optim.LBFGS)(
            self.fitted, max_iter=steps, history_size=20, tolerance_grad=1e-5, tolerance_change=1e-9,
            line_search_fn="strong_wolfe",
        )
        def closure() -> Tensor:
            optimizer.zero_grad()
            total = self.loss(pieces) + 0.5 * penalty * self.scale * self.head.output.weight.square().sum()
            total.backward()
            return total

        optimizer.step(closure)

    def mean(self, pieces: Sequence[ObjectiveReading]) -> float:
        """The mean loss of some pieces."""
        with torch.no_grad():
            return float(self.loss(pieces)) / max(_count_targets(self.objective, pieces), 1.0)

    def path(
        self, train: Sequence[ObjectiveReading], held: Sequence[ObjectiveReading],
        progress: Callable[[int], None] = lambda penalties: None,
    ) -> list[Losses]:
        """The losses after each of `PENALTIES`, each fitted from the last, until those of the pieces `held` have risen twice.

        `progress` gets 1 after each penalty, and at the end the number of those left out.
        """
        self.start()
        path: list[Losses] = []
        for penalty in PENALTIES:
            self.minimise(train, penalty)
            path.append(Losses(self.mean(train), self.mean(held)))
            progress(1)
            if len(path) > 2 and path[-1].held > path[-2].held > path[-3].held:
                break
        progress(len(PENALTIES) - len(path))
        return path

    @torch.no_grad()
    def copy_to(self, objective: Any) -> None:
        """Give an objective the fitted parameters."""
        objective.head.output.load_state_dict(self.head.output.state_dict())
