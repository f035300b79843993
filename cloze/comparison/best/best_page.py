"""The verdict as one HTML page: what is kept and how sure that is, every system, and the learning curve."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from markupsafe import escape

from cloze.atomic import whole_file
from cloze.comparison.best.verdict import SystemStanding, Verdict, sentences, table
from cloze.reports.figures import COLOURS, Drawing, PlotLine, Scale, chart, ticks
from cloze.reports.page import fill_page
from cloze.reports.sections import Figure

_ROW, _AXIS, _WIDTH = 34, 26, 720  # pixels


def write_page(verdict: Verdict, out: Path, *, command: str = "", timestamp: datetime | None = None) -> Path:
    """Write the page into the folder of the question."""
    target = out / "best.html"
    first, *more_sentences = sentences(verdict)
    columns, rows = table(verdict)
    text = fill_page(
        "best.html", timestamp, sentence=first, others=more_sentences, verdict=verdict, columns=columns, rows=rows,
        figure=_systems(verdict), curve=_curve(verdict), command=command,
    )
    with whole_file(target) as fresh:
        fresh.write_text(text, encoding="utf-8")
    return target


def figures(verdict: Verdict) -> list[Figure]:
    """The figures of the page."""
    return [figure for figure in (_systems(verdict), _curve(verdict)) if figure is not None]


def _systems(verdict: Verdict) -> Figure | None:
    """A row per system: a mark at its score, a line over the 95 % interval."""
    if not verdict.standings:
        return None
    title = f"{verdict.metric.replace('_', ' ')} on labelled rows that the system had not seen"
    low = min(standing.score.low for standing in verdict.standings)
    high = max(standing.score.high for standing in verdict.standings)
    at = Scale(low, high if high > low else low + 1.0, 34.0, 98.0)
    bottom = _ROW * len(verdict.standings)
    parts = [f'<svg class="spreads" width="100%" height="{bottom + _AXIS}" role="img" aria-label="{escape(title)}">']
    for value in ticks(low, high, 4):
        x = f"{at(value):.2f}%"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{100 * value:g}</text>')
    parts += [
        _row(standing, at, _ROW * number, is_best=standing.name == verdict.kept)
        for number, standing in enumerate(verdict.standings)
    ]
    return Figure(title, Drawing.of([*parts, "</svg>"], _WIDTH, bottom + _AXIS))


def _row(standing: SystemStanding, at: Scale, top: int, *, is_best: bool) -> str:
    y, style = top + _ROW // 2, f'style="--c:var(--series-{0 if is_best else 3 % COLOURS})"'
    weight = ' font-weight="700"' if is_best else ""
    x, low, high = (f"{at(value):.2f}%" for value in standing.score)
    return (
        f'<text class="label" x="0" y="{y + 5}"{weight}>{escape(standing.name)}</text>'
        f'<line class="interval" {style} x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
        f'<circle class="mark" {style} cx="{x}" cy="{y}" r="6"><title>{100 * standing.score.value:.1f}</title></circle>'
    )


def _curve(verdict: Verdict) -> Figure | None:
    """Scores against the number of labelled rows."""
    curve = verdict.curve
    if curve is None:
        return None
    lines = [
        PlotLine(name, [(float(rows), 100 * score) for rows, score in zip(curve.rows, scores, strict=True)], number, marks=True)
        for number, (name, scores) in enumerate((("mixture", curve.mixture), ("n-grams", curve.ngrams)))
    ]
    title = "Score by the number of labelled rows"
    return Figure(title, chart(lines, title=title, x="labelled rows"))
