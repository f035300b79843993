"""What binding a source to a store takes besides the address of its random numbers; `build.py` and `runs/examples.py` call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloze.corpus.stores.source import Source
from cloze.exercises.exercise import Placed


def source_options(source: Source, edits: Sequence[Placed], *, lanes: int, batch: int | None = None) -> dict[str, Any]:
    """The arguments of `source.bind` for these edits: the rows of a step, where the source plans with them, and the share of the
    passages whose second part the edits replace, where the source can put that part back."""
    options: dict[str, Any] = {}
    if source.lanes:
        options["lanes"] = lanes
    if source.of_one_length and batch is not None:
        options["batch"] = batch
    displaced = max((placed.edit.displaces for placed in edits if placed.view == "main"), default=0.0)
    if source.puts_back and displaced:
        options["put_back"] = displaced
    return options
