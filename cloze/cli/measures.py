"""The measures of one file as lines of text: `cloze evaluate` prints them for every task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cloze.cli.rows import table
from cloze.untrusted import visible

if TYPE_CHECKING:
    from cloze.tasks.task import Evaluation


def say(text: str) -> None:
    """Print lines that hold words of the user's files, which cannot steer a terminal that they reach through a pipe."""
    print(visible(text))


def show(title: str, one: Evaluation) -> None:
    """Print the metrics of a file: a line each, with its interval and what always giving one answer has, if there are any."""
    say(f"{title}: {one.examples} examples")
    values = {name: f"{value:.4f}" for name, value in one.metrics.items()}
    sure = {name: "[{:.4f}, {:.4f}]".format(*ends) for name, ends in one.intervals.items()}
    names, wide, apart = (_width(cells, least) for cells, least in ((values, 11), (values.values(), 6), (sure.values(), 16)))
    head = "95 % interval".ljust(apart + 2) if sure else ""
    shown = f"always {one.baseline['always'][:40]!r}" if one.baseline else ""
    print(f"  {'':<{names}}  {'':<{wide}}  {head}{shown}".rstrip())
    for name, value in values.items():
        interval = sure[name].ljust(apart + 2) if sure else ""
        constant = f"{one.baseline[name]:.4f}" if one.baseline and name in one.baseline else ""
        print(f"  {name:<{names}}  {value:<{wide}}  {interval}{constant}".rstrip())
    for line in table(one.report):
        say(f"  {line}")
    for remark in one.remarks:
        say(f"  note: {remark}")


def _width(cells: Iterable[str], least: int) -> int:
    return max([least, *map(len, cells)])
