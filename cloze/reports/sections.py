"""The parts of a report as plain values: key figures, comparison, curves, filled masks, differences, environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cloze.reports.figures import Drawing, PlotLine, chart, duration, plain, smooth
from cloze.reports.run import Point, Record, RecordedRun, loss_together, number, points_of
from cloze.training.schedule.budget import in_words

SHARE = re.compile(r"(.*\S) (\d+)%")  # "paris 31%"
BLANK = re.compile(r"\[MASK\]|<mask>")
ENDING = 0.05  # "the end" of a run is the mean over the last twentieth of its records


class Figure(NamedTuple):
    """A chart and the sentence above it."""

    title: str
    svg: Drawing
    wide: bool = False


class SampleAnswer(NamedTuple):
    """One filling of a blank, and its probability `share`; a continuation has none."""

    text: str
    share: float | None


class FilledSample(NamedTuple):
    """One sample: the text before and after its blank, the answers, best first, and the best ones of earlier steps.

    A text without a blank is one that the network continued.
    """

    before: str
    after: str
    answers: list[SampleAnswer]
    earlier: list[tuple[int, str]]
    continued: bool = False


def ending(points: Sequence[Point]) -> float | None:
    """The mean of the last twentieth of a curve."""
    last = points[-max(1, round(ENDING * len(points))) :]
    return sum(y for _, y in last) / len(last) if last else None


def at(points: Sequence[Point], x: float) -> float | None:
    """The curve's value at x, by linear interpolation; None outside it."""
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        if x0 <= x <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[0][1] if points and points[0][0] == x else None


def show(value: float | None, form: Callable[[float], str] = plain) -> str:
    """A number for a table; a dash if there is none."""
    return "–" if value is None else form(value)


def percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def loss_text(value: float) -> str:
    return f"{value:.3f}"


def held_out_points(run: RecordedRun) -> list[Point]:
    """The held-out losses by step; of a mixture, those of its entries together."""
    by_step: dict[float, list[Record]] = {}
    for record in run.held_out:
        by_step.setdefault(number(record, "step") or 0.0, []).append(record)
    return [(step, loss) for step, records in by_step.items() if (loss := loss_together(records)) is not None]


def steady_speed(run: RecordedRun) -> float | None:
    """The median of the logged tokens per second: start-up and evaluation pauses do not move it."""
    values = sorted(y for _, y in run.series("step", "tokens_per_second"))
    return values[len(values) // 2] if values else None


def median(run: RecordedRun, key: str) -> float | None:
    """The median of a logged number."""
    values = sorted(y for _, y in run.series("step", key))
    return values[len(values) // 2] if values else None


def key_figures(run: RecordedRun) -> list[tuple[str, str, str]]:
    """The numbers a reader wants first: (name, value, remark)."""
    held_out = held_out_points(run)
    best = min((y for _, y in held_out), default=None)
    train = run.series("step", "loss")
    start = f"from {loss_text(train[0][1])} at step {train[0][0]:.0f}" if train else ""
    figures = [("training loss", show(ending(train), loss_text), start)]
    if held_out:
        figures.append(("held-out loss", show(held_out[-1][1], loss_text), f"best {show(best, loss_text)}"))
    figures += worth(run)
    for name in run.names("metrics", run.dev):
        last = run.dev[-1]
        figures.append((f"dev {name}", show(number(last, f"metrics.{name}"), loss_text), f"at step {last['step']}"))
    figures += [
        ("tokens seen", show(run.last("tokens")), f"{show(run.last('step'))} steps"),
        ("time", show(run.last("seconds"), duration), f"budget {in_words(run.budget)}" if run.budget else ""),
        ("speed", f"{show(steady_speed(run))}", "tokens per second, median"),
    ]
    if (mfu := median(run, "mfu")) is not None:
        figures.append(("utilisation", percent(mfu), "of the measured matrix rate"))
    return figures


def worth(run: RecordedRun) -> list[tuple[str, str, str]]:
    """The last held-out loss of every objective that has a baseline, and where it stands."""
    return [
        (name, loss_text(loss), baseline.describe(loss)) for name, (loss, baseline) in run.worth().items() if baseline is not None
    ]


def levels(runs: Sequence[RecordedRun], x: str) -> list[PlotLine]:
    """The baselines of a run that has one objective over tokens, as level lines; none where several runs are compared."""
    baselines = [baseline for run in runs for baseline in run.baselines.values() if baseline.pairs is not None]
    points = runs[0].series(x, "loss")
    if len(runs) != 1 or len(runs[0].objectives) != 1 or len(baselines) != 1 or not points:
        return []
    (baseline,) = baselines
    values_by_name = {"single tokens": baseline.single, "pairs": baseline.pairs}
    ends = points[0][0], points[-1][0]
    return [
        PlotLine(name, [(end, level) for end in ends], colour, dashed=True, labelled=True)
        for colour, (name, level) in enumerate(values_by_name.items(), 1) if level is not None
    ]


def comparison(runs: Sequence[RecordedRun]) -> tuple[list[str], list[list[str]]]:
    """One row per run, with losses at the tokens and at the seconds that every run reached."""
    tokens = min((run.last("tokens") or 0.0) for run in runs)
    seconds = min((run.last("seconds") or 0.0) for run in runs)
    columns = [
        "run", "recipe", "steps", "tokens", "time", "tokens/s", "training loss", "held-out loss",
        f"at {plain(tokens)} tokens", f"at {duration(seconds)}",
    ]  # fmt: skip
    rows = []
    for run in runs:
        held_out = held_out_points(run)
        rows.append(
            [
                run.name,
                str(run.recipe.get("name", "–")),
                show(run.last("step")),
                show(run.last("tokens")),
                show(run.last("seconds"), duration),
                show(steady_speed(run)),
                show(ending(run.series("step", "loss")), loss_text),
                show(held_out[-1][1] if held_out else None, loss_text),
                show(at(smooth(run.series("tokens", "loss")), tokens), loss_text),
                show(at(smooth(run.series("seconds", "loss")), seconds), loss_text),
            ]
        )
    return columns, rows


def curves(runs: Sequence[RecordedRun], x: str, y: str, *, traces: bool = True) -> list[PlotLine]:
    """Smoothed training curves over their faint raw traces, one colour per run."""
    lines = []
    for colour, run in enumerate(runs):
        points = run.series(x, y)
        if traces and len(runs) == 1:
            lines.append(PlotLine(f"{run.name}, each record", points, colour, faint=True))
        lines.append(PlotLine(run.name, smooth(points) if traces else points, colour))
    return lines


def held_out_curves(runs: Sequence[RecordedRun], x: str) -> list[PlotLine]:
    """Held-out losses, every measurement marked; one curve per mixture entry."""
    lines = []
    for colour, run in enumerate(runs):
        entries = run.held_out_series(x)
        for entry, points in entries.items():
            what = f"{run.name}, held out" + (f" ({entry})" if len(entries) > 1 else "")
            lines.append(PlotLine(what, points, colour, marks=True, dashed=True))
    return lines


def loss_figures(runs: Sequence[RecordedRun]) -> list[Figure]:
    """Loss against tokens and against time, training and held-out together."""
    figures = []
    for x, label, form in (("tokens", "tokens seen", "plain"), ("seconds", "time", "duration")):
        lines = curves(runs, x, "loss") + held_out_curves(runs, x) + levels(runs, x)
        title = f"Loss against {'tokens' if x == 'tokens' else 'time'}"
        if any(line.points for line in lines):
            figures.append(Figure(title, chart(lines, title=title, x=label, x_format=form, y="loss in nats")))
    return figures


def detail_figures(runs: Sequence[RecordedRun]) -> list[Figure]:
    """One small chart per objective where there are several, then speed, learning rate, gradient norm, utilisation."""
    figures = []
    objectives = list(dict.fromkeys(name for run in runs for name in run.objectives))
    if len(objectives) > 1:
        for name in objectives:
            lines = curves(runs, "tokens", f"objectives.{name}")
            figures.append(_small(f"Loss of {name}", lines, "tokens seen", "plain"))
    for name in dict.fromkeys(name for run in runs for name in run.names("metrics")):
        title = name.replace(".", ", ")  # token_prediction.correct
        figures.append(_small(title, curves(runs, "tokens", f"metrics.{name}"), "tokens seen", "plain"))
    figures += dev_figures(runs)
    figures.append(
        _small("Tokens per second", curves(runs, "seconds", "tokens_per_second"), "time", "duration", zero=True)
    )
    rates = curves(runs, "tokens", "learning_rate", traces=False)
    figures.append(_small("Learning rate", rates, "tokens seen", "plain", zero=True))
    figures.append(_small("Gradient norm", curves(runs, "tokens", "grad_norm"), "tokens seen", "plain", zero=True))
    if any(run.series("seconds", "mfu") for run in runs):
        figures.append(
            _small("Share of the matrix rate", curves(runs, "seconds", "mfu"), "time", "duration", zero=True)
        )
    return [figure for figure in figures if "<polyline" in figure.svg]


def dev_figures(runs: Sequence[RecordedRun]) -> list[Figure]:
    """One small chart per metric on the dev examples. A single run has those of simple answers as level lines."""
    figures = []
    for name in dict.fromkeys(name for run in runs for name in run.names("metrics", run.dev)):
        lines = [
            PlotLine(run.name, points_of(run.dev, "tokens", f"metrics.{name}"), colour, marks=True)
            for colour, run in enumerate(runs)
        ]
        ends = [x for line in lines for x, _ in line.points]
        for colour, (answer, metrics) in enumerate(runs[0].simple_answers.items() if len(runs) == 1 and ends else (), 1):
            level = number(dict(metrics), name)
            if level is not None:
                points = [(min(ends), level), (max(ends), level)]
                lines.append(PlotLine(answer, points, colour, dashed=True, labelled=True))
        figures.append(_small(f"{name} on the dev examples", lines, "tokens seen", "plain"))
    return figures


def _small(title: str, lines: list[PlotLine], x: str, form: str, *, zero: bool = False) -> Figure:
    return Figure(title, chart(lines, title=title, x=x, x_format=form, zero=zero, width=360, height=220))


# --- filled masks -----------------------------------------------------------------------------------------------------


def filled_masks(run: RecordedRun, most: int = 12) -> list[FilledSample]:
    """The last recorded filling of every sample text, with the first answers of up to three earlier steps."""
    history: dict[str, list[tuple[int, list[SampleAnswer]]]] = {}
    for record in run.samples:
        for sample in record.get("samples") or ():
            text = str(sample.get("text", ""))
            answers = answers_of(text, [answer for answer in sample.get("answers") or () if isinstance(answer, str)])
            history.setdefault(text, []).append((int(number(record, "step") or 0), answers))
    filled = []
    for text, states in list(history.items())[:most]:
        past = [(step, answers[0].text if answers else "") for step, answers in states[:-1]]
        keep = sorted({0, len(past) // 3, 2 * len(past) // 3} & set(range(len(past))))
        continued = BLANK.search(text) is None
        before, after = (text + " ", "") if continued else BLANK.split(text, maxsplit=1)
        filled.append(FilledSample(before, after, states[-1][1], [past[i] for i in keep], continued))
    return filled


def answers_of(text: str, answers: Sequence[str]) -> list[SampleAnswer]:
    """The answers of a sample as the log has them: candidates such as "paris 31%" for its blank, or its continuation."""
    if BLANK.search(text) is None:
        return [SampleAnswer(answer.removeprefix(text).strip(), None) for answer in answers]
    candidates = filter(None, map(SHARE.fullmatch, answers))
    return [SampleAnswer(candidate[1], float(candidate[2]) / 100) for candidate in candidates]


# --- recipe and environment -------------------------------------------------------------------------------------------


def flatten(tree: Any, path: str = "") -> dict[str, str]:
    """A tree as dotted paths and texts; a list item is addressed by its part's name, else by its index."""
    if isinstance(tree, dict) and tree:
        return {
            k: v
            for key, value in tree.items()
            for k, v in flatten(value, f"{path}.{key}" if path else str(key)).items()
        }
    if isinstance(tree, list) and any(isinstance(item, (dict, list)) for item in tree):
        names = [next(iter(item)) if isinstance(item, dict) and len(item) == 1 else None for item in tree]
        flat: dict[str, str] = {}
        for index, (name, item) in enumerate(zip(names, tree, strict=True)):
            unique = name is not None and names.count(name) == 1
            inner = item[name] if unique else item
            flat.update(flatten(inner, f"{path}.{name if unique else index}"))
        return flat
    if tree is None:
        return {path: "–"}
    return {path: str(tree).lower() if isinstance(tree, bool) else str(tree)}


def differences(trees: Sequence[Record], ignore: frozenset[str] = frozenset()) -> list[list[str]]:
    """The paths whose values are not the same in all trees: [path, value in the first, …]."""
    flats = [flatten(tree) for tree in trees]
    paths = list(dict.fromkeys(path for flat in flats for path in flat if path.split(".")[0] not in ignore))
    rows = [[path, *(flat.get(path, "–") for flat in flats)] for path in paths]
    return [row for row in rows if len(set(row[1:])) > 1]


def recipe_differences(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """What the recipes of several runs do differently; names and papers aside."""
    return differences([run.recipe for run in runs], frozenset({"name", "paper", "notes"}))


def environment_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Every environment entry, one column per run; values that all runs share are written once."""
    flats = [flatten(run.environment) for run in runs]
    paths = dict.fromkeys(path for flat in flats for path in flat)
    rows = []
    for path in paths:
        values = [flat.get(path, "–") for flat in flats]
        rows.append([path.replace("_", " "), *(values[:1] if len(set(values)) == 1 else values)])
    return rows
