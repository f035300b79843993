"""The run's log: `cloze/log.jsonl`, one object per event, and one progress line for the terminal.

Events: `start`, `resume`, `train`, `held_out`, `samples`, `stop`. `start` and `resume` have `baselines`, objective → the
losses of `chance`, `single` tokens and `pairs` (see `training/baselines.py`). A `train` event has step, tokens, seconds, share,
loss, objectives (name → loss), metrics (name → mean per target), learning_rate, grad_norm, tokens_per_second, filled and mfu.
The loss of an objective is the mean per target. `loss` is their weighted sum; in a run with one objective it is unweighted.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from cloze.display import PlainDisplay, choose_display, duration
from cloze.errors import RunError, Say
from cloze.html_parts import metric_text
from cloze.training.baselines import Baseline
from cloze.training.checkpoints.plain import open_plain
from cloze.training.trackers import Tracker
from cloze.untrusted import parse_json

_QUIET_SECONDS = 20.0
_EARLY = 0.005  # the share of the budget from which a first event tells the time left
TRACKED = ("train", "held_out", "dev")  # events whose numbers go to trackers, besides the baselines of `start`


class Log:
    """Appends events to the log. If it is opened after a checkpoint, it first drops the events of later steps."""

    def __init__(self, run: Path, *, after: int | None, trackers: Sequence[Tracker] = ()) -> None:
        self.path = run / "cloze" / "log.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if after is not None:
            cut_log(self.path, after)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if after is not None else os.O_TRUNC)
        self.file = os.fdopen(open_plain(self.path, flags), "w", encoding="utf-8")
        self.trackers = trackers

    def write(self, event: str, step: int, **values: Any) -> dict[str, Any]:
        """Append one event and flush it, so that a killed process loses no event."""
        record = {"event": event, "step": step, **values}
        try:
            self.file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise RunError(
                f"{self.path}: cannot be written at step {step}: the disk is full.\n"
                "  Checkpoints already written are whole; make room, then run the same command again."
            ) from error
        values = {f"{event}/{name}": value for name, value in _flat(record)} if event in TRACKED else {}
        if event == "start":
            values = dict(_flat({"baselines": record.get("baselines", {})}))
        for tracker in self.trackers if values else ():
            tracker.log(values, step)
        return record

    def close(self) -> None:
        """Close the log and the trackers."""
        self.file.close()
        for tracker in self.trackers:
            tracker.close()


def cut_log(path: Path, after: int) -> None:
    """Drop the events of steps later than `after`, and a last line that is incomplete."""
    try:
        descriptor = open_plain(path, os.O_RDWR)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "r+b") as file:
        lines = file.read().split(b"\n")
        end = len(lines) - 1  # the rest after the last newline is incomplete or empty
        while end and not _belongs(lines[end - 1], after):
            end -= 1
        file.truncate(sum(len(line) + 1 for line in lines[:end]))


def _belongs(line: bytes, after: int) -> bool:
    try:
        return bool(parse_json(line)["step"] <= after)
    except (ValueError, KeyError, TypeError):
        return False


def _flat(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    flat: list[tuple[str, float]] = []
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and name != "step":
            flat.append((prefix + name, float(value)))
    return flat


class ProgressLine:
    """Loss, tokens (or another `unit`) per second and time left, on the display of this process or on a `stream`; with `verbose`,
    as lines that stay."""

    def __init__(
        self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic, *, verbose: bool = False
    ) -> None:
        self.display = PlainDisplay(stream or sys.stderr) if verbose else choose_display(stream)
        self.verbose = verbose
        self.unit = ("tokens", 1.0)  # what is counted per second, and how many tokens of the log one of them is
        self.now = now
        self.shown = -float("inf")
        self.last: tuple[str, float] | None = None  # what was shown last, and the share of the budget spent
        self.origin = 0.0, 0.0  # seconds and share before the first step
        self.first: tuple[float, float] | None = None  # seconds and share of the first event, which may be that of a resumed run

    def begin(self, record: Mapping[str, Any]) -> None:
        """Count from a `start` or `resume` event: what preparation took says nothing about the speed of training."""
        self.origin = record["seconds"], record["share"]

    def set_unit(self, name: str, tokens: float) -> None:
        """Count another unit per second, of so many `tokens` of the log each."""
        self.unit = (name, tokens)

    def show(self, record: Mapping[str, Any], baselines: Mapping[str, Baseline] | None = None) -> None:
        """Show a `train` event, at most ten times a second live and every 20 seconds otherwise; `verbose` shows each.

        Several objectives are shown by name; losses are shown with their `baselines`. The time left of a resumed run follows from
        its speed since then. A first event that ends almost none of the budget says nothing of it: it includes the start.
        """
        share, seconds = record["share"], record["seconds"]
        self.first = self.first or (seconds, share)
        if not self.verbose and self.now() - self.shown < (0.1 if self.display.live else _QUIET_SECONDS):
            return
        self.shown = self.now()
        starts = self.first[1] >= share
        since, before = self.origin if starts else self.first
        left = duration((seconds - since) / (share - before) * max(1 - share, 0.0)) if share > before + _EARLY * starts else None
        unit, tokens = self.unit
        line = (
            f"step {record['step']:,}  {min(share, 1):4.0%}  {losses(record, baselines or {})}  "
            f"{record['tokens_per_second'] / tokens:,.0f} {unit}/s"
        )
        self.last = line, share
        line += "" if left is None else f"  {left} left"
        if self.verbose:
            norm = record.get("grad_norm")
            line += f"  rate {record['learning_rate']:.3g}" + ("" if norm is None else f"  gradient {norm:.3g}")
        self.display.show(line, share)

    def close(self) -> None:
        """Show the last event without a time that is left."""
        if self.last is not None:
            self.display.end(*self.last)

    def show_dev(self, record: Mapping[str, Any], say: Say) -> None:
        """Show a `dev` event: a row of the display's table, or a line for `say`."""
        step, metrics = record["step"], {name: metric_text(value) for name, value in record["metrics"].items()}
        epoch = f"{record['epochs']:.2f}" if step else "frozen start"
        when = f"step {step:,}  epoch {epoch}" if step else "frozen start, network untouched"
        line = f"{when}  dev: {'  '.join(f'{name} {value}' for name, value in metrics.items())}"
        self.display.add_row({"epoch": epoch, **metrics}, line, say)


def losses(record: Mapping[str, Any], baselines: Mapping[str, Baseline]) -> str:
    """The losses of a `train` event in a few words, each with its baselines.

    >>> losses({"loss": 6.352, "objectives": {"lm": 6.352}}, {"lm": Baseline(8.99, 7.07, 5.31)})
    'loss 6.352 (single tokens 7.07, pairs 5.31)'
    """
    objectives: Mapping[str, float] = record.get("objectives") or {}
    if len(objectives) <= 1:
        return f"loss {shown_loss(record['loss'])}" + "".join(_worth(baselines.get(name)) for name in objectives)
    return ", ".join(f"{name} {shown_loss(loss)}{_worth(baselines.get(name))}" for name, loss in objectives.items())


def shown_loss(loss: float) -> str:
    """A loss with three decimals, and a small one with three digits.

    >>> shown_loss(6.352), shown_loss(0.0), shown_loss(0.000214)
    ('6.352', '0.000', '0.000214')
    """
    return f"{loss:.3f}" if loss >= 0.05 or loss <= 0 else f"{loss:.3g}"


def _worth(baseline: Baseline | None) -> str:
    if baseline is None:
        return ""
    if baseline.pairs is None:
        return f" (constant prediction {baseline.single:.2f})"
    return f" (single tokens {baseline.single:.2f}, pairs {baseline.pairs:.2f})"
