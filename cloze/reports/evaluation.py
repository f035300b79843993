"""The page of `cloze evaluate`: figures by class, confusions and calibration on one file or several, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cloze.atomic import require_parent, whole_file
from cloze.errors import UserError
from cloze.html_parts import metric_text
from cloze.reports.figures import PlotLine, chart
from cloze.reports.page import fill_page
from cloze.reports.sections import Figure
from cloze.tasks.evaluation_text import ranking_lines, simple_answers
from cloze.tasks.measures.class_report import BinaryRanking, Calibration, Confusion
from cloze.tasks.task import Evaluation

CLASSES = 40  # in the confusion matrix; of more, the page has the most frequent confusions alone
CONFUSIONS = 10
KICKER = "cloze evaluate"  # by which a page is known as one of these


@dataclass(frozen=True)
class Sheet:
    """A table of the page: a cell is its text and how dark it is, from 0 to 1."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[tuple[str, float]]]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """What the page shows of one file."""

    title: str
    cards: Sequence[tuple[str, str, str]]
    sheets: Sequence[Sheet]
    figures: Sequence[Figure]
    notes: Sequence[str]


def render(measured: Mapping[str, Evaluation], *, title: str, command: str = "", timestamp: datetime | None = None) -> str:
    """The page of evaluations by name, as HTML text that refers to nothing outside itself."""
    sections = [section(name, evaluation) for name, evaluation in measured.items()]
    return fill_page("evaluation.html", timestamp, title=title, command=command, kicker=KICKER, sections=sections)


def section(name: str, evaluation: Evaluation) -> Section:
    """The cards, tables and figures of one evaluation."""
    simple = simple_answers(evaluation.baseline, evaluation.ngrams, evaluation.linear)
    cards = [("examples", f"{evaluation.examples:,}", "")] + [
        (
            metric, metric_text(value),
            ", ".join(f"{head}: {metric_text(metrics[metric])}" for head, metrics in simple.items() if metric in metrics),
        )
        for metric, value in evaluation.metrics.items()
    ]
    figures = [] if evaluation.calibration is None else [reliability(evaluation.calibration)]
    return Section(name, cards, list(_sheets(evaluation)), figures, [*_notes(evaluation), *evaluation.remarks])


def _sheets(evaluation: Evaluation) -> Iterator[Sheet]:
    if evaluation.by_class:
        yield rows_sheet("By class", [*evaluation.by_class, *evaluation.averages])
    if evaluation.tags:
        yield rows_sheet("By tag", evaluation.tags)
    if evaluation.confusion is not None:
        yield from confusion_sheets(evaluation.confusion)


def rows_sheet(title: str, rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Rows with the same keys; F1 is shaded."""
    cells = [
        [(metric_text(value) if isinstance(value, float) else _text(value), round(value, 3) if name == "f1" else 0.0)
         for name, value in row.items()]
        for row in rows
    ]  # fmt: skip
    return Sheet(title, list(rows[0]), cells)


def confusion_sheets(confusion: Confusion) -> Iterator[Sheet]:
    """The matrix, unless it has too many classes, and the most frequent confusions."""
    if len(confusion.labels) <= CLASSES:
        rows = [
            [(label, 0.0), *((f"{count:,}" if count else "·", round(count / max(sum(counts), 1), 3)) for count in counts)]
            for label, counts in zip(confusion.labels, confusion.counts.tolist(), strict=True)
        ]
        note = "A row holds the examples of a class, a column what they were given. Cells are as dark as their share of the row."
        yield Sheet("Confusion matrix", ["right \\ given", *confusion.labels], rows, note)
    support = dict(zip(confusion.labels, confusion.counts.sum(1).tolist(), strict=True))
    mistakes = confusion.most_frequent(CONFUSIONS)
    if mistakes:
        yield Sheet(
            "Most frequent confusions", ["right", "given", "examples", "of its class"],
            [[(true, 0.0), (predicted, 0.0), (f"{count:,}", 0.0),
              (f"{count / support[true]:.1%}", round(count / support[true], 3))]
             for true, predicted, count in mistakes],
        )  # fmt: skip


def reliability(calibration: Calibration) -> Figure:
    """Accuracy over confidence: on the dashed line, probabilities say how often an answer is right."""
    points = [(interval["confidence"], interval["accuracy"]) for interval in calibration.bins]
    lines = [
        PlotLine("as confident as right", [(0.0, 0.0), (1.0, 1.0)], 1, dashed=True),
        PlotLine("accuracy", points, 0, marks=True)
    ]
    return Figure("Reliability: accuracy by confidence", chart(lines, title="Reliability", x="confidence", zero=True))


def _notes(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.calibration is not None:
        error, brier = evaluation.calibration.expected_error, evaluation.calibration.brier
        yield f"Expected calibration error {error:.4f}, Brier score {brier:.4f}."
    if isinstance(evaluation.ranking, BinaryRanking):
        yield from (f"{line[0].upper()}{line[1:]}." for line in ranking_lines(evaluation.ranking))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def check_page(page: Path) -> None:
    """A `UserError` if the page cannot be written; an existing file is only replaced if it is such a page."""
    require_parent(page)
    if page.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--page {page}: expected a name that ends in .html.")
    if page.exists() and not (page.is_file() and KICKER.encode() in page.read_bytes()):
        raise UserError(f"--page {page}: already exists, and cloze evaluate did not write it. Choose another name.")


def write_page(measured: Mapping[str, Evaluation], page: Path, *, title: str, command: str = "") -> None:
    """Write the page, whole or not at all."""
    check_page(page)
    text = render(measured, title=title, command=command)
    with whole_file(page) as fresh:
        fresh.write_text(text, encoding="utf-8")
