"""The training loop: read it from top to bottom.

Each step: choose the mixture entries, fetch their micro-batches (`batching/data.py`), add the counts of all ranks, run the
passes (`step.py`), backward, clip, update; then log, evaluate and checkpoint when they are due (`session.py`). What a step does
follows from the seed, the step and the share of the budget spent, so a killed run resumes as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

import torch

from cloze.batching import Cursor
from cloze.processes import processes
from cloze.training.checkpoints.lock import alone_in
from cloze.training.distribution import Ranks, join
from cloze.training.ending import end
from cloze.training.engine import Engine, EngineChoice, choose
from cloze.training.engine_loop import EngineLoop
from cloze.training.interrupt import Interrupt, interrupts
from cloze.training.meter import NotFinite, StepTotals
from cloze.training.optimizers.averaged import averaging_weights
from cloze.training.optimizers.optimizers import clip, gradient_norm
from cloze.training.run import Outcome, Run
from cloze.training.schedule.freezing import set_rate
from cloze.training.session import Session
from cloze.training.together import StepPiece, whole_step_losses


def train(run: Run, engines: Sequence[Engine] = ()) -> Outcome:
    """Train until the budget is spent, from the last checkpoint of the run folder if it has one.

    Under torchrun every process calls it with its own part of the data. SIGTERM and SIGINT end it after the step, with a
    checkpoint. A run with `until` pauses at that share of the budget; called again, it goes on as if it had not paused.

    Raises:
        CheckpointError, BudgetError: the folder holds another run, a damaged checkpoint or another budget, or
            another process trains in it.
        RecipeError, MissingExtra: a compiled engine is required, and none fits or its package is missing.
        RunError: the loss is not finite, or the disk is full.
    """
    run.check()
    choice = choose(run, engines, processes())
    with join(choice.device, run.training.strategy, run.training.shard) as ranks:
        return _train(run, ranks, choice)


def _train(run: Run, ranks: Ranks, choice: EngineChoice) -> Outcome:
    with alone_in(run.folder, first=ranks.first), interrupts() as interrupt:
        session = Session(run, ranks)
        interrupt.set_say(session.events.say)
        try:
            if choice.hint:
                session.events.say(choice.hint)
            worker = Loop(session) if choice.engine is None else EngineLoop(session, choice.engine)
            while not session.over:
                worker.step(interrupt)
            worker.sync_parameters()
            return end(session, interrupt, compiled=choice.engine is not None)
        finally:
            session.close()


class Loop:
    """The worker that trains by autograd: one update of the parameters per step."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def step(self, interrupt: Interrupt) -> None:
        """One update, then logging, evaluation and a checkpoint if they are due; in the order of the module's docstring."""
        session = self.session
        run_progress = session.run_progress
        session.enter_phase()
        entries = run_progress.entries()
        pieces, cursors = _fetch(session, entries)
        run_progress.stopwatch.start()

        # What all ranks must know before the first forward pass: the divisors, rank 0's time, and whether to stop.
        totals = _count(session, entries, pieces, interrupt).over(session.ranks)
        if not session.agree_to_step(totals.seconds, stop=totals.stops > 0):
            return
        share = run_progress.share
        weights, divisors = session.trainee.weights(entries, share), totals.divisors(session.run.training.divide)
        # A loss sum is divided by what all ranks have together. DDP and FSDP average gradients over ranks, hence `world`.
        factors = {name: weights[name] * session.ranks.world / max(divisors[name], 1.0) for name in divisors}

        for _, group in groupby(pieces, key=lambda piece: piece.entry):
            # Losses that compare all rows of the step need the vectors of all pieces first: one more forward pass (GradCache).
            with whole_step_losses(session.trainee, entry_pieces := list(group), step=run_progress.step, share=share):
                for piece in entry_pieces:
                    _backward(session, piece, share, factors, last=piece is pieces[-1])
        norm = _update(session, share)

        before, after = run_progress.advance(cursors, tokens=totals.tokens, examples=totals.examples, flops=totals.flops)
        session.meter.add_step(run_progress.step, norm, totals, weights)
        session.after_update(before, after)

    def sync_parameters(self) -> None:
        """Nothing to do: each update changes the parameters at once. (An engine may hold newer ones.)"""


def _fetch(session: Session, entries: Sequence[str]) -> tuple[list[StepPiece], dict[str, Cursor]]:
    """This rank's micro-batches of the step, and the next cursors. Entries that share a step draw independently."""
    run_progress = session.run_progress
    pieces: list[StepPiece] = []
    cursors: dict[str, Cursor] = {}
    for number, entry in enumerate(entries):
        micros, cursors[entry] = session.run.data.next(entry, run_progress.progress.cursors[entry], run_progress.share)
        # a row's address, which its random numbers depend on, has the number of its entry above 32 bits (`step.py`)
        pieces += [StepPiece(entry, micro, micro.first_row + (number << 32)) for micro in micros]
    return pieces, cursors


def _count(session: Session, entries: Sequence[str], pieces: Sequence[StepPiece], interrupt: Interrupt) -> StepTotals:
    """The totals of this rank's micro-batches. The batches are still on the CPU."""
    model, log_name = session.trainee.model, session.trainee.log_name
    targets = {name: 0.0 for entry in entries for name in session.trainee.log_names(entry)}
    for piece in pieces:
        for name, count in model.count(piece.entry, piece.micro.batch).items():
            targets[log_name(piece.entry, name)] += count
    return StepTotals(
        targets,
        tokens=float(sum(piece.micro.tokens for piece in pieces)),
        cells=float(sum(rows * length for piece in pieces for rows, length in piece.micro.batch.shapes())),
        examples=float(sum(piece.micro.examples for piece in pieces)),
        flops=sum(model.flops(piece.entry, piece.micro.batch) for piece in pieces),
        seconds=session.run_progress.seconds_now(),
        stops=float(bool(interrupt)),
    )


def _backward(session: Session, piece: StepPiece, share: float, factors: Mapping[str, float], *, last: bool) -> None:
    """Forward and backward of one micro-batch: Σ factor · loss sum, over objectives."""
    trainee, ranks = session.trainee, session.ranks
    with ranks.syncing(trainee.wrapped_model, last):
        by_objective = trainee.forward(
            trainee.wrapped_model, piece.entry, piece.micro, step=session.run_progress.step, share=share,
            first_row=piece.first_row, carries=trainee.carries,
        )
        losses = {trainee.log_name(piece.entry, name): loss for name, loss in by_objective.items()}
        scaled = [loss.total * factors[name] for name, loss in losses.items()]
        torch.stack(scaled).sum().backward()
    session.meter.add_losses(losses)


def _update(session: Session, share: float) -> torch.Tensor:
    """Clip and update; returns the gradient norm before clipping."""
    training, trainee = session.run.training, session.trainee
    trainee.freezing.drop_gradients()
    norm = gradient_norm(trainee.parameters)
    # on a GPU, `Meter.check` reads the norm later, so that the loop does not wait for it
    if norm.device.type == "cpu" and not math.isfinite(float(norm)):
        raise NotFinite(session.run_progress.step + 1, float(norm))
    if training.clip is not None:
        clip(trainee.parameters, norm, training.clip)
    set_rate(trainee.optimizer, trainee.next_rate(share), share)
    with averaging_weights(trainee.optimizer, training.average):  # a mean of each weight, which is published
        trainee.optimizer.step()
    trainee.model.update_averages()  # networks of the recipe that average others and are read in training, such as a teacher
    trainee.optimizer.zero_grad(set_to_none=True)
    return norm
