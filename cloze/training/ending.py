"""How a run ends: its budget is spent, it pauses, its metric has stopped improving, or a signal has come."""

from __future__ import annotations

from cloze.training.interrupt import Interrupt
from cloze.training.run import PAUSED, Outcome
from cloze.training.session import Session


def end(session: Session, interrupt: Interrupt, *, compiled: bool) -> Outcome:
    """Measure and save what is lacking, write the last event, and say how the run ended. A collective.

    `compiled`: a compiled engine has trained.
    """
    run_progress, selection_state = session.run_progress, session.selection_state
    if session.stopping:
        session.checkpoint()
        _stop(session, f"stopped by {interrupt.name or 'a signal'}")
    else:
        if run_progress.worked:
            _finish(session)
        _stop(session, _why(session))
    paused = run_progress.reached and run_progress.share < 1 and not selection_state.over
    reason = interrupt.name or "signal" if session.stopping else PAUSED if paused else "budget"
    return Outcome(
        session.run.folder, run_progress.step, finished=not session.stopping and not paused, reason=reason,
        held_out=session.evaluations.held_out, compiled=compiled, standing=selection_state.standing,
        outputs=selection_state.outputs,
    )


def _finish(session: Session) -> None:
    """Measure and save a run whose budget is spent, or one that pauses, unless its last step has been. A run whose metric has
    stopped improving has just been measured; it is saved, too.

    Nothing learns of the loss of a pause: the run goes on as if it had not paused.
    """
    run_progress, due = session.run_progress, session.due
    if run_progress.share >= 1:
        session.evaluate()
        session.checkpoint()
    else:
        if run_progress.reached and due.evaluated != run_progress.step:
            session.evaluate(observed=False)
        if due.saved != run_progress.step:
            session.checkpoint()
    session.saver.finish()


def _why(session: Session) -> str:
    """Why a run ends that no signal has stopped."""
    run, run_progress = session.run, session.run_progress
    if run_progress.share >= 1:
        return run.budget.end(run_progress.progress.spent)
    return f"paused after {run.until:.4g} of the budget" if run_progress.reached else "the metric has stopped improving"


def _stop(session: Session, reason: str) -> None:
    """Write the last event, without which a run counts as interrupted; say how it ended, unless it had ended before."""
    run_progress, step = session.run_progress, session.run_progress.step
    pauses = run_progress.worked and run_progress.reached and run_progress.share < 1
    paused = {"until": session.run.until} if pauses else {}
    session.events.write("stop", step, reason=reason, finished=not session.stopping, **paused, **run_progress.spent_now())
    loss, comparison = ("", "") if session.stopping else session.evaluations.describe()
    if run_progress.worked or session.stopping:
        session.events.say(f"{session.run.folder}: {reason} at step {step:,}{loss}; checkpoint written.{comparison}")
