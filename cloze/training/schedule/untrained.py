"""Runs that ended before their first step: their folders hold random weights. No torch."""

from __future__ import annotations

from pathlib import Path

from cloze.errors import CheckpointError


def is_untrained(run: Path) -> bool:
    """Whether a folder holds a run whose only checkpoint is the one of step 0."""
    steps = [path.name[5:] for path in (run / "cloze" / "checkpoints").glob("step-*")]
    return bool(steps) and all(step.isdigit() and int(step) == 0 for step in steps)


def require_trained(run: Path) -> None:
    """Raise a `CheckpointError` for such a run."""
    if is_untrained(run):
        raise CheckpointError(
            f"{run}: the run ended before its first step, so its weights are random. Run its command again to train it."
        )
