"""The figures of a comparison as inline SVG: scores with their spread, and scores against costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import escape

from cloze.comparison.answer import ComparisonResult
from cloze.comparison.costs import Cost
from cloze.comparison.sentence import points
from cloze.comparison.statistics import LEVEL, quantile, summary
from cloze.reports.figures import COLOURS, Drawing, PlotLine, Scale, chart, ticks
from cloze.reports.sections import Figure

_ROW, _AXIS, _WIDTH = 42, 34, 720  # pixels


class SeedScores(NamedTuple):
    """The scores of one system, by seed."""

    name: str
    values: Sequence[float]
    colour: int


def interval(values: Sequence[float], most: float | None = None) -> tuple[float, float]:
    """The 95 % interval of the mean over seeds, cut at what the score can be; the value itself where there is one.

    `most` is the highest score there is: 1 for accuracies, F1 and correlations, None for errors. Below 0 it is cut unless a score
    is negative.
    """
    estimate = summary(values)
    if estimate.number < 2:
        return estimate.mean, estimate.mean
    half = quantile(1 - LEVEL / 2, estimate.number - 1) * estimate.deviation / math.sqrt(estimate.number)
    low, high = estimate.mean - half, estimate.mean + half
    return max(low, min(0.0, *values)) if most is not None else low, high if most is None else min(high, most)


def spreads(systems: Sequence[SeedScores], *, title: str, constant: float | None = None, most: float | None = 1.0) -> Drawing:
    """A row per system: a dot per seed, a mark at the mean, a line over its 95 % interval; `constant` is the score of
    the constant answer, shown where it lies among them.

    Horizontal places are percentages, so that the letters keep their size on a narrow screen.
    """
    ends = [end for system in systems for end in (*interval(system.values, most), *system.values)]
    low, high = min(ends), max(ends)
    air = 0.04 * (high - low) or 0.05 * abs(high) or 0.05
    at = Scale(low - air, high + air, 1.0, 99.0)
    height = _ROW * len(systems) + _AXIS
    bottom = height - _AXIS
    parts = [f'<svg class="spreads" width="100%" height="{height}" role="img" aria-label="{escape(title)}">']
    for value in ticks(low, high, 4):
        x = f"{at(value):.2f}%"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{100 * value:g}</text>')
    if constant is not None and low <= constant <= high:  # far below the scores it would press them together
        x = f"{at(constant):.2f}%"
        parts.append(f'<line class="constant" x1="{x}" x2="{x}" y1="0" y2="{bottom}"/>')
        anchor = "start" if at(constant) < 50 else "end"
        parts.append(f'<text class="label" x="{x}" y="{bottom + 30}" text-anchor="{anchor}">constant answer</text>')
    parts += [_spread(system, at, _ROW * row, most) for row, system in enumerate(systems)]
    parts.append(f'<line class="axis" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/></svg>')
    return Drawing.of(parts, _WIDTH, height)


def _spread(scores: SeedScores, at: Scale, top: int, most: float | None) -> str:
    estimate, (start, stop), y = summary(scores.values), interval(scores.values, most), top + 28
    style = f'style="--c:var(--series-{scores.colour % COLOURS})"'
    middle = f"{at(estimate.mean):.2f}%"
    parts = [
        f'<text class="name" x="0" y="{top + 15}">{escape(scores.name)}</text>'
        f'<text class="value" x="100%" y="{top + 15}" text-anchor="end">{points(estimate.mean)}</text>'
        f'<line class="interval" {style} x1="{at(start):.2f}%" x2="{at(stop):.2f}%" y1="{y}" y2="{y}"/>'
        f'<line class="mean" {style} x1="{middle}" x2="{middle}" y1="{y - 7}" y2="{y + 7}"/>'
    ]
    for number, value in enumerate(scores.values, 1):
        tooltip = f"<title>seed {number}: {points(value)}</title>"
        parts.append(f'<circle class="mark" {style} cx="{at(value):.2f}%" cy="{y}" r="4">{tooltip}</circle>')
    return "".join(parts)


def cost_figures(answer: ComparisonResult) -> list[Figure]:
    """The mean score against tokens, FLOPs and seconds of pre-training, a curve per system over its budgets."""
    if answer.reach is None:
        return []
    names = {"tokens": "tokens", "flops": "FLOPs", "seconds": "time"}
    colours = {system.name: number for number, system in enumerate(answer.systems)}
    return [
        Figure(
            f"Score against {unit}",
            chart(
                [
                    PlotLine(name, [(point.cost[axis], 100 * point.score) for point in curve], colours.get(name, 0), marks=True)
                    for name, curve in answer.reach.points.items()
                ],
                title=f"Score against {unit}", x=f"{unit} of pre-training", x_format="duration" if unit == "time" else "plain",
            ),
        )
        for axis, unit in enumerate(names[key] for key in Cost._fields)
    ]  # fmt: skip


def loss_figures(answer: ComparisonResult) -> list[Figure]:
    """The held-out loss of each recipe against tokens. Each has its own figure, because losses of recipes are not comparable."""
    return [
        Figure(system.name, chart(
            [PlotLine(system.name, [(row[0], row[3]) for row in system.curve], number, marks=True)],
            title=f"Held-out loss of {system.name}", x="tokens",
        ))
        for number, system in enumerate(answer.systems) if len(system.curve) > 1
    ]  # fmt: skip
