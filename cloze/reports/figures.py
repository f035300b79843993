"""Line charts as inline SVG: no library, no network; colours come from the page, so that light and dark both work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

Point = tuple[float, float]

COLOURS = 8  # the page defines --series-0 … --series-7


@dataclass(frozen=True)
class PlotLine:
    """One curve: `colour` indexes the page's palette; `faint` is a background trace, `marks` draws every point, `dots`
    nothing but points."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    faint: bool = False
    marks: bool = False
    dashed: bool = False
    dots: bool = False
    labelled: bool = False  # with its name at its end


class Drawing(Markup):
    """An SVG element.

    Attributes:
        width: Pixels; a drawing without a width of its own is designed for these.
        height: Pixels.
        legend: The curves that need a name next to the drawing.
    """

    width: int
    height: int
    legend: tuple[PlotLine, ...]

    @classmethod
    def of(cls, parts: Iterable[str], width: int, height: int, legend: Iterable[PlotLine] = ()) -> Drawing:
        """The drawing that consists of these parts."""
        drawing = cls("".join(parts))
        drawing.width, drawing.height, drawing.legend = width, height, tuple(legend)
        return drawing


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, stop]."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def plain(value: float) -> str:
    """A number in at most four digits: 12.3 k, 4.56 M, 0.015, 3.2e-05."""
    size = abs(value)
    if value == 0:
        return "0"
    for limit, unit in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= limit:
            scale = {" P": 1e15, " T": 1e12, " G": 1e9, " M": 1e6, " k": 1e3}[unit]
            return f"{value / scale:.3g}{unit}"
    if size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4g}" if size < 1000 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Seconds as text: 45 s, 2 m 05 s, 1 h 20 m, 3 d 4 h."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} m {seconds:02d} s" if seconds else f"{minutes} m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} m" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


FORMATS: dict[str, Callable[[float], str]] = {"plain": plain, "duration": duration, "power": lambda value: plain(10.0**value)}


def smooth(points: Sequence[Point], share: float = 0.03) -> list[Point]:
    """An exponential average over about `share` of the points, corrected at the start so that it begins at the data."""
    keep = 1.0 - 1.0 / max(1.0, share * len(points))
    result, total, weight = [], 0.0, 0.0
    for x, y in points:
        total, weight = keep * total + y, keep * weight + 1.0
        result.append((x, total / weight))
    return result


def thin(points: Sequence[Point], most: int = 400) -> list[Point]:
    """At most about `most` points, each the mean of a run of neighbours; the first and the last are kept."""
    if len(points) <= most:
        return list(points)
    edges = [round(i * len(points) / most) for i in range(most + 1)]
    groups = [points[a:b] for a, b in pairwise(edges) if b > a]
    means = [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
    return [points[0], *means[1:-1], points[-1]]


def ticks(low: float, high: float, about: int = 5, *, seconds: bool = False) -> list[float]:
    """Round numbers within [low, high], about as many as requested; on a time axis 15 s, 1 m, 5 m, … are round."""
    raw = (high - low) / max(about, 1)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    if seconds and raw > 7:
        steps = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
        step = float(next((s for s in steps if s >= raw * 0.8), 86400 * math.ceil(raw / 86400)))
    else:
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def bounds(lines: Sequence[PlotLine], axis: int, *, zero: bool) -> tuple[float, float]:
    """The range a chart must show, with a little air; faint traces may leave it: noise does not set the scale."""
    main = [p[axis] for line in lines if not line.faint for p in line.points]
    values = main or [p[axis] for line in lines for p in line.points] or [0.0, 1.0]
    low, high = min(values), max(values)
    if zero:
        low = min(0.0, low)
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # a constant, but for rounding
        return low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    air = 0.0 if axis == 0 else 0.05 * (high - low)
    return (low if zero and low == 0 else low - air), high + air


def chart(
    lines: Sequence[PlotLine],
    *,
    title: str,
    x: str,
    x_format: str = "plain",
    zero: bool = False,
    x_zero: bool = True,
    y: str = "",
    width: int = 520,
    height: int = 300,
) -> Drawing:
    """An SVG line chart. `x` names the horizontal axis, which begins at zero unless `x_zero` is off; with the format `power` its
    values are common logarithms. `y` names the vertical axis, which `zero` makes begin at zero. Layers begin with the
    `input`."""
    lines = [line for line in lines if line.points]
    left, right, top, bottom = 52, 14, 12, 40
    across = Scale(*bounds(lines, 0, zero=x_zero), left, width - right)
    up = Scale(*bounds(lines, 1, zero=zero), height - bottom, top)
    form: Callable[[float], str] = FORMATS[x_format] if x != "layer" else lambda value: plain(value) if value else "input"
    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        f'data-x="{across.low:.9g},{across.high:.9g},{across.start},{across.stop}" '
        f'data-y="{up.low:.9g},{up.high:.9g},{up.start},{up.stop}" data-format="{x_format}">'
    ]
    for value in ticks(up.low, up.high):
        level = up(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{level + 3.5:.1f}" text-anchor="end">{plain(value)}</text>')
    for value in ticks(across.low, across.high, 4, seconds=x_format == "duration"):
        at = across(value)
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{height - bottom + 17}" text-anchor="middle">{form(value)}</text>'
        )
    parts.append(f'<line class="axis" x1="{left}" x2="{width - right}" y1="{height - bottom}" y2="{height - bottom}"/>')
    middle = (left + width - right) / 2
    parts.append(f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x)}</text>')
    if y:
        parts.append(f'<text class="label" x="{left + 6}" y="{top + 6}">{escape(y)}</text>')
    parts += [_curve(line, across, up) for line in lines]
    parts.append(f'<line class="cursor" y1="{top}" y2="{height - bottom}" visibility="hidden"/></svg>')
    return Drawing.of(parts, width, height, (line for line in lines if not line.faint and not line.labelled))


def heat_map(
    columns: Sequence[float], rows: Sequence[float], values: Sequence[Sequence[float]], points: Mapping[str, Point], *,
    title: str, x: str, y: str, width: int = 520, height: int = 380,
) -> Drawing:
    """A map of squares at equally distant `columns` and `rows`, the darker the higher the rank of their value; what is not finite
    is darkest. A square shows its value when it is pointed at. `points` are marked with their names."""
    left, right, top, bottom = 52, 14, 12, 40
    ranks = {value: rank for rank, value in enumerate(sorted({value for row in values for value in row if math.isfinite(value)}))}
    axes = []
    for places, start, stop in ((columns, left, width - right), (rows, height - bottom, top)):
        half = (places[-1] - places[0]) / max(2 * (len(places) - 1), 1)
        axes.append(Scale(places[0] - half, places[-1] + half, start, stop))
    across, up = axes
    wide, high = (width - right - left) / len(columns), (height - bottom - top) / len(rows)
    parts = [f'<svg class="map" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for row, row_values in zip(rows, values, strict=True):
        for column, value in zip(columns, row_values, strict=True):
            dark = 0.04 + 0.86 * ranks.get(value, len(ranks)) / max(len(ranks) - 1, 1)
            parts.append(
                f'<rect x="{across(column) - wide / 2:.1f}" y="{up(row) - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'style="fill:var(--series-0);fill-opacity:{min(dark, 1.0):.2f}"><title>{plain(value)}</title></rect>'
            )
    for value in ticks(columns[0], columns[-1], 4):
        label = f'x="{across(value):.1f}" y="{height - bottom + 17}" text-anchor="middle"'
        parts.append(f'<text class="tick" {label}>{plain(value)}</text>')
    for value in ticks(rows[0], rows[-1]):
        parts.append(f'<text class="tick" x="{left - 8}" y="{up(value) + 3.5:.1f}" text-anchor="end">{plain(value)}</text>')
    for name, (a, b) in points.items():
        style = 'style="--c:var(--series-1)"'
        parts.append(f'<circle class="mark" {style} cx="{across(a):.1f}" cy="{up(b):.1f}" r="4"/>')
        parts.append(f'<text class="name" x="{across(a):.1f}" y="{up(b) - 9:.1f}" text-anchor="middle">{escape(name)}</text>')
    parts.append(
        f'<text class="label" x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">{escape(x)}</text>'
        f'<text class="label" x="12" y="{(height - bottom) / 2}" transform="rotate(-90 12 {(height - bottom) / 2})" '
        f'text-anchor="middle">{escape(y)}</text></svg>'
    )
    return Drawing.of(parts, width, height)


def _curve(line: PlotLine, across: Scale, up: Scale) -> str:
    inside = [(across(x), min(max(up(y), up.stop), up.start)) for x, y in thin(line.points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
    kind = "curve" + (" faint" if line.faint else "") + (" dashed" if line.dashed else "")
    style = f'style="--c:var(--series-{line.colour % COLOURS})" data-name="{escape(line.name)}"'
    parts = [] if line.dots else [f'<polyline class="{kind}" {style} points="{path}"/>']
    if line.marks or line.dots or len(inside) == 1:
        parts += [f'<circle class="mark" {style} cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in inside]
    if line.labelled:
        x, y = inside[-1]
        parts.append(f'<text class="label" x="{x:.1f}" y="{y - 5:.1f}" text-anchor="end">{escape(line.name)}</text>')
    return "".join(parts)
