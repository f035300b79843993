"""The measures of one file as lines of text: `cloze evaluate` prints them for every task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloze.untrusted import visible

if TYPE_CHECKING:
    from cloze.tasks.task import Evaluation


def say(text: str) -> None:
    """Print lines that hold words of the user's files, which cannot steer a terminal that they reach through a pipe."""
    print(visible(text))


def show(title: str, evaluation: Evaluation) -> None:
    """Print the metrics of a file, and its tables and remarks."""
    from cloze.tasks.evaluation_text import evaluation_lines

    for line in evaluation_lines(title, evaluation):
        say(line)
