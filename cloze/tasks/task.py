"""The protocol of tasks: how files are read, what predicts, and how it is measured.

A `Task` says what the examples of a file are, what their labels are and how predictions are measured. `Task.load` makes the
`Learner` of an opened checkpoint: a `Reader` (`cloze/decoding/reader.py`) with a head. A learner says how the network reads
examples and what its outputs mean; `evaluate` and `predict` are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.bound_head import BoundHead, bind_head
from cloze.decoding.lengths import cut_remark
from cloze.decoding.reader import Checkpoint, Reader
from cloze.decoding.unknown import answer_remark
from cloze.errors import CheckpointError, TaskError, propose
from cloze.networks.blocks.dropout import name_dropouts
from cloze.registry import lookup, names, parameters

if TYPE_CHECKING:
    from cloze.tasks.linear.linear_task import LinearTask, Outputs
    from cloze.tasks.measures.class_report import BinaryRanking, Calibration, Confusion
    from cloze.tasks.mixture import Mixture

Report = Callable[[int], None]
PerExample = Sequence[Any] | NDArray[Any]  # an item of every example
T = TypeVar("T", bound="Task")


def silent(done: int) -> None:
    """A `Report` that reports nothing."""


class Prediction:
    """The prediction for one row: a frozen dataclass.

    The first key of its `record` is `line`, the line of the file; by this, `prediction_files` knows the files that it may
    replace. A field that only copies an input is called as in the task's `columns` (`text`) or is listed in `Task.repeated`:
    tables of predictions leave it out, since they have the user's own column.
    """

    @property
    def cut(self) -> int:
        """How many tokens of the text did not fit; zero, unless the prediction says otherwise."""
        return 0

    def record(self) -> dict[str, Any]:
        """The prediction as a JSON object: its fields, without the `cut` of a text that was read whole, and without the `text_b`
        of a task on one text."""
        omitted_if_equal = {"cut": 0, "text_b": None}
        return {
            name: value for name, value in vars(self).items()
            if name not in omitted_if_equal or value != omitted_if_equal[name]
        }

    def written_as(self, format: str | None) -> str | None:
        """The prediction in a format of its own, ending in a line feed; None if `format` is no such format. A `format` of None
        is that of the task's predictions."""
        return None

    def word_rows(self) -> list[dict[str, Any]] | None:
        """The words with their answers, as rows of a table, each with the line of the text; None if the row has one answer."""
        return None


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of a model on labelled examples.

    Attributes:
        examples: How many examples.
        metrics: Each metric by name.
        baseline: The metrics of always giving the most frequent answer of the training rows.
        remarks: What to know about the figures, such as texts that were cut.
        intervals: The 95 % confidence interval of each metric, with `bootstrap`.
        per_example: What the metrics need of every example (see `Learner.per_example`).
        by_class: One row per class or other kind of answer, all with the same keys; the first names the kind.
        averages: Averages of the rows of `by_class`, with the same keys.
        tags: For tags that form spans, whose kinds are in `by_class`: one row per tag.
        confusion: How often each class was given in place of each other.
        calibration: How well the probabilities tell how often an answer is right.
        ngrams: The metrics of a linear model on n-grams, fitted to the same training rows.
        linear: What that model has learned from: n-grams, or n-grams and texts without labels.
        ranking: Of two classes, how well the probability of the second ranks the examples, and the threshold of its highest F1.
    """

    examples: int
    metrics: dict[str, float]
    baseline: dict[str, Any] | None
    remarks: tuple[str, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    per_example: PerExample = field(default=(), repr=False, compare=False)  # the items of `Learner.per_example`
    by_class: Sequence[Mapping[str, Any]] = ()
    averages: Sequence[Mapping[str, Any]] = ()
    tags: Sequence[Mapping[str, Any]] = ()
    confusion: Confusion | None = None
    calibration: Calibration | None = None
    ranking: BinaryRanking | None = None
    ngrams: Mapping[str, float] | None = None
    linear: str = "n-grams"

    def record(self) -> dict[str, Any]:
        """The evaluation as a JSON object."""
        record = {name: vars(self)[name] for name in ("examples", "metrics", "baseline", "remarks")}
        record |= {"intervals": dict(self.intervals)} if self.intervals else {}
        record |= {"ngrams": dict(self.ngrams)} if self.ngrams is not None else {}
        return record | self.details()

    def details(self) -> dict[str, Any]:
        """The JSON object of what is known besides the metrics: by class, by pairs of classes, of probabilities."""
        rows = {"report": self.by_class, "averages": self.averages, "tags": self.tags}
        tables: dict[str, Any] = {name: list(table) for name, table in rows.items() if table}
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


class Task(ABC):
    """A registered type of task with its options, which are the builder's arguments.

    In training the options come from the recipe: `text`, `text_b` and `label` are the columns of the source, and any other is
    the argument of this name of the source's `answer` (`runs.task_of_head`). `description` writes them to task.json, from which
    `tasks.task_in_folder` builds the task again: a task with further options overrides it.

    `read` gives examples: a frozen dataclass with a length, whose fields hold one value for each row, or the path of the file
    (`LabelledTexts` serves most tasks). `selected` and `join_examples` rely on that.

    | method | input | output | default |
    |---|---|---|---|
    | `read` | a file | examples | |
    | `truth` | examples | the right answer of each | |
    | `per_example` | right answers, outputs of a model | what the metrics need, an item per example | |
    | `compute_metrics` | such items | the metrics | |
    | `constant_metrics` | right answers, a constant answer | the metrics of the constant answer | |
    | `load` | a checkpoint, its task.json | a `Learner` | |
    | `linear` | labels | a linear model to compare with | None |
    | `description` | | the options for task.json | |
    | `metrics` | | of each metric, whether more is better | |
    | `for_files` | header names, format, quoting | the same task for such files | |

    Metrics are computed from `per_example`, so the bootstrap needs one forward pass. The first key of `metrics` selects the
    checkpoint. What training has fitted (labels, lengths, the head's name) reaches `load` in `task_json`, the contents of
    task.json.

    `of_words`: a text may be a list of its words. `one_text`: an example may be a single text, as `cloze predict` takes it.
    `writes`: formats that only its predictions have, such as `conll`. `pipeline`: the Hub's name of what its models do.
    `instead_of_text` ends the message that refuses a beam search.
    """

    name: str
    pipeline: ClassVar[str | None] = None
    one_text: ClassVar[bool] = True
    of_words: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()
    instead_of_text: ClassVar[str] = "writes none"
    #: Keys of predictions, other than the names of columns, that repeat what was read.
    repeated: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, bool]:
        """For each metric, whether more is better; the first selects the checkpoint by default."""

    @abstractmethod
    def for_files(self: T, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> T:
        """The same task for files in another format."""

    def with_beam_search(self: T, *, beams: int | None, length_penalty: float | None) -> T:
        """The same task with beam search; a task that writes no text refuses with a `TaskError`."""
        if beams is not None or length_penalty is not None:
            raise TaskError(f"--beams and --length-penalty are for tasks that write a text; {self.name} {self.instead_of_text}.")
        return self

    @abstractmethod
    def read(self, path: Path | str, *, labelled: bool = True) -> Any:
        """The examples of a file; with `labelled=False`, answers are optional."""

    @abstractmethod
    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Learner:
        """The learner for an opened checkpoint; `task_json` is the contents of its task.json."""

    @abstractmethod
    def truth(self, examples: Any, labels: Sequence[str], *, numbered: bool = False) -> Sequence[Any] | NDArray[Any]:
        """The right answer of every example, classes as their numbers among `labels`. `numbered`: a file may have the numbers of
        the labels in their place. Raises a `TaskError` with file and line if an example has no answer or an unknown one."""

    @abstractmethod
    def per_example(self, truth: Any, outputs: Any, labels: Sequence[str]) -> PerExample:
        """What the metrics need, an item per example, from the right answers and the outputs of a model. `compute_metrics` of any
        sample of the items, also with repetitions, gives the metrics of that sample."""

    @abstractmethod
    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics, from the items of `per_example`."""

    @abstractmethod
    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of the constant answer `constant_answer` against the right ones."""

    def linear(self, labels: Sequence[str] = ()) -> LinearTask | None:
        """What a linear model of the task learns, to compare networks with; None if there is no sensible one. Its outputs have
        the form of `Learner.row_outputs`: `--mix-ngrams` pools the two."""
        return None

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The options as task.json keeps them: `columns`, and all other options next to it."""


@dataclass(frozen=True)
class LabelledRow:
    """An example as the network reads it, and its right answer."""

    inputs: Any
    truth: Any


class Learner(nn.Module, ABC):
    """A network and a head that solve a task. `cloze evaluate` and `cloze predict` use it, and runs measure themselves with it.

    | method | input | output | default |
    |---|---|---|---|
    | `encode` | examples | rows as the network reads them | |
    | `truth` | examples with labels | the right answer of each | the task's |
    | `encode_labelled` | examples with labels | `LabelledRow`s | `encode` and the task's `truth` |
    | `row_outputs` | rows | probabilities or numbers of the network | |
    | `mixed_outputs` | examples, rows | the same, mixed with the linear model if there is one | as named |
    | `predictions` | examples, rows, outputs | a `Prediction` per example | |
    | `per_example` | labelled rows | what the metrics need | `row_outputs`, then the task's `per_example` |
    | `compute_metrics` | items of `per_example` | the metrics | the task's |
    | `measure` | labelled rows | the metrics, as in training | `per_example`, then `compute_metrics` |
    | `truth_and_predictions` | items of `per_example` | right answers and predicted ones, to compare them | None |
    | `right` | items of `per_example` | which examples are answered correctly | None |
    | `evaluate` | examples with labels | an `Evaluation` | the same with `mixed_outputs`, a baseline and remarks |
    | `remarks` | examples, rows, outputs, items of `per_example` | sentences on the figures | how many texts were cut |
    | `details` | rows, outputs, items of `per_example` | tables by class for the `Evaluation` | none |
    | `cut_tokens` | a row | how many tokens of it did not fit | `row.cut` |
    | `predict` | examples | predictions | `encode`, `mixed_outputs`, `predictions` |
    | `scored` | examples | each with the probabilities of all labels | a `TaskError` |
    | `network_outputs` | examples | what the network says of them, for a mixture | `row_outputs` if the task has a linear model |
    | `texts_of` | examples | the texts that they are about | none |

    Everything runs in eval mode. A learner is an `nn.Module`, so that network and head change device and mode together.
    `labels` are the classes, None if answers are free; `numbered`: files may give them by their numbers.
    """

    saved_in: tuple[Path, str] | None = None  # its folder, and the name of its task there if the folder has several
    mixture: Mixture | None = None  # with the linear model in that folder
    last_outputs: Any = None  # the `row_outputs` of the rows of the last `per_example`; None if it needed others
    annotated: tuple[str, ...] = ()  # the labelled layers that the training text had

    def __init__(
        self, reader: Reader, head: nn.Module | BoundHead, task: Any, *, length: int | None, labels: Sequence[str] | None = None,
        numbered: bool = False,
    ) -> None:
        super().__init__()
        self.network: nn.Module = reader.network
        self.head: Any = head
        self.objective = head.objective if isinstance(head, BoundHead) else None  # registers parameters
        self.reader, self.task, self.length, self.numbered = reader, task, length, numbered
        self.labels = None if labels is None else tuple(labels)
        self.label_names = self.labels or ()
        name_dropouts(self)

    @abstractmethod
    def encode(self, examples: Any) -> list[Any]:
        """The examples as the network reads them."""

    @abstractmethod
    def row_outputs(self, rows: Sequence[Any], size: int = 64, report: Report = silent) -> Any:
        """What the network says of every row: probabilities (N, C), numbers (N,), or an item of every row."""

    @abstractmethod
    def predictions(self, examples: Any, rows: Sequence[Any], outputs: Any) -> Sequence[Prediction]:
        """The prediction for every example, from its row and the outputs for it."""

    def truth(self, examples: Any) -> Any:
        """The right answers. Raises a `TaskError` if an example has none."""
        return self.task.truth(examples, self.label_names, numbered=self.numbered)

    def encode_labelled(self, examples: Any) -> list[LabelledRow]:
        """The examples as rows with their answers."""
        truth = self.truth(examples)
        return [LabelledRow(*pair) for pair in zip(self.encode(examples), truth, strict=True)]

    def per_example(
        self, rows: Sequence[Any], metric: str | None = None, *, size: int = 64, report: Report = silent
    ) -> PerExample:
        """What the metrics need, an item per row of `encode_labelled`; with `metric`, only what that metric needs. See
        `Task.per_example`."""
        self.last_outputs = self.row_outputs([row.inputs for row in rows], size, report)
        return self.per_example_of(rows, self.last_outputs)

    def per_example_of(self, rows: Sequence[LabelledRow], outputs: Any) -> PerExample:
        """The items of `per_example` for rows with answers, of which the network says `outputs`."""
        per_example: PerExample = self.task.per_example([row.truth for row in rows], outputs, self.label_names)
        return per_example

    def compute_metrics(self, per_example: Any) -> dict[str, float]:
        """The task's metrics from the items of `per_example`."""
        metrics: dict[str, float] = self.task.compute_metrics(per_example, self.label_names)
        return metrics

    def measure(
        self, rows: Sequence[Any], metric: str | None = None, *, size: int = 64, report: Report = silent
    ) -> dict[str, float]:
        """The task's metrics on rows of `encode_labelled`; with `metric`, only those that need no more than it does."""
        return self.compute_metrics(self.per_example(rows, metric, size=size, report=report))

    def network_outputs(self, examples: Any, *, size: int = 64, report: Report = silent) -> Outputs:
        """What the network alone says of examples, in the form of `LinearModel.outputs`."""
        if self.task.linear(self.label_names) is None:
            raise TaskError(
                f"{self.task.name}: its answers cannot be mixed with those of a linear model. Leave --mix-ngrams out."
            )
        return self.row_outputs(self.encode(examples), size, report)

    def mixed_outputs(self, examples: Any, rows: Sequence[Any], size: int, report: Report) -> Any:
        """The outputs for examples and their rows: of the network, or of its mixture with the linear model."""
        outputs = self.row_outputs(rows, size, report)
        return outputs if self.mixture is None else self.mixture.outputs(examples, outputs)

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The right answers and those of the learner, from the items of `per_example`; None if they cannot be compared."""
        return None

    def right(self, per_example: Any) -> NDArray[np.bool_] | None:
        """Which examples are answered correctly (N,), from the items of `per_example`; None if answers are more than that."""
        return None

    def evaluate(
        self, examples: Any, constant_answer: str | None = None, *, size: int = 64, report: Report = silent, outputs: Any = None
    ) -> Evaluation:
        """All metrics on examples with answers, and as a baseline those of the constant answer `constant_answer`. `outputs` are
        those of the examples' rows, if they are known. `cloze.tasks.evaluation.evaluate` adds n-grams, remarks and intervals."""
        rows = self.encode_labelled(examples)
        if outputs is None:
            outputs = self.mixed_outputs(examples, [row.inputs for row in rows], size, report)
        return self._evaluation_of(examples, rows, outputs, self.per_example_of(rows, outputs), constant_answer)

    def _evaluation_of(
        self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: PerExample, constant_answer: str | None
    ) -> Evaluation:
        """The evaluation of examples from `per_example`."""
        return Evaluation(
            len(rows), self.compute_metrics(per_example), self.baseline(constant_answer, examples),
            tuple(self.remarks(examples, rows, outputs, per_example)), per_example=per_example,
            **self.details(rows, outputs, per_example),
        )

    def baseline(self, constant_answer: str | None, examples: Any) -> dict[str, Any] | None:
        """The metrics of the constant answer `constant_answer`; None for None."""
        if constant_answer is None:
            return None
        return {"always": constant_answer, **self.task.constant_metrics(constant_answer, self.truth(examples), self.label_names)}

    def remarks(self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """Sentences on the figures: here how many texts were cut."""
        remark = cut_remark([self.cut_tokens(row.inputs) for row in rows], self.length)
        return [] if remark is None else [remark]

    def cut_tokens(self, row: Any) -> int:
        """How many tokens of a row did not fit."""
        tokens: int = row.cut
        return tokens

    def details(self, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> dict[str, Any]:
        """What an `Evaluation` holds besides metrics: fields by name."""
        return {}

    def predict(self, examples: Any, *, size: int = 64, report: Report = silent) -> Sequence[Prediction]:
        """A prediction for every example, in order; answers in the examples are ignored."""
        rows = self.encode(examples)
        return self.predictions(examples, rows, self.mixed_outputs(examples, rows, size, report))

    def scored(self, examples: Any, *, size: int = 64, report: Report = silent) -> Iterator[dict[str, Any]]:
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


def first_columns(per_example: NDArray[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The first two columns of an array, for tasks whose items of `per_example` begin with the right answer and the predicted
    one (`Learner.truth_and_predictions`)."""
    columns: Any = per_example.T
    return columns[0], columns[1]


def require_head(loaded: Checkpoint, name: str) -> Any:
    """A head of a checkpoint by its name, with its readings bound; a `CheckpointError` if it is missing."""
    if name not in loaded.heads:
        raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    return bind_head(loaded.heads[name], loaded.reads.get(name))


def task(name: str, **arguments: Any) -> Task:
    """A registered task by name, with options; an option of None counts as not given.

    Raises a `TaskError` for an unknown name or option.
    """
    if name not in names("task"):
        raise TaskError(f"unknown task {name!r}. {propose(name, names('task'))}")
    builder = lookup("task", name)
    options = {key: value for key, value in arguments.items() if value is not None}
    for key in options:
        if key not in parameters(builder):
            tasks = [other for other in names("task") if key in parameters(lookup("task", other))]
            if not tasks:
                raise TaskError(f"{name} has no column {key!r}. {propose(key, parameters(builder))}")
            raise TaskError(f"{_option(key)} is for the task {' or '.join(tasks)}, and this one is {name}. Omit {_option(key)}.")
    instance: Task = builder(**options)
    return instance


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def chosen_metric(task: Task, name: str | None) -> str:
    """The metric that selects the epoch: the given one, else the task's first. Raises a
    `TaskError` if it is unknown."""
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


def join_examples(parts: Sequence[Any]) -> Any:
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
