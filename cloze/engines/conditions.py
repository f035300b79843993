"""What engines check before they train a run: its shape, and whether numba is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cloze import kernels
from cloze.batching import Feed
from cloze.networks.static.word_vectors import WordVectors
from cloze.training.engine import on_cpu
from cloze.training.optimizers.static_optimizers import Sgd
from cloze.training.passes import PassObjective
from cloze.training.run import Run


class Single(NamedTuple):
    """The parts of a run that has one of each."""

    entry: str
    feed: Feed
    network: Any
    objective: Any
    weighted: PassObjective  # how the pass asks the objective


def single(run: Run) -> Single | str:
    """The parts of a run with one source, one network and one objective, or which of them it has more of, in a few words."""
    feeds = vars(run.data).get("feeds", {})
    feed = next(iter(feeds.values()), None)
    if len(feeds) != 1 or not isinstance(feed, Feed):
        return "the data are not those of one source"
    ((entry, passes),) = run.step.entries.items()
    if len(passes) != 1 or len(passes[0].objectives) != 1 or passes[0].objectives[0].weight != 1.0:
        return "there is more than one pass or objective, or a weight"
    if len(run.step.networks) != 1:
        return "there is more than one network"
    (weighted,) = passes[0].objectives
    return Single(entry, feed, run.step.networks[passes[0].network], run.step.objectives[weighted.key], weighted)


def is_for(run: Run, objective: type | tuple[type, ...]) -> bool:
    """Whether a run trains a single network on one of these objectives."""
    setup = single(run)
    return not isinstance(setup, str) and isinstance(setup.objective, objective)


def unlike(run: Run, source: type, objective: type, *, any_device: bool = False) -> str:
    """Why a run is not one network of word vectors on one such source and one such objective, on the CPU (or `any_device`)."""
    setup = single(run)
    if isinstance(setup, str):
        return setup
    if not isinstance(setup.feed.source, source) or setup.feed.edits:
        return f"the data are not {source.__name__.removeprefix('Bound').lower()} without edits"
    if not isinstance(setup.objective, objective):
        return f"the objective is not {objective.__name__}"
    if not isinstance(setup.network, WordVectors) or setup.network.buckets:
        return "the network is not word_vectors without n-grams"
    return "" if any_device or on_cpu(run) else "the device is not the CPU"


def unlike_sgd(run: Run) -> str:
    """Why a run does not update a network on the CPU by plain descent alone, without phases."""
    optimizer = run.optimizer
    if not isinstance(optimizer, Sgd) or optimizer.momentum or optimizer.weight_decay:
        return "the optimizer is not sgd without momentum and weight decay"
    if run.training.clip is not None:
        return "training.clip is set"
    if run.phases:
        return "the recipe has phases"
    return "" if on_cpu(run) else "the device is not the CPU"


def require_kernel(name: str, purpose: str, functions: Callable[[Any], tuple[Any, ...]]) -> str:
    """A hint if `functions` of a kernel's module must be compiled first. Raises `MissingExtra` if numba is missing."""
    if kernels.are_compiled(*functions(kernels.require(name, purpose))):
        return ""
    return "hint: the first run compiles this engine's code, which takes a minute or two; later runs start at once."
