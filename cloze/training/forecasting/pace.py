"""Measure the speed of an engine by training a moment in a session that writes nothing."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from cloze.training.distribution import join
from cloze.training.engine import Engine, choose
from cloze.training.engine_loop import EngineLoop
from cloze.training.forecasting.forecast import Forecast
from cloze.training.interrupt import Interrupt
from cloze.training.run import Run
from cloze.training.schedule.budget import Budget, Spent
from cloze.training.session import Session

_SECONDS = 1.0  # of training, without the compilation of kernels
_LOG_STEPS = 5  # after which the clock is read


class Pace(NamedTuple):
    """What one epoch spends, by kinds of budget."""

    epoch: dict[str, float]

    def epochs(self, budget: Budget) -> float:
        """The epochs that a budget pays for, without its limit on passes."""
        return budget.amount / max(self.epoch[budget.kind], 1e-12)

    def forecast(self, run: Run) -> Forecast:
        """What the run will take. Compiled engines forecast neither updates nor memory."""
        data: Any = run.data
        epochs = min(self.epochs(run.budget), run.budget.max_epochs or math.inf)
        return Forecast(
            updates=None, tokens=epochs * self.epoch["tokens"], epochs=epochs, seconds=epochs * self.epoch["seconds"],
            parameters=sum(p.numel() for p in run.step.parameters()), batch=data.batch, micro_batch=data.micro_batch, base=0,
        )


class Rehearsal(Session):
    """A session without log, evaluations and checkpoints."""

    def _open(self, *, resumed: bool, hint: str | None) -> None:
        """Open nothing."""

    def write_log(self) -> None:
        """Forget what was measured."""
        self.meter.clear()

    def evaluate(self, *, observed: bool = True) -> None:
        """Measure nothing."""

    def checkpoint(self, *, background: bool = False) -> None:
        """Keep nothing."""


def pace(run: Run, engines: Sequence[Engine], *, seconds: float = _SECONDS) -> Pace | None:
    """What an epoch of a run costs that a compiled engine trains; None where none does.

    This trains the run's weights, so the run cannot be used afterwards. It also compiles kernels that are not compiled yet.
    """
    choice = choose(run, engines, 1)
    if choice.engine is None:
        return None
    training = replace(run.training, log_every=_LOG_STEPS, evaluate_every=0.0, keep_steps=())
    with tempfile.TemporaryDirectory(prefix="cloze-pace-") as folder, join(choice.device) as ranks:
        trial = replace(run, folder=Path(folder), budget=Budget("epochs", 1e9), training=training, selection=None, mirror=None)
        session, interrupt = Rehearsal(trial, ranks), Interrupt()
        try:
            worker = EngineLoop(session, choice.engine)
            worker.step(interrupt)  # it may compile
            before, began = Spent(**asdict(session.run_progress.progress.spent)), time.perf_counter()
            while time.perf_counter() - began < seconds:
                worker.step(interrupt)
            took, after = time.perf_counter() - began, session.run_progress.progress.spent
        finally:
            session.close()
    epochs = after.epochs - before.epochs
    spent = {name: (value - vars(before)[name]) / epochs for name, value in after.to_json().items()}
    return Pace({**spent, "seconds": took / epochs})
