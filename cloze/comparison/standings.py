"""What a sweep has found, as plain values: the trials in their order, what they cost, failures, and a sentence."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cloze.comparison.answer import Failure
from cloze.comparison.cell import LOG, failure_of
from cloze.comparison.costs import Cost
from cloze.comparison.sentence import spoken
from cloze.comparison.statistics import LEVEL, Difference, difference, summary
from cloze.comparison.sweep import Rungs, Sweep, Trial, changed_tasks
from cloze.errors import counted
from cloze.html_parts import metric_text
from cloze.reports.figures import duration, plain


@dataclass(frozen=True)
class Standing:
    """How far a trial came: its held-out loss at each rung that it reached, and at the end that of each seed; what all its runs
    cost; the curve of the first seed, rows of (tokens, flops, seconds, loss); the folder of its run. `scores` are those on the
    dev sets of the tasks, one per seed, and `worth` their mean over tasks for each seed that has all, more being better."""

    trial: Trial
    losses: Sequence[float]
    seeds: Sequence[float]
    cost: Cost | None
    curve: Sequence[Sequence[float]]
    folder: Path | None
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    worth: Sequence[float] = ()

    @property
    def loss(self) -> float | None:
        """The loss at the last rung, at the end the mean over seeds."""
        if self.seeds:
            return float(np.mean(self.seeds))
        return self.losses[-1] if self.losses else None


@dataclass(frozen=True)
class SweepFinding:
    """The finding of a sweep: its trials, those that came furthest first, then by their loss. `full` is about what it would have
    cost to train every trial to the end with all seeds, in FLOPs."""

    sweep: Sweep
    standings: Sequence[Standing]
    failures: Sequence[Failure]
    unfinished: int
    full: float | None

    @property
    def best(self) -> Standing | None:
        """The best of the trials that reached the end and, where tasks decide, have been fine-tuned."""
        first = self.standings[0] if self.standings else None
        return first if first is not None and self._decided(first) else None

    def _decided(self, standing: Standing) -> Sequence[float]:
        """What the best trial is chosen by, one number per seed, more being better."""
        return standing.worth if self.sweep.design.tasks else [-loss for loss in standing.seeds]

    @property
    def flops(self) -> float:
        """What all trials cost."""
        return sum(standing.cost.flops for standing in self.standings if standing.cost is not None)

    def apart(self, other: Standing) -> Difference | None:
        """How much better the best trial is, by Welch's t test over seeds; None for trials that did not reach the end."""
        if self.best is None or not self._decided(other) or other is self.best:
            return None
        return difference(self._decided(self.best), self._decided(other))

    def data(self) -> dict[str, Any]:
        """Plain values: the figures of `--json`."""
        return {
            "answer": sentence(self), "budget": self.sweep.design.budgets[0].typed, "rungs": list(self.sweep.rungs),
            "seeds": self.sweep.design.seeds,
            "tasks": {name: metric.name for name, metric in self.sweep.design.metrics.items()},
            "flops": self.flops, "flops_of_all_to_the_end": self.full,
            "trials": [
                {"number": standing.trial.number, "values": dict(value.split("=", 1) for value in standing.trial.values),
                 "losses": list(standing.losses), "seeds": list(standing.seeds),
                 "dev": {name: list(scores) for name, scores in standing.scores.items()},
                 "cost": None if standing.cost is None else standing.cost._asdict(),
                 "run": None if standing.folder is None else str(standing.folder)}
                for standing in self.standings
            ],
            "failed": [failure._asdict() for failure in self.failures], "unfinished": self.unfinished, "notes": notes(self),
        }  # fmt: skip


def finding_of(rungs: Rungs) -> SweepFinding:
    """What the finished cells of a sweep say."""
    rungs.counts()
    by_task = bool(rungs.sweep.design.tasks)
    standings = sorted((_standing(rungs, trial) for trial in rungs.trials), key=lambda standing: _place(standing, by_task))
    return SweepFinding(rungs.sweep, standings, _failures(rungs), len(rungs.ready()), _full(rungs))


def _place(standing: Standing, by_task: bool) -> tuple[int, float, float, int]:
    worth = -float(np.mean(standing.worth)) if standing.worth else float("inf")
    loss = float("inf") if standing.loss is None else standing.loss
    return -len(standing.losses), worth if by_task else 0.0, loss, standing.trial.number


def _standing(rungs: Rungs, trial: Trial) -> Standing:
    """The first run by rungs, and the other seeds where it reached the end."""
    if rungs.grid.store_folder(trial.candidate) is None:
        return Standing(trial, [], [], None, [], None)
    losses: list[float] = []
    last = None
    for number in range(len(rungs.sweep.rungs)):
        result = rungs.result(cell := rungs.cell(trial, number))
        if result is None or result["held_out"] is None:
            break
        losses, last = [*losses, float(result["held_out"])], (cell, result)
    if last is None:
        return Standing(trial, [], [], None, [], None)
    cell, result = last
    results = [result]
    if len(losses) == len(rungs.sweep.rungs):
        results += [seed_result for other in rungs.seeds(trial)[1:] if (seed_result := rungs.result(other)) is not None]
    cost = Cost(*(float(sum(run[key] for run in results)) for key in Cost._fields))
    seeds = [float(run["held_out"]) for run in results] if len(losses) == len(rungs.sweep.rungs) else []
    scores, worth = _scores(rungs, trial) if seeds else ({}, [])
    return Standing(trial, losses, seeds, cost, result["curve"], cell.folder(rungs.out) / "run", scores, worth)


def _scores(rungs: Rungs, trial: Trial) -> tuple[dict[str, list[float]], list[float]]:
    """The scores of a trial by task, and for each seed that has all the mean over tasks, more being better."""
    design = rungs.sweep.design
    by_seed = {task.name: rungs.scores(trial, task) for task in design.tasks}
    sign = {name: 1.0 if design.metrics[name].more else -1.0 for name in by_seed}
    seeds = sorted(set.intersection(*(set(scores) for scores in by_seed.values()))) if by_seed else []
    worth = [float(np.mean([sign[name] * scores[seed] for name, scores in by_seed.items()])) for seed in seeds]
    return {name: list(scores.values()) for name, scores in by_seed.items()}, worth


def _full(rungs: Rungs) -> float | None:
    """What every trial would cost to the end with all seeds: what the first has cost, divided by the share that it has done."""
    costs = []
    for trial in rungs.trials if len(rungs.trials) == rungs.sweep.search.count else []:
        done = [
            result["flops"] / rung for number, rung in enumerate(rungs.sweep.rungs)
            if rungs.grid.store_folder(trial.candidate) is not None
            and (result := rungs.result(rungs.cell(trial, number))) is not None
        ]  # fmt: skip
        if not done:
            return None
        costs.append(done[-1])
    return rungs.sweep.design.seeds * sum(costs) or None


def _failures(rungs: Rungs) -> list[Failure]:
    failures = []
    for key, cell in {cell.key: cell for cell in rungs.cells()}.items():
        folder = cell.folder(rungs.out)
        reason = rungs.failed.get(key) or (failure_of(folder) if rungs.result(cell) is None else None)
        if reason is not None:
            again = shlex.join(["python", "-m", "cloze.comparison.work", str(folder), *cell.words])
            failures.append(Failure(cell.label, cell.stage, reason, str(folder / LOG), again))
    return failures


def sentence(finding: SweepFinding) -> str:
    """Which trial is best, of how many, at what cost."""
    best, sweep = finding.best, finding.sweep
    if best is None or best.loss is None:
        tuned = " and been fine-tuned" if sweep.design.tasks else ""
        return f"No answer yet: no trial has reached the end of its budget{tuned}."
    trials = counted(sweep.search.count, "trial")
    rungs = f" on {len(sweep.rungs)} rungs" if len(sweep.rungs) > 1 else ""
    cost = "" if finding.full is None or len(sweep.rungs) == 1 else (
        f", for {finding.flops / finding.full:.0%} of the FLOPs of training them all to the end"
    )  # fmt: skip
    task_scores = "".join(
        f"{name} {sweep.design.metrics[name].name} {metric_text(float(np.mean(scores)))} on its dev set, "
        for name, scores in best.scores.items()
    )
    return (
        f"{' '.join(best.trial.values)} is best of {trials}{rungs}: {task_scores}held-out loss {best.loss:.4f} after "
        f"{spoken(sweep.design.budgets[0].typed)}{cost}."
    )


def notes(finding: SweepFinding) -> list[str]:
    """What to know about the answer."""
    lines = []
    changed = changed_tasks(finding.sweep.space)
    if changed and not finding.sweep.design.tasks:
        lines.append(
            f"{', '.join(changed)} may change what is predicted: losses of different values are then losses of different "
            "exercises, and a --task tells which is better"
        )
    if changed and finding.sweep.design.tasks and len(finding.sweep.rungs) > 1:
        lines.append(
            f"{', '.join(changed)} may change what is predicted, and the rungs go by held-out losses: --rungs 1 lets the task "
            "alone decide"
        )
    if finding.sweep.design.seeds < 2 and len([standing for standing in finding.standings if standing.seeds]) > 1:
        lines.append("with one seed, the spread over seeds is unknown; --seeds 3 repeats the trials that reached the end")
    lines += [f"{counted(len(finding.failures), 'cell')} failed"] if finding.failures else []
    lines += [f"{counted(finding.unfinished, 'cell')} not finished"] if finding.unfinished else []
    return lines


def rows(finding: SweepFinding) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of the table: values, the loss at each rung, the spread over seeds, the cost of each trial."""
    sweep = finding.sweep
    several = sweep.design.seeds > 1
    columns = ["", *(axis.path for axis in sweep.space), *(f"at {rung:g}" for rung in sweep.rungs)]
    columns += [f"{name}: {metric.name}" for name, metric in sweep.design.metrics.items()]
    columns += ["against the best", *(["FLOPs", "time"])] if several else ["FLOPs", "time"]
    body = []
    for standing in finding.standings:
        losses = [f"{loss:.4f}" for loss in standing.losses]
        if len(standing.seeds) > 1:
            estimate = summary(standing.seeds)
            losses[-1] = f"{estimate.mean:.4f} ± {estimate.deviation:.4f}"
        row = [f"trial {standing.trial.number}", *(value.split("=", 1)[1] for value in standing.trial.values)]
        row += [*losses, *["–"] * (len(sweep.rungs) - len(losses))]
        row += [_told(standing.scores.get(name, ())) for name in sweep.design.metrics]
        if several:
            apart = finding.apart(standing)
            row.append(
                "best" if standing is finding.best else "" if apart is None
                else f"+{apart.value:.4f} (p {apart.p:.3f})" if apart.p <= LEVEL else "not significant"
            )
        body.append([
            *row, *(["–"] * 2 if standing.cost is None else [plain(standing.cost.flops), duration(standing.cost.seconds)])
        ])  # fmt: skip
    return columns, body


def _told(scores: Sequence[float]) -> str:
    """Scores over seeds, for a cell of a table."""
    if not scores:
        return "–"
    estimate = summary(scores)
    return metric_text(estimate.mean) + (f" ± {metric_text(estimate.deviation)}" if len(scores) > 1 else "")


def table(finding: SweepFinding) -> str:
    """The finding for a terminal."""
    columns, body = rows(finding)
    widths = [max(len(row[i]) for row in (columns, *body)) for i in range(len(columns))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in (columns, *body)
    ]
    return "\n".join([*lines, "", *remarks(finding)])


def remarks(finding: SweepFinding) -> list[str]:
    """The lines below the table: the sentence, notes, the run of the best trial, and failures."""
    lines = [sentence(finding), *(f"note: {note}" for note in notes(finding))]
    if finding.best is not None:
        lines.append(f"its run: {finding.best.folder}")
    for failure in finding.failures:
        reason = "\n  ".join(failure.reason.splitlines())
        lines += [f"  {failure.cell} ({failure.kind}): {reason}", f"    log: {failure.log}", f"    again: {failure.again}"]
    return lines


def as_records(finding: SweepFinding) -> list[dict[str, Any]]:
    """A row for every trial and rung that it reached, with its values, its loss and what it had cost in all."""
    records = []
    for standing in finding.standings:
        values = dict(value.split("=", 1) for value in standing.trial.values)
        cost = dict.fromkeys(Cost._fields) if standing.cost is None else standing.cost._asdict()
        scores = {name: float(np.mean(by_seed)) if by_seed else None for name, by_seed in standing.scores.items()}
        records += [
            {"trial": standing.trial.number, **values, "rung": rung, "held_out": loss, **cost, **(scores if rung == 1 else {})}
            for rung, loss in zip(finding.sweep.rungs, standing.losses, strict=False)
        ]
    return records


def as_csv(finding: SweepFinding) -> str:
    """`as_records` as CSV."""
    file = io.StringIO()
    names = ["trial", *(axis.path for axis in finding.sweep.space), "rung", "held_out", *Cost._fields]
    names += finding.sweep.design.metrics
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(as_records(finding))
    return file.getvalue()
