"""An `Evaluation` (`cloze.tasks.task`, which shows itself by this module) as lines of text, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloze import html_parts
from cloze.html_parts import cell_text, metric_text

if TYPE_CHECKING:
    from cloze.tasks.measures.class_report import BinaryRanking, Confusion

Row = Mapping[str, Any]
CLASSES = 30  # in a table; of more, those with the most examples
MATRIX = 8  # classes in a confusion matrix; of more, the most frequent confusions
CONFUSIONS = 5
NGRAMS, MIXTURE = "n-grams", "mixture"  # the heads of the columns of a linear model, and of network and linear model together
_ALWAYS = 40  # characters that are shown of a constant answer
LOWEST, CONFUSED = 5, 3  # classes and confusions in the short form


def evaluation_lines(title: str, evaluation: Any) -> Iterator[str]:
    """The metrics of a file, a line each, with its interval and the metrics of simple answers, if there are any; then the tables
    and the remarks."""
    yield f"{title}: {evaluation.examples} examples"
    values = {name: metric_text(value) for name, value in evaluation.metrics.items()}
    intervals = {name: f"[{', '.join(map(metric_text, ends))}]" for name, ends in evaluation.intervals.items()}
    name_width, value_width, interval_width = _width(values, 11), _width(values.values(), 6), _width(intervals.values(), 16)
    interval_title = "95 % interval".ljust(interval_width + 2) if intervals else ""
    simple = simple_answers(evaluation.baseline, evaluation.ngrams, evaluation.linear)
    yield f"  {'':<{name_width}}  {'':<{value_width}}  {interval_title}{'  '.join(simple)}".rstrip()
    for name, value in values.items():
        interval = intervals[name].ljust(interval_width + 2) if intervals else ""
        cells = (metric_text(figures[name]) if name in figures else "" for figures in simple.values())
        baselines = "  ".join(cell.ljust(len(column)) for column, cell in zip(simple, cells, strict=True))
        yield f"  {name:<{name_width}}  {value:<{value_width}}  {interval}{baselines}".rstrip()
    for lines in (_class_lines(evaluation), *_further_lines(evaluation)):
        yield from ["", *(f"  {line}".rstrip() for line in lines)] if lines else []
    for remark in evaluation.remarks:
        yield f"  note: {remark}"


def simple_answers(
    constant: Row | None, ngrams: Row | None, linear: str = NGRAMS, *, mixture: Row | None = None
) -> dict[str, Row]:
    """What the metrics of a network stand next to, by the head of its column: a constant answer, a `linear` model, and the
    `mixture` of network and linear model."""
    always = str((constant or {}).get("always", ""))
    answer = always if len(always) <= _ALWAYS else always[:_ALWAYS] + "…"
    columns = {f"always {answer!r}": constant, linear: ngrams, MIXTURE: mixture}
    return {head: metrics for head, metrics in columns.items() if metrics}


def _class_lines(evaluation: Any) -> list[str]:
    rows, left = most_supported(evaluation.by_class)
    return [*table([*rows, *evaluation.averages]), *([f"and {left} more: --json and --page have all"] if left else [])]


def _further_lines(evaluation: Any) -> Iterator[list[str]]:
    yield table([{"tag" if name == "label" else name: row[name] for name in row} for row in most_supported(evaluation.tags)[0]])
    if evaluation.confusion is not None:
        yield confusion_lines(evaluation.confusion)
    if (calibration := evaluation.calibration) is not None:
        yield [f"calibration: expected error {calibration.expected_error:.4f}, Brier score {calibration.brier:.4f}"]
    if evaluation.ranking is not None:
        yield ranking_lines(evaluation.ranking)


def ranking_lines(ranking: BinaryRanking, rows: str = "these") -> list[str]:
    """What is known of two classes; `rows` names those on which the threshold was chosen."""
    return [
        f"{ranking.positive!r} by its probability: ROC AUC {ranking.roc_auc:.4f}, "
        f"average precision {ranking.average_precision:.4f}",
        f"highest F1 of {ranking.positive!r} on {rows} rows: {ranking.f1:.4f} with --threshold {ranking.threshold!r}",
    ]


def short_lines(details: Mapping[str, Any]) -> Iterator[str]:
    """The figures by class of `Evaluation.details` in a few lines: the lowest F1, confusions, the threshold of two classes."""
    rows, confusion, ranking = details.get("report", ()), details.get("confusion", {}), details.get("ranking")
    lowest = sorted(rows, key=lambda row: row.get("f1", 1.0))[:LOWEST]
    if lowest and "f1" in lowest[0]:
        figures = ", ".join(f"{row['label']} {row['f1']:.4f} of {row['support']}" for row in lowest)
        yield f"{'F1 by class' if len(rows) <= LOWEST else 'lowest F1'}: {figures}"
    mistakes = [(count, true, guess) for true, row in confusion.items() for guess, count in row.items() if guess != true]
    if mistakes:
        most = sorted(mistakes, key=lambda mistake: -mistake[0])[:CONFUSED]
        yield "confused (right → given): " + ", ".join(f"{true} → {guess} {count}" for count, true, guess in most)
    if ranking:
        yield f"highest F1 of {ranking['positive']!r}: {ranking['f1']:.4f} with --threshold {ranking['threshold']!r} of predict"


def most_supported(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Rows of classes, where there are too many those with the most examples, in their order; and how many are left out."""
    if len(rows) <= CLASSES or "support" not in rows[0]:
        return list(rows), 0
    order = sorted(range(len(rows)), key=lambda number: -rows[number]["support"])[:CLASSES]
    return [rows[number] for number in sorted(order)], len(rows) - CLASSES


def confusion_lines(confusion: Confusion) -> list[str]:
    """The matrix of a few classes, the most frequent confusions of many."""
    if len(confusion.labels) <= MATRIX:
        rows = [
            {"right \\ given": label, **dict(zip(confusion.labels, counts, strict=True))}
            for label, counts in zip(confusion.labels, confusion.counts.tolist(), strict=True)
        ]
        return table(rows)
    mistakes = confusion.most_frequent(CONFUSIONS)
    return table([{"most frequent confusions": f"{true} → {guess}", "examples": count} for true, guess, count in mistakes])


def evaluation_html(evaluation: Any) -> str:
    """The tables of an evaluation, for notebooks."""
    simple = simple_answers(evaluation.baseline, evaluation.ngrams, evaluation.linear)
    intervals = {name: {"95 % interval": " to ".join(map(metric_text, ends))} for name, ends in evaluation.intervals.items()}
    metrics = [
        {"metric": name, "value": value, **intervals.get(name, {}), **{head: row.get(name, "") for head, row in simple.items()}}
        for name, value in evaluation.metrics.items()
    ]
    by_class = [*most_supported(evaluation.by_class)[0], *evaluation.averages]
    further = "\n\n".join("\n".join(lines) for lines in _further_lines(evaluation) if lines)
    return "".join([
        html_parts.table(metrics, caption=f"{evaluation.examples:,} examples"), html_parts.table(by_class),
        html_parts.preformatted(further), html_parts.paragraphs(f"note: {remark}" for remark in evaluation.remarks),
    ])  # fmt: skip


def table(rows: Sequence[Row]) -> list[str]:
    """Rows with the same keys as lines: names to the left, numbers to the right."""
    cells = [list(rows[0]), *([cell_text(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]


def _width(cells: Iterable[str], least: int) -> int:
    return max([least, *map(len, cells)])
