"""What every probe is: options, files that are read once, figures of one checkpoint, and a finding about all of them.

`cloze probe --help` imports every probe, so this module and those in `kinds` import numpy and torch only in functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

import typer

from cloze import registry
from cloze.errors import UserError
from cloze.probes.finding import Finding, HeatMap, Plot, Subject, Table

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.losses import LossExamples

Material = TypeVar("Material")
Figures = TypeVar("Figures")


@dataclass(frozen=True, kw_only=True)
class Probe(ABC, Generic[Material, Figures]):
    """A probe. Its fields are its options, annotated for typer; the first line of its docstring is its line of help.

    `run` calls `read` once and `measure` for every checkpoint, then builds a `Finding` from the figures.

    Attributes:
        sentences: How many sentences of each file it reads unless `most` says otherwise.
        needs: Options that change nothing without another one, by their names.
    """

    sentences: ClassVar[int]
    needs: ClassVar[Mapping[str, str]] = {}

    most: Annotated[int | None, typer.Option(min=2, help="Read at most this many sentences of each file")] = None
    seed: Annotated[int, typer.Option(help="Seed of samples and controls.")] = 0
    length: Annotated[int | None, typer.Option(min=2, help="Cut texts to this many tokens.")] = None
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 32

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of the page, often a question that the figures answer; a class attribute if no option changes it."""

    @abstractmethod
    def read(self) -> Material:
        """The contents of the files that its options name. A `UserError` if one is missing; no checkpoint has been opened yet."""

    @abstractmethod
    def measure(self, loaded: Checkpoint, material: Material) -> Figures:
        """The figures of one checkpoint. A `UserError` if its network cannot be measured: it may lack attention, or states by
        layer (`word_states` and `row_states` then raise it)."""

    @abstractmethod
    def tables(self, name: str, figures: Figures) -> list[Table]:
        """The tables about the checkpoint of this name."""

    @abstractmethod
    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Figures]) -> Sequence[Plot | HeatMap]:
        """What to draw, from the figures of all checkpoints by name."""

    def data(self, figures: Figures) -> Mapping[str, Any]:
        """The figures as JSON has them, arrays included: by default, their attributes."""
        return dict(vars(figures))

    def remarks(self, figures: Figures) -> Sequence[str]:
        """What to know about the figures of one checkpoint."""
        return ()

    def finding(self, subjects: Sequence[Subject], results: Mapping[str, Figures]) -> Finding:
        """The tables, lines and data of all checkpoints."""
        return Finding(
            self.name, self.title, [table for name, figures in results.items() for table in self.tables(name, figures)],
            self.plots(subjects, results), {name: self.data(figures) for name, figures in results.items()},
            [f"{name}: {remark}" for name, figures in results.items() for remark in self.remarks(figures)],
        )

    def run(self, subjects: Sequence[Subject], load: Callable[[Subject], Checkpoint]) -> Finding:
        """Read the files, then load and measure one checkpoint after the other."""
        material = self.read()
        return self.finding(subjects, {subject.name: self.measure(load(subject), material) for subject in subjects})

    @property
    def name(self) -> str:
        """The name that it is registered under."""
        return next(name for name in registry.names("probe") if registry.lookup("probe", name) is type(self))

    @property
    def limit(self) -> int:
        """How many sentences of each file are read."""
        return self.most or self.sentences


@dataclass(frozen=True, kw_only=True)
class TextProbe(Probe[Material, Figures]):
    """A probe of running text. `read` begins with its `texts`."""

    text: Annotated[str | None, typer.Option(help="a file with a sentence per line")] = None

    def texts(self, otherwise: str = "") -> list[str]:
        """The sentences of --text; without it a `UserError`, which also says what else may be given."""
        if self.text is None:
            raise UserError(f"{self.name} needs --text FILE, a file with a sentence per line{otherwise}.")
        return self.sentences_of(self.text)

    def sentences_of(self, file: str) -> list[str]:
        """The first sentences of a file."""
        from cloze.decoding.texts import gather

        return [text for text in gather([], file) if text.strip()][: self.limit]


@dataclass(frozen=True, kw_only=True)
class LossProbe(TextProbe[list[str], Figures]):
    """A probe of the loss on plain text, or on the labelled text of a fine-tuned checkpoint."""

    task: Annotated[str | None, typer.Option(help="[NAME=]FILE with labelled text, for a fine-tuned folder")] = None

    def read(self) -> list[str]:
        """The sentences of --text; none with --task, which each checkpoint reads in its own way."""
        if self.task is None:
            return self.texts(", or, for a fine-tuned folder, --task FILE with labelled text")
        if self.text is not None:
            raise UserError(f"{self.name} measures plain text (--text) or labelled text (--task). Give one of them.")
        return []

    def examples(
        self, loaded: Checkpoint, texts: Sequence[str], task: str | None, rows: int | None = None, **measuring: Any
    ) -> LossExamples:
        """The sentences, or the labelled rows of `task`, at most so many `rows`, with a loss each; see `task_examples`."""
        from cloze.probes.losses import task_examples, text_examples

        if task is None:
            return text_examples(loaded, texts, seed=self.seed, length=self.length)
        return task_examples(loaded, task, most=rows, length=self.length, **measuring)


@dataclass(frozen=True, kw_only=True)
class TrainTestProbe(Probe[tuple[Material, Material], Figures]):
    """A probe that is trained on one labelled file and tested on another.

    Attributes:
        form: How --task names them, in words. A subclass with another form also declares `task` again, whose help it is.
        with_name: Whether a name and `=` stand before the files.
    """

    form: ClassVar[str] = "TRAIN,TEST"
    with_name: ClassVar[bool] = False

    task: Annotated[str | None, typer.Option(help=form)] = None

    @abstractmethod
    def read_file(self, path: str) -> Material:
        """The labelled words of one file."""

    def read(self) -> tuple[Material, Material]:
        """Both files; a `UserError` if --task does not have its form."""
        from cloze.corpus.readers.text_files import require_files

        name, _, files = (self.task or "").rpartition("=")
        paths = [path for path in files.split(",") if path]
        if len(paths) != 2 or bool(name) != self.with_name:
            argument = "nothing" if self.task is None else repr(self.task)
            raise UserError(f"{self.name}: expected --task {self.form}, got {argument}.")
        require_files(paths)
        return self.read_file(paths[0]), self.read_file(paths[1])
