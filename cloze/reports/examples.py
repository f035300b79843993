"""The page of `cloze peek --html`: built examples with their hidden tokens, and the boxes of their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cloze.atomic import require_output, whole_file
from cloze.reports.page import fill_page, is_page


def render(examples: Sequence[Mapping[str, Any]], *, recipe: str, timestamp: datetime | None = None) -> str:
    """The page, as HTML text that refers to nothing outside itself; `examples` as `runs.examples` gives them."""
    return fill_page("examples.html", timestamp, recipe=recipe, examples=examples)


def write_page(examples: Sequence[Mapping[str, Any]], out: Path, *, recipe: str) -> Path:
    """Write the page, whole or not at all."""
    require_output(out, what="a page of cloze", holds=is_page)
    with whole_file(out) as fresh:
        fresh.write_text(render(examples, recipe=recipe), encoding="utf-8")
    return out
