"""The training loop: read it from top to bottom.

Each step: choose the mixture entries, fetch their micro-batches (`batching/data.py`), add the counts of all ranks, run the
passes (`step.py`), backward, clip, update; then log, evaluate and checkpoint when they are due (`session.py`). What a step does
follows from the seed, the step and the share of the budget spent, so a killed run resumes as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch

from cloze.batching import Cursor
from cloze.processes import processes
from cloze.training.checkpoints.lock import alone_in
from cloze.training.distribution import Ranks, join
from cloze.training.engine import Choice, Engine, choose
from cloze.training.engine_loop import EngineLoop
from cloze.training.interrupt import Interrupt, interrupts
from cloze.training.meter import NotFinite
from cloze.training.optimizers.averaged import following
from cloze.training.optimizers.optimizers import clip, gradient_norm
from cloze.training.precision import casting
from cloze.training.run import PAUSED, Outcome, Run
from cloze.training.schedule.freezing import set_rate
from cloze.training.session import Session
from cloze.training.together import Piece, together


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


def _train(run: Run, ranks: Ranks, choice: Choice) -> Outcome:
    with alone_in(run.folder, first=ranks.first), interrupts() as interrupt:
        session = Session(run, ranks)
        interrupt.say = session.say
        try:
            if choice.hint:
                session.say(choice.hint)
            worker = Loop(session) if choice.engine is None else EngineLoop(session, choice.engine)
            while not session.over and not session.stopping:
                worker.step(interrupt)
            worker.settle()
            if session.stopping:
                session.checkpoint()
                session.stop(f"stopped by {interrupt.name or 'a signal'}")
            else:
                if session.worked:
                    if session.share >= 1:
                        session.evaluate()
                        session.checkpoint()
                    elif session.reached:
                        session.pause()
                    session.saver.finish()
                session.stop(_why(session))
            paused = session.reached and session.share < 1 and not session.stalled
            reason = interrupt.name or "signal" if session.stopping else PAUSED if paused else "budget"
            done, compiled = not session.stopping and not paused, choice.engine is not None
            return Outcome(
                run.folder, session.step, done, reason, session.held_out, compiled=compiled, standing=session.standing
            )
        finally:
            session.close()


def _why(session: Session) -> str:
    """Why a run ends that no signal has stopped."""
    if session.share >= 1:
        return session.run.budget.end(session.progress.spent)
    return f"paused after {session.run.until:.4g} of the budget" if session.reached else "the metric has stopped improving"


class Loop:
    """The worker that trains by autograd: one update of the parameters per step."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def step(self, interrupt: Interrupt) -> None:
        """One update, then logging, evaluation and a checkpoint if they are due."""
        _step(self.session, interrupt)

    def settle(self) -> None:
        """Nothing to do: each update changes the parameters at once. (An engine may hold newer ones.)"""


def _step(session: Session, interrupt: Interrupt) -> None:
    """One step of the run, in the order of the module's docstring."""
    session.enter_phase()
    entries = session.entries()
    pieces, cursors = _fetch(session, entries)
    session.clock.start()
    counts = {name: 0.0 for entry in entries for name in session.names(entry)}
    for piece in pieces:
        for name, count in session.model.count(piece.entry, piece.micro.batch).items():
            counts[session.name(piece.entry, name)] += count
    tokens = float(sum(piece.micro.tokens for piece in pieces))
    examples = float(sum(piece.micro.examples for piece in pieces))
    # Cells are tokens and padding: tokens / cells is how full the batches are.
    cells = float(sum(rows * length for piece in pieces for rows, length in piece.micro.batch.shapes()))
    flops = sum(session.flops(piece.entry, piece.micro) for piece in pieces)

    # What all ranks must know before the first forward pass: the divisors, rank 0's time, and whether to stop.
    # One vector (objectives + 6,), summed over ranks: the count of each objective, in the order of `counts`;
    # tokens, cells, examples, operations; seconds, 0 on all ranks but the first; 1 on a rank that had a signal.
    local = [*counts.values(), tokens, cells, examples, flops, session.clock_now(), float(bool(interrupt))]
    *summed, tokens, cells, examples, flops, seconds, stop = session.ranks.add(local)
    counts = dict(zip(counts, summed, strict=True))
    session.progress.spent.seconds = seconds
    session.stopping = stop > 0
    if session.stopping or session.reached:
        return
    share, divide = session.share, session.run.training.divide
    divisors = counts if divide == "targets" else dict.fromkeys(counts, examples if divide == "rows" else 1.0)
    weights = {session.name(e, n): w for e in entries for n, w in session.model.weights(e, share).items()}

    for _, group in groupby(pieces, key=lambda piece: piece.entry):
        with together(session, entry_pieces := list(group), share):
            for piece in entry_pieces:
                _backward(session, piece, share, weights, divisors, last=piece is pieces[-1])
    norm = _update(session, share)

    before, share = session.advance(cursors, tokens=tokens, examples=examples, flops=flops)
    session.meter.add_step(session.step, norm, counts, weights, tokens=tokens, cells=cells, flops=flops)
    session.after_update(before, share)


def _fetch(session: Session, entries: Sequence[str]) -> tuple[list[Piece], dict[str, Cursor]]:
    """This rank's micro-batches of the step, and the next cursors. Entries that share a step draw independently."""
    pieces: list[Piece] = []
    cursors: dict[str, Cursor] = {}
    for number, entry in enumerate(entries):
        micros, cursors[entry] = session.run.data.next(entry, session.progress.cursors[entry], session.share)
        pieces += [Piece(entry, micro, micro.first_row + (number << 32)) for micro in micros]
    return pieces, cursors


def _backward(
    session: Session, piece: Piece, share: float, weights: dict[str, float], divisors: dict[str, float], *, last: bool
) -> None:
    """Forward and backward of one micro-batch: Σ weight · loss sum / divisor of the whole step, over ranks and pieces."""
    ranks = session.ranks
    session.model.clock.set(seed=session.run.seed, step=session.step, first_row=piece.first_row, share=share)
    batch = piece.micro.batch.to(ranks.device, non_blocking=True)
    with ranks.syncing(session.module, last):
        with casting(session.precision, ranks.device):
            by_objective = session.module(piece.entry, batch, session.carry(piece.entry, piece.micro, session.carries))
        losses = {session.name(piece.entry, name): loss for name, loss in by_objective.items()}
        # DDP and FSDP average gradients over ranks; the sums here are already divided by the count of all ranks.
        scaled = [loss.total * (weights[name] * ranks.world / max(divisors[name], 1.0)) for name, loss in losses.items()]
        torch.stack(scaled).sum().backward()
    session.meter.add_losses(losses)


def _update(session: Session, share: float) -> torch.Tensor:
    """Clip and update; returns the gradient norm before clipping."""
    run, parameters = session.run, session.parameters
    session.freezing.drop()
    norm = gradient_norm(parameters)
    if norm.device.type == "cpu" and not math.isfinite(float(norm)):
        raise NotFinite(session.step + 1, float(norm))
    if run.training.clip is not None:
        clip(parameters, norm, run.training.clip)
    session.learning_rate = run.rate(share, run.training.nominal_steps)
    set_rate(session.optimizer, session.learning_rate, share)
    with following(session.optimizer, run.training.average):
        session.optimizer.step()
    session.model.follow()
    session.optimizer.zero_grad(set_to_none=True)
    return norm
