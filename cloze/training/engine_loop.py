"""Drives an engine: lets it train until something is due, then does what is due, as the loop does after each update."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from cloze.batching import Cursor
from cloze.errors import RunError
from cloze.objectives import Loss
from cloze.training.engine import Engine
from cloze.training.interrupt import Interrupt
from cloze.training.meter import NotFinite, StepTotals
from cloze.training.session import Session

_TOKENS_PER_LOG = 500_000  # with fewer between two log events, an engine's threads would wait for each other too often


class EngineLoop:
    """The worker of a run that an engine trains."""

    def __init__(self, session: Session, engine: Engine) -> None:
        self.session, self.steps = session, EngineSteps(session)
        self.trainer = engine.begin(self.steps)
        session.events.line.set_unit(*self.trainer.unit)
        session.meter.clear()  # the time to compile kernels is not training time

    def step(self, interrupt: Interrupt) -> None:
        """Let the engine train until a log event, an evaluation or a checkpoint is due, and do that."""
        session = self.session
        session.enter_phase()
        if not session.agree_to_step(session.run_progress.seconds_now(), stop=bool(interrupt)):
            return
        before = session.run_progress.progress.share
        self.steps.begin(interrupt)
        self.trainer.train()
        if not session.run_progress.step and not interrupt:
            raise RunError(f"{session.run.folder}: there is nothing to train on: the engine found no rows. Check the corpus.")
        session.after_update(before, session.run_progress.share, self.trainer.sync_parameters)

    def sync_parameters(self) -> None:
        """Write everything learned into the parameters."""
        self.trainer.sync_parameters()


class EngineSteps:
    """The `Steps` of a session with one entry and one objective."""

    def __init__(self, session: Session) -> None:
        self.session, self.run_progress, self.trainee = session, session.run_progress, session.trainee
        self.run, self.device = session.run, session.ranks.device
        ((self.entry, _),) = self.trainee.model.entries.items()
        (self.objective,) = self.trainee.log_names(self.entry)
        self.interrupt: Interrupt | None = None
        self.logging, self.first_token = False, 0

    def begin(self, interrupt: Interrupt) -> None:
        """Before the trainer goes to work."""
        self.interrupt, self.logging, self.first_token = interrupt, False, self.run_progress.progress.spent.tokens

    @property
    def done(self) -> int:
        """Steps so far."""
        return self.run_progress.step

    @property
    def cursor(self) -> Cursor:
        """Where the data of the next step begin."""
        return self.run_progress.progress.cursors[self.entry]

    def ready(self) -> bool:
        """Whether another step may begin."""
        self.run_progress.stopwatch.start()
        self.run_progress.set_seconds(self.run_progress.seconds_now())
        return not self.interrupt and not self.run_progress.reached

    def rate(self) -> float:
        """The learning rate of the next step."""
        return self.trainee.next_rate(self.run_progress.share)

    def optimizer_state(self, parameter: Tensor) -> dict[str, Any]:
        """The optimizer's state of a parameter."""
        return self.trainee.optimizer.state[parameter]

    def count(self, after: Cursor, *, tokens: float, examples: float, flops: float) -> bool:
        """Count a step; whether anything is due. A log event waits for 500,000 tokens unless `log_every` is given."""
        due = self.session.due
        before, share = self.run_progress.advance({self.entry: after}, tokens=tokens, examples=examples, flops=flops)
        self.logging |= due.log(before, share)
        enough = self.run.training.log_every is not None
        enough |= self.run_progress.progress.spent.tokens - self.first_token >= _TOKENS_PER_LOG
        return due.evaluation(before, share) or due.checkpoint(before, share) or (self.logging and enough)

    def report(self, loss: Loss, *, targets: float, tokens: float, flops: float) -> None:
        """Add to the next log event. Raises `NotFinite` if the loss is not finite."""
        if not math.isfinite(total := float(loss.total)):
            raise NotFinite(self.done, total)
        totals = StepTotals({self.objective: targets}, tokens=tokens, cells=tokens, flops=flops)
        self.session.meter.add_losses({self.objective: loss})
        self.session.meter.add_step(self.done, None, totals, {self.objective: 1.0})

    def finish(self) -> None:
        """A budget of time counts as spent."""
        self.run_progress.spend_seconds()
