"""Figures on their own: in a notebook, or as one SVG file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import escape

from cloze import html_parts
from cloze.atomic import whole_file
from cloze.errors import CheckpointError, UserError
from cloze.reports.figures import PlotLine
from cloze.reports.run import find_runs, read_run
from cloze.reports.sections import Figure, dev_figures, loss_figures

_LETTER, _ROW, _GAP = 6.4, 17, 18  # pixels: the width of a letter, the height of a row of text, and between figures
#: A page of cloze has its colours in variables. Here series have theirs written out, and all else has that of the text around it.
_STYLE = (
    ".cloze-plot{font:11px sans-serif}.cloze-plot text{fill:currentColor;font:11px sans-serif}"
    ".cloze-plot .title,.cloze-plot .name,.cloze-plot .value{font-weight:600;font-size:13px}"
    ".cloze-plot .tick,.cloze-plot .label{opacity:.75}.cloze-plot .grid{stroke:currentColor;opacity:.14}"
    ".cloze-plot .axis{stroke:currentColor;opacity:.35}.cloze-plot .cursor{display:none}"
    ".cloze-plot .curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
    ".cloze-plot .faint{stroke-width:1;opacity:.3}.cloze-plot .dashed{stroke-width:1.4;stroke-dasharray:3 4}"
    ".cloze-plot .mark{fill:currentColor}.cloze-plot .mean{stroke:currentColor;stroke-width:3}"
    ".cloze-plot .interval{stroke:currentColor;stroke-width:2.5;opacity:.5}"
    ".cloze-plot .constant{stroke:currentColor;stroke-dasharray:3 4;opacity:.6}"
)
_ALONE = "svg{color:#1d2129}@media (prefers-color-scheme: dark){svg{color:#e7e5df}}"  # a file has no text around it
_COLOUR = re.compile(r"--c:var\(--series-(\d)\)")


class Figures:
    """Figures of a report. A notebook shows them, `save` writes them into a file."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.figures = tuple(figures)

    def save(self, path: str | Path) -> Path:
        """Write all figures, one below the other, into an SVG file, and return its path.

        Raises:
            UserError: The name does not end in .svg.
        """
        target = Path(path)
        if target.suffix != ".svg":
            raise UserError(f"{target}: figures are saved as SVG. Expected a name that ends in .svg.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as stage:
            stage.write_text(self._repr_svg_(), encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"<cloze figures: {' · '.join(figure.title for figure in self.figures) or 'nothing to show yet'}>"

    def _repr_svg_(self) -> str:
        return _svg(self.figures, _STYLE + _ALONE)

    def _repr_html_(self) -> str:
        if not self.figures:
            return html_parts.line(repr(self))
        svgs = "".join(f"<div>{_svg([figure], _STYLE)}</div>" for figure in self.figures)
        return f'<div style="display:flex;flex-wrap:wrap;gap:{_GAP}px">{svgs}</div>'


def plot_run(folder: Path, *, what: str) -> Figures:
    """The losses of a run against tokens, and its scores on dev examples, with baselines; of several seeds without.

    Raises:
        CheckpointError: The folder has no log of a run; the message begins with `what`.
    """
    try:
        runs = [read_run(run) for run in find_runs([folder])]
    except CheckpointError:
        raise CheckpointError(
            f"{what}: {folder} has no log of its training. The folder of a run has one; what `save` writes and models from "
            "elsewhere have none."
        ) from None
    return Figures([*loss_figures(runs)[:1], *dev_figures(runs)])


def _svg(figures: Sequence[Figure], style: str) -> str:
    """Figures below each other as one SVG element."""
    width = max((figure.svg.width for figure in figures), default=0)
    parts, top = list[str](), 0
    for figure in figures:
        title = f'<text class="title" x="6" y="13">{escape(figure.title)}</text>'
        legend, height = _legend(figure.svg.legend, figure.svg.width)
        head = _ROW + 4 + height
        body = f'<svg y="{head}" width="{figure.svg.width}" height="{figure.svg.height}">{figure.svg}</svg>'
        parts.append(f'<svg y="{top}" width="{figure.svg.width}" height="{head + figure.svg.height}">{title}{legend}{body}</svg>')
        top += head + figure.svg.height + _GAP
    height = max(top - _GAP, 0)
    return _COLOUR.sub(lambda match: f"color:{html_parts.SERIES[int(match[1])]}", (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cloze-plot" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="max-width:100%;height:auto"><style>{style}</style>{"".join(parts)}</svg>'
    ))  # fmt: skip


def _legend(lines: Sequence[PlotLine], width: int) -> tuple[str, int]:
    """The names of curves, where there are several, with their colours; and the height of that."""
    if len(lines) < 2:
        return "", 0
    parts, left, top = list[str](), 6.0, _ROW + 8
    for line in lines:
        needed = 26 + _LETTER * len(line.name) + 12
        if left > 6 and left + needed > width:
            left, top = 6.0, top + _ROW
        dashed = " dashed" if line.dashed else ""
        sample = f'class="curve{dashed}" style="--c:var(--series-{line.colour % len(html_parts.SERIES)})"'
        parts.append(f'<line {sample} x1="{left:.0f}" x2="{left + 20:.0f}" y1="{top}" y2="{top}"/>')
        parts.append(f'<text x="{left + 26:.0f}" y="{top + 4}">{escape(line.name)}</text>')
        left += needed
    return "".join(parts), top - 8
