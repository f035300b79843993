"""The shape that engines train: a run of one source, one network and one objective."""

from __future__ import annotations

from typing import Any, NamedTuple

from cloze.batching import Feed
from cloze.training.run import Run
from cloze.training.step import Weighted


class Lone(NamedTuple):
    """The one of each that such a run has."""

    entry: str
    feed: Feed
    network: Any
    objective: Any
    weighted: Weighted  # how the pass asks the objective


def lone(run: Run) -> Lone | str:
    """The parts of a run, or why it has more than one of a kind, in a few words."""
    feeds = getattr(run.data, "feeds", {})
    feed = next(iter(feeds.values()), None)
    if len(feeds) != 1 or not isinstance(feed, Feed):
        return "the data are not those of one source"
    ((entry, passes),) = run.step.entries.items()
    if len(passes) != 1 or len(passes[0].objectives) != 1 or passes[0].objectives[0].weight != 1.0:
        return "there is more than one pass or objective, or a weight"
    if len(run.step.networks) != 1:
        return "there is more than one network"
    (weighted,) = passes[0].objectives
    return Lone(entry, feed, run.step.networks[passes[0].network], run.step.objectives[weighted.objective], weighted)
