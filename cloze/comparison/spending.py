"""What a run of pre-training has spent, and its held-out losses, by its log; and whether it was measured at a rung."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloze.errors import CheckpointError
from cloze.reports.run import LOG, Record, in_order, loss_together, number, read_log


def spent(run: Path, until: float = 1.0) -> dict[str, Any]:
    """What the runs of all stages spent, and the held-out losses of the last one: rows of (tokens, flops, seconds, loss).

    With `until`, what the run had spent when it paused at that share of its budget, however far it has come since. Raises
    `CheckpointError` if it has passed that share without being measured there.
    """
    total = {"tokens": 0.0, "flops": 0.0, "seconds": 0.0}
    for folder in [*sorted((run / "cloze" / "stages").glob("*")), run]:
        events = read_log(folder / LOG)[0]  # at last those of the run itself
        end = next((event for event in reversed(events) if event.get("event") == "stop"), {})
        total = {name: value + (number(end, name) or 0.0) for name, value in total.items()}
    _require_pause(run, until, events)
    measured = _held_out(events)
    there = _first_at(measured, until)
    paused = math.inf if there is None else number(there, "step") or 0.0
    by_step: dict[float, list[Record]] = {}  # a mixture has several losses at a step
    for event in (event for event in measured if (number(event, "step") or 0.0) <= paused):
        by_step.setdefault(number(event, "step") or 0.0, []).append(event)
    curve = [row for events in by_step.values() if (row := _row(events)) is not None]
    if until < 1 and curve:
        total = dict(zip(total, curve[-1], strict=False))
    return {**total, "held_out": curve[-1][3] if curve else None, "curve": curve}


def require_pause(run: Path, until: float) -> None:
    """Raise `CheckpointError` if a run has passed the share `until` of its budget, below 1, without being measured there."""
    if (run / LOG).is_file():
        _require_pause(run, until, read_log(run / LOG)[0])


def _require_pause(run: Path, until: float, events: Sequence[Record]) -> None:
    there = _first_at(_held_out(events), until) if until < 1 else None
    if there is None:
        return
    step, share = number(there, "step") or 1.0, number(there, "share") or 0.0
    pauses = [number(event, "step") for event in events if event.get("event") == "stop" and number(event, "until") == until]
    if step not in pauses and share * (step - 1) / step >= until:  # not its first step with this share
        raise CheckpointError(
            f"{run}: has passed {until:g} of its budget without a pause, so its loss there is not known.\n"
            "  Give the --rungs with which it was trained, --rungs 1, or another --out."
        )


def _held_out(events: Sequence[Record]) -> list[Record]:
    return in_order(event for event in events if event.get("event") == "held_out")


def _first_at(measured: Sequence[Record], until: float) -> Record | None:
    """The first held-out event at which a share of the budget was spent."""
    return next((event for event in measured if (number(event, "share") or 0.0) >= until), None)


def _row(events: Sequence[Record]) -> list[float] | None:
    """What a run had spent at an evaluation, the mean over its events, and its held-out loss; None if a number is missing."""
    amounts = [number(event, name) for name in ("tokens", "flops", "seconds") for event in events]
    loss, present = loss_together(events), [amount for amount in amounts if amount is not None]
    if loss is None or len(present) < len(amounts):
        return None
    return [*np.mean(np.reshape(present, (3, len(events))), axis=1).tolist(), loss]
