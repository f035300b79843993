"""What the finished cells of a question say: the score of every system on rows that it has not seen, and what is sure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cloze import rng
from cloze.comparison.best.answers import HELD, TEST, outputs_in
from cloze.comparison.best.cells import NGRAMS, VECTORS, Systems, VectorNetwork
from cloze.comparison.best.teaching import shares_of
from cloze.comparison.cell import Cell, failure_of
from cloze.tasks.linear.fit import FOLDS
from cloze.tasks.linear.linear_task import Outputs
from cloze.tasks.linear.shares import Shares
from cloze.tasks.mixture import pooled

CONSTANT = "constant answer"
_RESAMPLES = 1000
_LEVEL = 0.05


class ScoreInterval(NamedTuple):
    """A value, and where it lies in 95 % of bootstrap samples of the labelled rows."""

    value: float
    low: float
    high: float

    @property
    def apart(self) -> bool:
        """Whether zero is outside."""
        return self.low > 0 or self.high < 0


class SystemStanding(NamedTuple):
    """A system: its score on labelled rows that it has not seen, the difference from n-grams (None for
    n-grams), its score on test rows, and the seconds that it took."""

    name: str
    score: ScoreInterval
    above: ScoreInterval | None
    test: float | None
    seconds: float


class LearningCurve(NamedTuple):
    """Scores of n-grams and of the mixture by the number of labelled rows that they have learned from."""

    rows: Sequence[int]
    ngrams: Sequence[float]
    mixture: Sequence[float]


@dataclass(frozen=True)
class Verdict:
    """The answer to a question. `standings` are the systems, the best first; `kept` is the one that is written into a folder,
    with the `shares` of network and n-grams and its `start`; `ahead` is how far the best system is above it."""

    metric: str
    labelled: int
    tested: int
    texts: int
    standings: Sequence[SystemStanding]
    kept: str | None
    start: VectorNetwork | None
    shares: Shares | None
    ahead: ScoreInterval | None
    curve: LearningCurve | None
    failures: Mapping[str, str]
    unfinished: int

    def standing(self, name: str) -> SystemStanding | None:
        """A system by its name."""
        return next((standing for standing in self.standings if standing.name == name), None)


def frozen_name(name: str) -> str:
    """The name of a frozen network under a linear head; word vectors are always frozen."""
    return name if name == VECTORS else f"{name}, frozen"


def mixed_name(name: str) -> str:
    """The name of a system's mixture with n-grams."""
    return f"{name} + n-grams"


def tuned_name(name: str) -> str:
    """The name of a fine-tuned network."""
    return f"{name}, fine-tuned"


def verdict_of(systems: Systems) -> Verdict:
    """What the finished cells say."""
    rows = systems.rows
    held, test, seconds = _answers(systems)
    start, shares = systems.best_start(), None
    mixed: str | None = None
    if start is not None and (tuned := _tuned(systems, start)) is not None:
        name = tuned_name(start.name)
        held[name], test[name], spent = tuned
        seconds[name] = seconds[frozen_name(start.name)] + spent
        words = systems.words()
        assert words is not None  # the best start is known, so n-grams have answered
        outputs = outputs_in(words.folder(systems.out), rows)
        shares = shares_of(rows, rows.labelled, held[name], outputs[HELD])
        mixed = mixed_name(name)
        held[mixed] = pooled(rows.linear, held[name], outputs[HELD], *shares)
        test[mixed] = None if test[name] is None else pooled(rows.linear, test[name], outputs[TEST], *shares)
        seconds[mixed] = seconds[name]
    scores = _scores_of(systems, held)
    standings = _standings(systems, scores, test, seconds)
    ahead = None if mixed is None or not standings else _difference(systems, scores[standings[0].name], scores[mixed])
    failures = {
        cell.label: systems.failed.get(cell.key) or failure_of(cell.folder(systems.out)) or ""
        for cell in systems.cells() if systems.result(cell) is None and _failed(systems, cell)
    }  # fmt: skip
    texts = 0 if rows.texts is None else len(rows.texts)
    return Verdict(
        rows.metric, len(rows.labelled), 0 if rows.test is None else len(rows.test), texts, standings, mixed, start, shares,
        ahead, _curve(systems, start, standings), failures, len(systems.ready()),
    )


def _failed(systems: Systems, cell: Cell) -> bool:
    return cell.key in systems.failed or failure_of(cell.folder(systems.out)) is not None


def _answers(systems: Systems) -> tuple[dict[str, Outputs], dict[str, Outputs | None], dict[str, float]]:
    """The answers of systems to labelled and to test rows, and what they took."""
    held: dict[str, Outputs] = {}
    test: dict[str, Outputs | None] = {}
    seconds: dict[str, float] = {}
    trained = {start.name: start for start in systems.starts()}
    words, rows = systems.words(), systems.rows
    held[CONSTANT] = rows.linear.constant(rows.labelled, rows.labelled)
    test[CONSTANT] = None if rows.test is None else rows.linear.constant(rows.labelled, rows.test)
    seconds[CONSTANT] = 0.0
    for answering, cell in systems.answers().items():
        result, start = systems.result(cell), trained.get(answering)
        if result is None:
            continue
        outputs, name = outputs_in(cell.folder(systems.out), rows), answering if start is None else frozen_name(answering)
        held[name], test[name], seconds[name] = outputs[HELD], outputs.get(TEST), result["seconds"]
        if start is not None and start.cell is not None and (run := systems.result(start.cell)) is not None:
            seconds[name] += run["seconds"]
        if start is not None and name != VECTORS and words is not None:
            ngrams = outputs_in(words.folder(systems.out), rows)
            shares = shares_of(rows, rows.labelled, outputs[HELD], ngrams[HELD])
            both = mixed_name(name)
            held[both] = pooled(rows.linear, outputs[HELD], ngrams[HELD], *shares)
            test[both] = pooled(rows.linear, outputs[TEST], ngrams[TEST], *shares) if TEST in outputs else None
            seconds[both] = seconds[name]
    return held, test, seconds


def _tuned(systems: Systems, start: VectorNetwork) -> tuple[Outputs, Outputs | None, float] | None:
    """The answers of a start that was fine-tuned without each fold, to test rows those of all rows; None until all are done."""
    cells = systems.tuned(start)
    results = [systems.result(cell) for cell in cells]
    if any(result is None for result in results):
        return None
    rows = systems.rows
    outputs: list[Any] = [None] * len(rows.labelled)  # of each labelled row
    for fold, cell in enumerate(cells[:FOLDS]):
        parts = outputs_in(cell.folder(systems.out), rows, fold)[HELD]
        for number, part in zip(np.flatnonzero(rows.folds == fold), parts, strict=True):
            outputs[number] = part
    held = outputs if isinstance(parts, list) else np.stack(outputs)
    spent = sum(result["seconds"] for result in results if result is not None)
    return held, outputs_in(cells[-1].folder(systems.out), rows).get(TEST), spent


Score = tuple[float, Any]  # the metric on all labelled rows, and on bootstrap samples of them


def _scores_of(systems: Systems, held: Mapping[str, Outputs]) -> dict[str, Score]:
    """The scores of systems, on the same bootstrap samples."""
    rows = systems.rows
    draws = np.random.Generator(np.random.Philox(key=rng.fold(0, "bootstrap"))).integers(
        0, len(rows.labelled), (_RESAMPLES, len(rows.labelled))
    )
    return {name: _score(systems, outputs, draws) for name, outputs in held.items()}


def _difference(systems: Systems, first: Score, second: Score) -> ScoreInterval:
    """How much better the first is, paired by row."""
    sign = 1.0 if systems.rows.more else -1.0
    return _interval(sign * (first[0] - second[0]), sign * (first[1] - second[1]))


def _standings(
    systems: Systems, scores: Mapping[str, Score], test: Mapping[str, Outputs | None], seconds: Mapping[str, float]
) -> list[SystemStanding]:
    """The systems, the best first."""
    standings = []
    for name, (value, samples) in scores.items():
        above = _difference(systems, scores[name], scores[NGRAMS]) if name != NGRAMS and NGRAMS in scores else None
        outputs = test[name]
        on_test = None if outputs is None else _metric(systems, systems.rows.test, outputs)
        standings.append(SystemStanding(name, _interval(value, samples), above, on_test, seconds[name]))
    return sorted(standings, key=lambda standing: standing.score.value, reverse=systems.rows.more)


def _score(systems: Systems, outputs: Outputs, draws: Any) -> Score:
    """The metric on all labelled rows, and on bootstrap samples of them."""
    rows = systems.rows
    per_example = _array(rows.linear.per_example(rows.labelled, outputs))
    measure: Callable[[Any], float] = lambda items: rows.linear.compute_metrics(items)[rows.metric]  # noqa: E731
    return measure(per_example), np.array([measure(per_example[draw]) for draw in draws])


def _array(items: Any) -> Any:
    """Judged items as an array, of which some can be drawn."""
    if not isinstance(items, list):
        return np.asarray(items)
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _metric(systems: Systems, examples: Any, outputs: Outputs) -> float:
    linear = systems.rows.linear
    return float(linear.compute_metrics(linear.per_example(examples, outputs))[systems.rows.metric])


def _interval(value: float, samples: Any) -> ScoreInterval:
    finite = samples[np.isfinite(samples)]
    if not len(finite):
        return ScoreInterval(value, -math.inf, math.inf)
    low, high = np.quantile(finite, (_LEVEL / 2, 1 - _LEVEL / 2))
    return ScoreInterval(float(value), float(low), float(high))


def _curve(systems: Systems, start: VectorNetwork | None, standings: Sequence[SystemStanding]) -> LearningCurve | None:
    """Scores after a quarter and half of the labelled rows, and after the four fifths that cross-validation learns from."""
    result = None if start is None else systems.result(systems.curve(start))
    if result is None or start is None or not result["rows"]:
        return None
    full = {standing.name: standing.score.value for standing in standings}
    full_scores = [full.get(NGRAMS, math.nan), full.get(mixed_name(frozen_name(start.name)), math.nan)]
    points = [[*result["curve"][system].values(), last] for system, last in zip(("n-grams", "mixture"), full_scores, strict=True)]
    counts = [*result["rows"].values(), round(0.8 * len(systems.rows.labelled))]
    return LearningCurve(counts, points[0], points[1])


def sentences(verdict: Verdict) -> list[str]:
    """Sentences on what is kept, whether it beats n-grams by more than chance, and what more labels would bring."""
    standing = None if verdict.kept is None else verdict.standing(verdict.kept)
    if standing is None:
        return ["Not finished: no model was fine-tuned yet."]
    name = verdict.metric.replace("_", " ")
    lines = [
        f"Kept: {standing.name}. Its {name} is {_shown(standing.score.value)} on labelled rows that it had not seen "
        f"(95 %: {_shown(standing.score.low)} to {_shown(standing.score.high)}; {verdict.labelled:,} rows)."
    ]
    ngrams = verdict.standing(NGRAMS)
    if standing.test is not None and ngrams is not None and ngrams.test is not None:
        lines.append(
            f"On the {verdict.tested:,} test rows it has {_shown(standing.test)}, and n-grams have {_shown(ngrams.test)}."
        )
    if standing.above is not None:
        gap = f"{_points(standing.above.value)} (95 %: {_points(standing.above.low)} to {_points(standing.above.high)})"
        if not standing.above.apart:
            lines.append(
                f"Its difference from n-grams is {gap}: these rows do not tell them apart. A linear model on n-grams may be as "
                "good, and needs no network."
            )
        else:
            lines.append(
                f"It is {gap} {'above' if standing.above.value > 0 else 'below'} n-grams.".replace("+", "").replace("−", "")
            )
    best = verdict.standings[0]
    if verdict.ahead is not None and verdict.ahead.value > 0:
        chance = "is larger than chance explains" if verdict.ahead.apart else "may be chance"
        lines.append(f"{best.name} has the highest score, {_shown(best.score.value)}; the difference {chance}.")
    if verdict.curve is not None:
        lines.append(_on_more_labels(verdict.curve, verdict.start))
    return lines


def _on_more_labels(curve: LearningCurve, start: VectorNetwork | None) -> str:
    name = "The mixture" if start is None else mixed_name(frozen_name(start.name))
    gain = curve.mixture[-1] - curve.mixture[0]
    steps = ", ".join(f"{_shown(score)} from {rows:,}" for rows, score in zip(curve.rows, curve.mixture, strict=True))
    times = curve.rows[-1] / max(curve.rows[0], 1)
    return f"Learning curve of {name}: {steps} rows. {times:.1f} times as many labelled rows brought {_points(gain)}."


def _shown(score: float) -> str:
    return f"{100 * score:.1f} %" if abs(score) <= 1 else f"{score:.4g}"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points".replace("-", "−")


def table(verdict: Verdict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table of systems."""
    columns = ["system", f"{verdict.metric.replace('_', ' ')}, rows left out", "95 %", "above n-grams"]
    columns += [f"{verdict.tested:,} test rows"] if verdict.tested else []
    rows = []
    for standing in verdict.standings:
        score, above = standing.score, standing.above
        gap = "" if above is None else _points(above.value).removesuffix(" points") + (" *" if above.apart else "")
        row = [standing.name, _shown(score.value), f"{_shown(score.low)} to {_shown(score.high)}", gap]
        row += [] if not verdict.tested else ["" if standing.test is None else _shown(standing.test)]
        rows.append([*row, f"{standing.seconds:.0f} s"])
    return [*columns, "time"], rows


def as_text(verdict: Verdict) -> str:
    """The table and the sentences for a terminal."""
    columns, rows = table(verdict)
    widths = [max(len(row[number]) for row in [columns, *rows]) for number in range(len(columns))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in [columns, *rows]
    ]
    return "\n".join([*lines, "", *remarks(verdict)])


def remarks(verdict: Verdict) -> list[str]:
    """The lines below the table: what an asterisk in it means, and the sentences."""
    apart = any(standing.above is not None and standing.above.apart for standing in verdict.standings)
    note = "* the 95 % bootstrap interval of the difference from n-grams excludes zero"
    return [*([note, ""] if apart else []), *sentences(verdict)]


def as_data(verdict: Verdict) -> dict[str, Any]:
    """Plain values, for `--json`."""
    return {
        "metric": verdict.metric, "labelled": verdict.labelled, "tested": verdict.tested, "texts": verdict.texts,
        "systems": [
            {
                "name": standing.name, "score": standing.score.value, "low": standing.score.low, "high": standing.score.high,
                "above_ngrams": None if standing.above is None else {**standing.above._asdict(), "apart": standing.above.apart},
                "test": standing.test, "seconds": standing.seconds,
            }
            for standing in verdict.standings
        ],
        "kept": verdict.kept, "shares": None if verdict.shares is None else verdict.shares._asdict(),
        "curve": None if verdict.curve is None else verdict.curve._asdict(), "sentences": sentences(verdict),
        "failed": dict(verdict.failures), "unfinished": verdict.unfinished,
    }  # fmt: skip
