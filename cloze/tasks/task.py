"""The protocol of tasks: how files are read, what predicts, and how it is measured.

A `Task` reads files into examples, and `Task.load` makes the `Learner` of an opened checkpoint: a `Reader`
(`cloze/decoding/reader.py`) with a head. `Learner.predict` turns examples into `Prediction`s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.decoding.unknown import answer_remark
from cloze.errors import TaskError, propose
from cloze.networks.blocks.dropout import name_dropouts
from cloze.registry import lookup, names, parameters

if TYPE_CHECKING:
    from cloze.tasks.linear.linear_task import LinearTask, Outputs
    from cloze.tasks.measures.class_report import Calibration, Confusion, Ranking
    from cloze.tasks.mixture import Mixture

Report = Callable[[int], None]
Judged = Sequence[Any] | NDArray[Any]  # an item of every example
T = TypeVar("T", bound="Task")
U = TypeVar("U", bound="Unsearched")


@dataclass(frozen=True)
class FramedRow:
    """A row that is one framed text; tasks add its answer."""

    framed: Framed

    def __len__(self) -> int:
        return len(self.framed)


class Prediction(Protocol):
    """The prediction for one row; `cut` is how many tokens of its text did not fit."""

    @property
    def cut(self) -> int:
        """Zero, unless the prediction says otherwise."""
        return 0

    def record(self) -> dict[str, Any]:
        """The prediction as a JSON object."""


@runtime_checkable
class Written(Prediction, Protocol):
    """A prediction with a format of its own."""

    @property
    def written(self) -> str:
        """The prediction in that format, ending in a line feed."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of a model on labelled examples.

    Attributes:
        examples: How many examples.
        metrics: Each metric by name.
        baseline: The metrics of always giving the most frequent answer of the training rows.
        remarks: What to know about the figures, such as texts that were cut.
        intervals: The 95 % confidence interval of each metric, with `bootstrap`.
        judged: The items of `Learner.judge`, one per example.
        report: One row per kind of answer, all with the same keys; the first names the kind.
        averages: Averages of the rows of `report`, with the same keys.
        tags: For tags that form spans, whose kinds are in `report`: one row per tag.
        confusion: How often each class was given in place of each other.
        calibration: How well the probabilities tell how often an answer is right.
        ngrams: The metrics of a linear model on n-grams, fitted to the same training rows.
        ranking: Of two classes, how well the probability of the second ranks the examples, and the threshold of its highest F1.
    """

    examples: int
    metrics: dict[str, float]
    baseline: dict[str, Any] | None
    remarks: tuple[str, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    judged: Judged = field(default=(), repr=False, compare=False)  # the items of `Learner.judge`
    report: Sequence[Mapping[str, Any]] = ()
    averages: Sequence[Mapping[str, Any]] = ()
    tags: Sequence[Mapping[str, Any]] = ()
    confusion: Confusion | None = None
    calibration: Calibration | None = None
    ranking: Ranking | None = None
    ngrams: Mapping[str, float] | None = None

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        record = {name: vars(self)[name] for name in ("examples", "metrics", "baseline", "remarks")}
        record |= {"intervals": dict(self.intervals)} if self.intervals else {}
        record |= {"ngrams": dict(self.ngrams)} if self.ngrams is not None else {}
        return record | self.details()

    def details(self) -> dict[str, Any]:
        """The JSON object of what is known besides the metrics: by class, by pairs of classes, of probabilities."""
        tables: dict[str, Any] = {name: list(vars(self)[name]) for name in ("report", "averages", "tags") if vars(self)[name]}
        tables |= {} if self.confusion is None else {"confusion": self.confusion.record()}
        parts = {"calibration": self.calibration, "ranking": self.ranking}
        return tables | {name: dict(vars(part)) for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        """The tables that `cloze evaluate` prints."""
        from cloze.tasks.evaluation_text import evaluation_lines

        return "\n".join(evaluation_lines("Evaluation", self))

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        from cloze.tasks.evaluation_text import evaluation_html

        return evaluation_html(self)


def cut_remark(cut: Sequence[int], length: int | None) -> str | None:
    """A sentence on how many texts were cut, by the tokens that each lost; None if none. `length`: the tokens read of one."""
    number = sum(lost > 0 for lost in cut)
    if not number:
        return None
    read = "than the network reads" if length is None else f"than {length} tokens"
    more = "" if length is None else " (--length N reads more; --set length=N fine-tunes on more)"
    return f"{number} of {len(cut)} texts are longer {read} and lost their end, {sum(cut):,} tokens in all{more}"


class Task(Protocol):
    """A registered kind of task with its options, which are the builder's arguments.

    `metrics`: for each metric, whether more is better; the first selects the epoch by default. `of_words`: a text may be a list
    of its words. `writes`: formats that only its predictions have, such as `conll`.
    """

    @property
    def name(self) -> str: ...

    @property
    def of_words(self) -> bool: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def metrics(self) -> Mapping[str, bool]: ...

    def reading(self: T, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> T:
        """The same task for files in another format."""

    def deciding(self: T, *, beams: int | None, length_penalty: float | None) -> T:
        """The same task with beam search; a task that writes no text refuses with a `TaskError`."""

    def read(self, path: Path | str, *, labelled: bool = True) -> Any:
        """The examples of a file; with `labelled=False`, answers are optional."""

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Learner:
        """The learner for an opened checkpoint; `described` is the contents of its task.json."""

    def constant(self, always: str, examples: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of the constant answer `always`; `labels` are the classes, if there are any."""

    def linear(self, labels: Sequence[str] = ()) -> LinearTask | None:
        """What a linear model of the task learns, to compare networks with; None if there is no sensible one."""
        return None

    def description(self) -> dict[str, Any]:
        """The options as task.json keeps them: `columns`, and all other options next to it."""


class Unsearched:
    """The base of tasks that write no text, so beam search does not apply. `does` completes the sentence in the error."""

    name: str
    of_words: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()
    does: ClassVar[str]

    def linear(self, labels: Sequence[str] = ()) -> LinearTask | None:
        """None: a task says if there is a linear model of it."""
        return None

    def deciding(self: U, *, beams: int | None, length_penalty: float | None) -> U:
        """The same task; a beam search is refused with a `TaskError`."""
        if beams is not None or length_penalty is not None:
            raise TaskError(f"--beams and --length-penalty are for tasks that write a text; {self.name} {self.does}.")
        return self


class Learner(nn.Module, ABC):
    """A network and a head that solve a task. `cloze evaluate` and `cloze predict` use it, and runs measure themselves with it.

    It is an `nn.Module` so that network and head change device and mode together. `exact` is the reader in fp32: metrics do not
    depend on the precision of training. `labels` are the classes, None if answers are free.
    """

    labels: tuple[str, ...] | None = None
    tuned: tuple[Path, str] | None = None  # the folder that it is from, and its name there if it is one of several tasks
    mixture: Mixture | None = None  # with the linear model in that folder
    annotated: tuple[str, ...] = ()  # the labelled layers that the training text had

    def __init__(self, reader: Reader, head: nn.Module, task: Any, *, length: int | None) -> None:
        super().__init__()
        self.network: nn.Module = reader.network
        self.head: Any = head
        self.reader, self.task, self.length = reader, task, length
        self.exact = replace(reader, precision=None)
        name_dropouts(self)

    @abstractmethod
    def answered(self, examples: Any) -> list[Any]:
        """The examples as rows with their answers; an example without one is a `TaskError`."""

    @abstractmethod
    def judge(
        self, rows: Sequence[Any], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Judged:
        """One item per row with everything that the metrics need; with `metric`, only what that metric needs.

        Runs in eval mode. `metrics` of any sample of the items, also with repetitions, are the metrics of those rows, so the
        bootstrap needs no second pass through the network.
        """

    @abstractmethod
    def metrics(self, judged: Any) -> dict[str, float]:
        """The task's metrics from the items of `judge`."""

    def outputs(self, examples: Any, *, size: int = 64, report: Report = lambda done: None) -> Outputs:
        """What the network alone says of examples, in the form of `Linear.outputs`."""
        raise TaskError(f"{self.task.name}: its answers cannot be mixed with those of a linear model. Leave --mix-ngrams out.")

    def mixed(self, examples: Any, outputs: Outputs) -> Outputs:
        """The outputs of the network for examples, mixed with those of the linear model if there is a mixture."""
        return outputs if self.mixture is None else self.mixture.outputs(examples, outputs)

    def answers(self, judged: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The right answers and those of the learner, item by item, from the items of `judge`; None if they cannot be compared.

        Here they are the first two columns of an array.
        """
        columns = judged.T if isinstance(judged, np.ndarray) and judged.ndim == 2 and judged.shape[1] >= 2 else None
        return None if columns is None else (columns[0], columns[1])

    def measure(
        self, rows: Sequence[Any], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> dict[str, float]:
        """The task's metrics on rows with answers; with `metric`, only those that need no more than it does. Runs in eval
        mode."""
        return self.metrics(self.judge(rows, metric, size=size, report=report))

    @abstractmethod
    def evaluate(self, examples: Any, always: str | None, *, size: int, report: Report) -> Evaluation:
        """All metrics on examples with answers, and as a baseline those of the constant answer `always`."""

    def scored(self, examples: Any, *, size: int, report: Report) -> Iterator[dict[str, Any]]:
        """Every example with the probabilities of all labels in place of its label (soft labels); with `cut` if it lost
        tokens."""
        raise TaskError(f"{self.task.name} chooses no class whose probabilities could be written: leave --scores out.")

    def texts_of(self, examples: Any) -> Sequence[str]:
        """The texts that examples are about; none if the task is not about texts of a user."""
        return ()

    def remarks_on_texts(self, examples: Any) -> list[str]:
        """Sentences on how texts are read: without the annotations of training; or without a word that the network knows, unless
        a linear model answers, too."""
        remark = None if self.mixture is not None else answer_remark(self.reader, self.texts_of(examples))
        missing = [layer for layer in self.annotated if layer not in self.reader.annotations.layers]
        sentence = "the texts of training were annotated ({0}), these are not: --annotate {0}=PART:FILE"
        return [*(sentence.format(layer) for layer in missing), *([] if remark is None else [remark])]

    @abstractmethod
    def predict(self, examples: Any, *, size: int, report: Report) -> Sequence[Prediction]:
        """A prediction for every example, in order; answers in the examples are ignored."""


def task(name: str, **given: Any) -> Task:
    """A registered task by name, with options; an option of None counts as not given.

    An unknown name or option is a `TaskError`.
    """
    if name not in names("task"):
        raise TaskError(f"unknown task {name!r}. {propose(name, names('task'))}")
    builder = lookup("task", name)
    options = {key: value for key, value in given.items() if value is not None}
    for key in options:
        if key not in parameters(builder):
            others = [other for other in names("task") if key in parameters(lookup("task", other))]
            if not others:
                raise TaskError(f"{name} has no column {key!r}. {propose(key, parameters(builder))}")
            raise TaskError(f"{_option(key)} is for the task {' or '.join(others)}, and this one is {name}. Omit {_option(key)}.")
    instance: Task = builder(**options)
    return instance


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def chosen_metric(task: Task, name: str | None) -> str:
    """The metric that selects the epoch: the given one, else the task's first; an unknown one is a `TaskError`."""
    if name is not None and name not in task.metrics:
        raise TaskError(f"unknown metric {name!r}. {propose(name, task.metrics)}")
    return next(iter(task.metrics)) if name is None else name


def selected(examples: Any, numbers: Sequence[int]) -> Any:
    """Some of the examples, by their numbers. Each field holds one value per row, None or nothing if no row has one, or the
    path."""
    values = {column.name: vars(examples)[column.name] for column in fields(examples)}
    return type(examples)(**{
        name: value if isinstance(value, str) or not value else type(value)(value[number] for number in numbers)
        for name, value in values.items()
    })


def together(parts: Sequence[Any]) -> Any:
    """The examples of several files as one set of examples. Each field holds one value per row, None if no row has one, or the
    path."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {}
    for name in (column.name for column in fields(parts[0])):
        values = [vars(part)[name] for part in parts]
        if isinstance(values[0], str):
            columns[name] = " and ".join(values)
        else:
            columns[name] = None if values[0] is None else type(values[0])(chain.from_iterable(values))
    return type(parts[0])(**columns)
