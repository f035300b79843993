"""What every kind of task gives: how its files are read, and something that learns it and is measured on it."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, nearest
from cloze.interop.model import Head as StoredHead
from cloze.networks.blocks.characters import Characters
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.clock import Clock
from cloze.registry import GivenMark, lookup, mark_of, names, parameters
from cloze.tasks.kept import KeptLayers
from cloze.tasks.settings import Settings

Report = Callable[[int], None]
T = TypeVar("T", bound="Task")


class Row(Protocol):
    """One example as the network reads it, with its answer; its length is what it costs."""

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens of each column did not fit."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class FramedRow:
    """A row that is one framed text; tasks add its answer."""

    framed: Framed

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens did not fit."""
        return {"text": self.framed.cut}

    def __len__(self) -> int:
        return len(self.framed)


class Prediction(Protocol):
    """What is said of one row."""

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics on some examples; `baseline` are those of always giving the training text's most frequent answer."""

    examples: int
    metrics: dict[str, float]
    baseline: dict[str, Any] | None
    remarks: tuple[str, ...] = ()


class Task(Protocol):
    """A registered kind of task with its options, which are the builder's arguments.

    `metrics`: by name whether more is better; the first chooses the epoch if no other is asked for.
    """

    @property
    def name(self) -> str: ...

    @property
    def metrics(self) -> Mapping[str, bool]: ...

    def reading(self: T, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> T:
        """The same task for files that are written in another way."""

    def deciding(self: T, *, beams: int | None, length_penalty: float | None) -> T:
        """The same task answering by a beam search; a task that writes nothing refuses with a `TaskError`."""

    def read(self, path: Path | str, *, labelled: bool = True) -> Any:
        """The examples of a file; with `labelled=False` answers are read if the column is there."""

    def begin(self, loaded: Checkpoint, train: Any, settings: Settings, seed: int, precision: torch.dtype | None) -> Learner:
        """What learns the task, before training, from a copy of a checkpoint; everything random comes from the seed."""

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Learner:
        """What learned the task, from a fine-tuned folder and its task.json."""

    def facts(self, train: Any, dev: Any) -> dict[str, Any]:
        """For task.json: `baseline`, the dev metrics of `always` giving the most frequent answer, and what else is known."""

    def constant(self, always: str, examples: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one answer; `labels` are the classes where there are any."""

    def description(self) -> dict[str, Any]:
        """The options as task.json keeps them: `columns`, and beside it whatever is no name of a column."""


class Learner(nn.Module):
    """A network with a head that learns a task; an `nn.Module` so that both are trained, saved and moved together.

    `exact` is the reader in fp32, for measuring: what is measured does not depend on how it was trained. `labels` are the
    classes, None where answers are free.
    """

    labels: tuple[str, ...] | None = None
    share = 0.0  # of the run that is over, while it trains
    usual_rate: float | None = None  # the peak learning rate where none is given; None: that of the settings for its width

    kept: KeptLayers | None = None  # while it trains a head on a network that stays as it is

    def __init__(self, reader: Reader, head: nn.Module, task: Any, *, length: int | None) -> None:
        super().__init__()
        self.network: nn.Module = reader.network
        self.head: Any = head
        self.reader, self.task, self.length = reader, task, length
        self.exact = replace(reader, precision=None)
        name_dropouts(self)

    def states(self, reader: Reader, rows: Sequence[Framed], batch: Batch, want: Sequence[str]) -> dict[str, Any]:
        """The network's states for rows and the batch they make; layers that cannot have changed are read where they are kept."""
        if self.kept is not None and set(want) == {"layers"}:
            return {"layers": self.kept(reader, rows)}
        return reader.states(batch, want)

    @abstractmethod
    def answered(self, examples: Any) -> list[Any]:
        """The examples as rows with their answers; one without an answer that can be learned is a `TaskError`."""

    @abstractmethod
    def loss(self, rows: Sequence[Any]) -> Tensor:
        """The mean loss of some rows."""

    @abstractmethod
    def measure(
        self, rows: Sequence[Any], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> dict[str, float]:
        """The task's metrics on rows with answers; with `metric` only what comes at its price. Runs in eval mode."""

    @abstractmethod
    def evaluate(self, examples: Any, always: str | None, *, size: int, report: Report) -> Evaluation:
        """All metrics on examples with answers, and those of `always` giving one answer."""

    @abstractmethod
    def predict(self, examples: Any, *, size: int, report: Report) -> Sequence[Prediction]:
        """An answer for every example, in their order; answers of the examples are not looked at."""

    @abstractmethod
    def stored(self) -> dict[str, StoredHead]:
        """The head as a folder keeps it, by its name."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What task.json says beside the task's options, so that `Task.load` can make the learner again."""


def task(name: str, **given: Any) -> Task:
    """A registered task by name with the options that are given, None meaning not.

    An unknown name, and an option that this task does not have, is a `TaskError`.
    """
    if name not in names("task"):
        raise TaskError(f"unknown task {name!r}. {nearest(name, names('task'))}")
    builder = lookup("task", name)
    options = {key: value for key, value in given.items() if value is not None}
    for key in options:
        if key not in parameters(builder):
            others = [other for other in names("task") if key in parameters(lookup("task", other))]
            raise TaskError(f"{_option(key)} is no option of {name}. Use --task {' or '.join(others)}, or leave it out.")
    made: Task = builder(**options)
    return made


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def chosen_metric(task: Task, name: str | None) -> str:
    """The metric that chooses the epoch: the one asked for, else the task's first; an unknown one is a `TaskError`."""
    if name is not None and name not in task.metrics:
        raise TaskError(f"unknown metric {name!r}. {nearest(name, task.metrics)}")
    return next(iter(task.metrics)) if name is None else name


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


def clock_of(network: nn.Module) -> Clock:
    """The clock that a network draws by; a new one for a network that draws nothing."""
    clocks = (getattr(module, "clock", None) for module in network.modules())
    return next((clock for clock in clocks if isinstance(clock, Clock)), None) or Clock()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within: eval mode; afterwards the mode is what it was."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
