"""What the small loop of `finetune.py` asks of a task beyond using it: a learner before training, its loss, what is saved.

A task with a recipe in `cloze/recipes/tasks` needs none of this: its network and head are trained by `cloze.training`.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError
from cloze.interop.model import Head as StoredHead
from cloze.networks.blocks.characters import Characters
from cloze.registry import GivenMark, mark_of, parameters
from cloze.tasks.kept import KeptLayers
from cloze.tasks.settings import Settings
from cloze.tasks.task import Learner, Task, clock_of


class TrainedTask(Task, Protocol):
    """A task that the small loop can train."""

    def begin(
        self, loaded: Checkpoint, train: Any, settings: Settings, seed: int, precision: torch.dtype | None
    ) -> TrainedLearner:
        """What learns the task, before training, from a copy of a checkpoint; everything random comes from the seed."""

    def facts(self, train: Any, dev: Any) -> dict[str, Any]:
        """For task.json: `baseline`, the dev metrics of `always` giving the most frequent answer, and what else is known."""


class TrainedLearner(Learner):
    """A learner that the small loop trains and saves."""

    share = 0.0  # of the run that is over, while it trains
    usual_rate: float | None = None  # the peak learning rate where none is given; None: that of the settings for its width

    kept: KeptLayers | None = None  # while it trains a head on a network that stays as it is

    def states(self, reader: Reader, rows: Sequence[Framed], batch: Batch, want: Sequence[str]) -> dict[str, Any]:
        """The network's states for rows and the batch they make; layers that cannot have changed are read where they are kept."""
        if self.kept is not None and set(want) == {"layers"}:
            return {"layers": self.kept(reader, rows)}
        return reader.states(batch, want)

    @abstractmethod
    def loss(self, rows: Sequence[Any]) -> Tensor:
        """The mean loss of some rows."""

    @abstractmethod
    def stored(self) -> dict[str, StoredHead]:
        """The head as a folder keeps it, by its name."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What task.json says beside the task's options, so that `Task.load` can make the learner again."""


def copied(loaded: Checkpoint, settings: Settings, seed: int, precision: torch.dtype | None) -> Reader:
    """A reader with a copy of the checkpoint's network, or with a randomly initialised twin."""
    if settings.from_scratch:
        network = fresh_network(loaded.network, dict(loaded.network_arguments), seed)
    else:
        network = copy.deepcopy(loaded.network)
    if settings.dropouts is not None:
        settings.dropouts.apply(network)
    return replace(Reader.of(loaded, precision=precision), network=network)


def fresh_network(network: Any, arguments: dict[str, Any], seed: int) -> Any:
    """A randomly initialised twin: the same builder with the same arguments, weights drawn from `seed`, same clock.

    A network that reads characters is copied and drawn anew: how its words are spelled is in no argument.
    """
    if "characters" in network.takes:
        return _drawn_anew(network, seed)
    table = network.tables.get("tokens")
    vocabulary = getattr(network, "vocab_size", None) if table is None else table.num_embeddings
    if vocabulary is None:
        raise CheckpointError("this network has no token table, so its vocabulary is not known; a twin cannot be built.")
    given = {
        "vocab_size": vocabulary, "clock": clock_of(network),
        "spellings": getattr(network, "spellings", None), "counts": None,
    }  # fmt: skip
    asked = {name for name, p in parameters(type(network)).items() if isinstance(mark_of(p), GivenMark)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin = type(network)(**arguments, **{name: value for name, value in given.items() if name in asked})
    return twin.to(next(network.parameters()).device)


def _drawn_anew(network: Any, seed: int) -> Any:
    shared = {id(clock): clock for clock in [clock_of(network)]}
    twin = copy.deepcopy(network, shared)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin.reset_parameters()
        for module in twin.modules():
            if isinstance(module, Characters):
                module.reset_parameters()
    return twin
