"""Engines: how a run is trained without the loop's autograd step, and which engine trains it.

This module is the whole interface. A run asks an `Engine` whether it fits and starts its `Trainer`; the trainer learns from the
run through `Steps`. Engines never see the session, the log or the checkpoints, and `training` knows no engine by name: `train`
is given the engines. Those of word vectors are in `cloze.engines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from cloze.batching import Cursor
from cloze.errors import MissingExtra, RecipeError
from cloze.networks.blocks.computed import is_added
from cloze.objectives import Loss
from cloze.training.precision import choose_device
from cloze.training.run import Run


class Steps(Protocol):
    """What an engine gets from its run: how far the run is, and methods to report each step.

    The run has one entry and one objective. `done` is the number of steps so far, `cursor` where the data of the next step
    begin, `device` where the parameters are.
    """

    run: Run
    device: torch.device

    @property
    def done(self) -> int: ...

    @property
    def cursor(self) -> Cursor: ...

    def ready(self) -> bool:
        """Whether another step may begin: the budget is not spent, and no signal has come."""

    def rate(self) -> float:
        """The learning rate of the next step."""

    def optimizer_state(self, parameter: Tensor) -> dict[str, Any]:
        """The optimizer's state of a parameter. The engine may change its tensors in place; checkpoints save them."""

    def count(self, after: Cursor, *, tokens: float, examples: float, flops: float) -> bool:
        """Count a finished step. `after` is where the next one begins.

        Returns whether the trainer should return now, because a log event, an evaluation or a checkpoint is due. Steps may be
        counted before the work is done, as long as it is done when `train` returns.
        """

    def report(self, loss: Loss, *, targets: float, tokens: float, flops: float) -> None:
        """Add to the next log event: the loss, summed over `targets` targets, and what it took.

        Raises `NotFinite` if the loss is not finite, so that the run stops before it saves anything.
        """

    def finish(self) -> None:
        """Nothing is left to learn: a budget of time counts as spent."""


class ProgressUnit(NamedTuple):
    """What the progress line counts per second, and how many `tokens` one of them is in `Steps.count`."""

    name: str = "tokens"
    tokens: float = 1.0


class Trainer(Protocol):
    """An engine at work on one run. `unit` is what its speed is told in: tokens, or facts of so many ids."""

    unit: ProgressUnit

    def train(self) -> None:
        """Train one or more steps. Counts each with `Steps.count` and returns when that says so, or earlier."""

    def sync_parameters(self) -> None:
        """Write everything learned into the run's parameters; called before they are measured or saved."""


class Engine(Protocol):
    """Trains runs of some shape, such as word vectors, without autograd and in one process.

    It reads the live parts of the run (networks, objectives, edits, sources). It writes into the same parameters and optimizer
    state as the loop, so that checkpoints, held-out losses and exported folders do not depend on what trained them.
    `cpu_only`: it trains on the CPU, and is so much faster there that the device `auto` then means the CPU.
    """

    name: str
    cpu_only: bool

    def meant_for(self, run: Run) -> bool:
        """Whether users expect this engine for such a run, so that a hint explains why it does not fit."""

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run, in a few words; empty if it can. Imports and changes nothing."""

    def require(self, run: Run) -> str:
        """A hint for the user before the engine starts, or an empty string. Raises `MissingExtra` if a package is missing."""

    def begin(self, steps: Steps) -> Trainer:
        """Start training a run that is new or has been restored from a checkpoint."""


class EngineChoice(NamedTuple):
    """The engine that trains a run (None: the loop), the device, and a hint for the user."""

    engine: Engine | None
    device: str
    hint: str = ""


def choose(run: Run, engines: Sequence[Engine], processes: int) -> EngineChoice:
    """The first of the engines that fits, or the loop. Decided before anything is written.

    Raises `RecipeError` if `engine: compiled` is asked for and none fits, `MissingExtra` if its package is missing.
    """
    preference = run.training.engine
    if preference == "loop":
        return EngineChoice(None, run.device)
    reasons, expected = {}, []
    for engine in engines:
        reasons[engine.name] = "several processes train" if processes > 1 else _needs_loop(run) or engine.fits(run)
        if not reasons[engine.name]:
            try:
                return _chosen(engine, run)
            except MissingExtra as missing:
                if preference == "compiled":
                    raise
                return EngineChoice(None, run.device, f"hint: this recipe trains in the ordinary loop, which is slow. {missing}")
        if engine.meant_for(run):
            expected.append(reasons[engine.name])
    if preference == "compiled":
        listed = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
        raise RecipeError(f"training.engine: compiled, but no compiled engine fits this recipe.{listed}\n  Write `engine: auto`.")
    slow = "hint: this recipe trains in the ordinary loop, which is slow. The compiled engine does not fit:"
    return EngineChoice(None, run.device, f"{slow} {expected[0]}." if expected else "")


def _needs_loop(run: Run) -> str:
    """Why no engine can train a run, if that follows from how it is trained."""
    if run.training.average is not None:
        return "a mean of the weights is kept"
    if any(is_added(name) for network in run.step.networks.values() for name, _ in network.named_modules()):
        return "a change computes weights of the network"
    return "the batch grows" if run.training.growth is not None else ""


def _chosen(engine: Engine, run: Run) -> EngineChoice:
    hints = [engine.require(run)]
    cpu = engine.cpu_only and run.device == "auto"
    if cpu and torch.cuda.is_available():
        hints.append(
            "hint: compiled code trains this recipe on the CPU, faster than the loop would on the GPU.\n"
            "  To train it in the loop on the GPU, give --device cuda."
        )
    return EngineChoice(engine, "cpu" if cpu else run.device, "\n".join(hint for hint in hints if hint))


def on_cpu(run: Run) -> bool:
    """Whether the run may train on the CPU: its device is the CPU or `auto`."""
    return run.device == "auto" or choose_device(run.device).type == "cpu"
