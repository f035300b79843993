"""The measures of one file as lines of text: `cloze evaluate` prints them for every task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloze.tasks.task import Evaluation


def show(title: str, one: Evaluation) -> None:
    """Print the metrics of a file, and its tables and remarks."""
    from cloze.tasks.evaluation_text import evaluation_lines

    for line in evaluation_lines(title, one):
        print(line)
