"""The answer as one HTML page: the sentence and a figure first, then tables, costs, and how it was measured."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cloze.atomic import whole_file
from cloze.comparison import figures, sentence
from cloze.comparison.answer import OVERALL, ComparisonResult
from cloze.reports.figures import duration, plain
from cloze.reports.page import fill_page
from cloze.reports.sections import Figure


def render(answer: ComparisonResult, *, command: str = "", timestamp: datetime | None = None) -> str:
    """The page, as HTML text that refers to nothing outside itself."""
    columns, rows = sentence.rows(answer)
    return fill_page(
        "compare.html",
        timestamp,
        answer=answer,
        sentence=sentence.sentence(answer),
        measure=sentence.measure(answer) if answer.ranked else "",
        caveats=sentence.caveats(answer),
        power=sentence.power(answer),
        figure=first_figure(answer),
        columns=columns,
        rows=rows,
        by_task=task_figures(answer),
        matrix=matrix(answer),
        costs=figures.cost_figures(answer),
        reach=reach_rows(answer),
        losses=figures.loss_figures(answer),
        command=command,
    )


def write_page(answer: ComparisonResult, out: Path, *, command: str = "") -> Path:
    """Write the page into the folder of the comparison."""
    target = out / "compare.html"
    with whole_file(target) as fresh:
        fresh.write_text(render(answer, command=command), encoding="utf-8")
    return target


def figures_of(answer: ComparisonResult) -> list[Figure]:
    """The figures of the page, in its order."""
    first = first_figure(answer)
    return [
        *([] if first is None else [first]), *task_figures(answer), *figures.cost_figures(answer), *figures.loss_figures(answer)
    ]  # fmt: skip


def first_figure(answer: ComparisonResult) -> Figure | None:
    """The mean over tasks of every system."""
    spreads = [
        figures.SeedScores(system.name, scores, number)
        for number, system in enumerate(answer.systems) if (scores := system.overall(answer.ranked))
    ]  # fmt: skip
    if not spreads:
        return None
    title = sentence.measure(answer).strip("()")
    constant = [answer.baselines[name] for name in answer.ranked if name in answer.baselines]
    mean = sum(constant) / len(constant) if constant and len(constant) == len(answer.ranked) else None
    return Figure(title, figures.spreads(spreads, title=title, constant=mean))


def task_figures(answer: ComparisonResult) -> list[Figure]:
    """Each task alone, where there are several."""
    task_charts = []
    for task in answer.ranked if len(answer.design.tasks) > 1 else []:
        spreads = [
            figures.SeedScores(system.name, system.scores[task].runs, number)
            for number, system in enumerate(answer.systems) if task in system.scores
        ]  # fmt: skip
        if spreads:
            metric = answer.design.metrics[task].name.replace("_", " ")
            title = f"{task}: {metric}, {answer.examples.get(task, 0):,} test examples"
            task_charts.append(Figure(title, figures.spreads(
                spreads, title=title, constant=answer.baselines.get(task), most=1.0 if answer.design.metrics[task].more else None
            )))
    return task_charts


def matrix(answer: ComparisonResult) -> list[list[str]]:
    """Of every pair the difference in points, where it is significant."""
    names = [system.name for system in answer.systems if system.overall(answer.ranked)]
    rows = []
    for first in names:
        row = [first]
        for second in names:
            pair = answer.pair(first, second, OVERALL) if first != second else None
            row.append("" if pair is None else f"{100 * pair.difference.value:+.1f}" if pair.apart else "not significant")
        rows.append(row)
    return rows if len(names) > 1 else []


def reach_rows(answer: ComparisonResult) -> list[list[str]]:
    """What each system spends until it has the quality that all reach."""
    if answer.reach is None:
        return []
    rows = []
    for name in answer.reach.points:
        cost = answer.reach.cost(name)
        rows.append(
            [name, "not reached", "", ""] if cost is None
            else [name, plain(cost.tokens), plain(cost.flops), duration(cost.seconds)]
        )  # fmt: skip
    return rows
