"""Pieces of HTML for notebooks: all text is escaped, there are no scripts, and colours suit light and dark pages.

Text and lines have the colour of the page around them (`currentColor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_SMALL, _ROUNDING = 0.001, 1e-12  # what is smaller is shown by its digits; as 0 where it comes from the rounding of floats
#: The colours of series, between light and dark: a contrast of 3 or more with white and with #111.
SERIES = ("#3f85c6", "#d9712f", "#2f9e6b", "#b15cae", "#a88a1a", "#2b93a3", "#d1566f", "#828994")


def table(rows: Sequence[Mapping[str, Any]], *, caption: str = "") -> str:
    """Rows with the same keys as a table, their keys above them; nothing for no rows. Floats are those of `metric_text`."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    return _table(f"<thead><tr>{head}</tr></thead>", (row.values() for row in rows), caption)


def grid(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """A table of columns and rows of cells."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return _table(f"<thead><tr>{head}</tr></thead>", rows, caption)


def facts(pairs: Mapping[str, Any], *, caption: str = "") -> str:
    """Names and their values, one pair in a row."""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(cell_text(value))}</td></tr>'
        for name, value in pairs.items()
    )
    return f"<table>{_caption(caption)}<tbody>{body}</tbody></table>"


def _table(head: str, rows: Iterable[Iterable[Any]], caption: str) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell_text(value))}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{_caption(caption)}{head}<tbody>{body}</tbody></table>"


def _caption(text: str) -> str:
    return f'<caption style="text-align:left;color:inherit">{escape(text)}</caption>' if text else ""


def cell_text(value: object) -> str:
    """A value as a table shows it."""
    return metric_text(value) if isinstance(value, float) else str(value)


def metric_text(value: float) -> str:
    """A metric to four decimals, or to three digits where these would hide it: a squared error of 0.00002 is not 0.

    >>> [metric_text(value) for value in (0.91238, 0.00002, 0.0, 1e-17, -0.0004)]
    ['0.9124', '2e-05', '0.0000', '0.0000', '-0.0004']
    """
    return f"{value:.3g}" if _ROUNDING < abs(value) < _SMALL else f"{value:.4f}"


def line(text: str) -> str:
    """A line of text; nothing for an empty one."""
    return f"<div>{escape(text)}</div>" if text else ""


def paragraphs(texts: Iterable[str]) -> str:
    """Texts as paragraphs; lines inside them are kept."""
    return "".join(f'<p style="white-space:pre-line">{escape(text)}</p>' for text in texts if text)


def preformatted(text: str) -> str:
    """Text whose spaces and lines are kept; nothing for an empty one."""
    return f'<pre style="font-family:monospace">{escape(text)}</pre>' if text else ""


def bar(share: float) -> str:
    """A bar of which a `share` is filled."""
    filled = 100 * min(max(share, 0.0), 1.0)
    return (
        '<div style="height:6px;max-width:36em;margin:4px 0;border-radius:3px;overflow:hidden;background:rgba(128,128,128,.3)" '
        f'role="progressbar" aria-valuenow="{filled:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<div style="height:100%;width:{filled:.1f}%;background:{SERIES[0]}"></div></div>'
    )
