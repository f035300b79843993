"""`cloze evaluate`: measure a checkpoint on labelled text, word vectors on pairs, a graph on facts. Each is a mode."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from cloze.cli.hints import note_unfinished, suggest
from cloze.cli.modes import Mode, mode_of, takes_options_of
from cloze.cli.options import (
    Annotate,
    AsJson,
    Batch,
    Columns,
    Device,
    Encoding,
    FileFormat,
    Items,
    Length,
    Precision,
    Quoting,
    Seed,
    Task,
    WithFiles,
)
from cloze.cli.prompts import Demonstrations, Normalise, Shots, TaskPrompt, Template, Verbalise, prompt_of
from cloze.cli.train.entity_linking import TASK as LINKING
from cloze.cli.train.entity_linking import EntityLinkingMode
from cloze.cli.train.facts import FactsMode
from cloze.cli.train.links import LINK_TASKS, LinksMode
from cloze.cli.train.measures import show
from cloze.cli.train.pictures import PicturesMode
from cloze.cli.train.senses import SensesMode
from cloze.cli.vectors import WordVectorsMode
from cloze.errors import UserError
from cloze.runs.options import words_of

if TYPE_CHECKING:
    from cloze.tasks.bootstrap import PairedDifference
    from cloze.tasks.task import Evaluation, Learner


@dataclass(frozen=True, kw_only=True)
class LabelledMode(Mode):
    """Measure on labelled text, with a constant answer as baseline: what a fine-tuned folder and a prompt share."""

    text: Annotated[str | None, typer.Option(help="The column with the text; default: as in training.")] = None
    text_b: Annotated[str | None, typer.Option("--text-b", help="The column with the second text.")] = None
    label: Annotated[str | None, typer.Option(help="The column with the label.")] = None
    columns: Columns = None
    file_format: FileFormat = None
    quoting: Quoting = "auto"
    encoding: Encoding = None
    annotate: Annotate = None
    items: Items = None
    bootstrap: Annotated[int | None, typer.Option(help="95 % intervals from this many resamples: 1000.")] = None
    seed: Seed = None
    batch: Batch = 64
    device: Device = "auto"
    precision: Precision = "fp32"
    page: Annotated[Path | None, typer.Option(help="Also write the report as an HTML page.")] = None
    as_json: AsJson = False

    def run(self, checkpoint: Path, files: list[str]) -> None:
        """Measure one folder on labelled text, or two on the same."""
        from cloze.tasks.tuned_folder import is_model_folder

        if self.page is not None:
            from cloze.reports.evaluation import check_page

            check_page(self.page)

        folders = [checkpoint, *(Path(file) for file in files if is_model_folder(Path(file)))]
        files = [file for file in files if not is_model_folder(Path(file))]
        _check(folders, files)
        self.check_seed(drawn=self.bootstrap is not None or len(folders) == 2)
        tasks = [self.reading(self.task_of(folder)) for folder in folders]
        examples = [[task.read(file) for file in files] for task in tasks]
        measured = [
            self._measured(folder, task, dict(zip(files, parts, strict=True)))
            for folder, task, parts in zip(folders, tasks, examples, strict=True)
        ]
        self._note_training_rows(folders, files)
        compared = self._compared(measured, files) if len(folders) == 2 else {}
        both_right = _both_right(measured, files) if len(folders) == 2 else {}
        if self.page is not None:
            _write_page(self.page, folders, [evaluations for _, evaluations in measured])
        if self.as_json:
            _print_json(folders, measured, compared, both_right)
            return
        for folder, (_, evaluations) in zip(folders, measured, strict=True):
            for file, evaluation in evaluations.items():
                show(f"{folder}: {file}" if len(folders) > 1 else file, evaluation)
        if len(folders) == 1:
            self.suggest(checkpoint, files[0])
        for file, differences in compared.items():
            print(f"{file}: {folders[1]} - {folders[0]}, on the same {measured[0][1][file].examples} examples")
            _show_differences(differences)
            if file in both_right:
                print(f"  both right   {both_right[file]:.4f}   the share of rows that both answer correctly")

    def _note_training_rows(self, folders: list[Path], files: list[str]) -> None:
        """Say which files have rows that a model is trained on."""
        from cloze.runs.finetuning.leakage import shared_row_note

        how: dict[str, Any] = {
            "task": getattr(self, "task", None), **self._file_options(), "text": self.text, "text_b": self.text_b,
            "label": self.label,
        }  # fmt: skip
        for line in (shared_row_note(folder, file, **how) for folder in folders for file in files):
            if line:
                typer.echo(line, err=True)

    def reading(self, task: Any) -> Any:
        """The task as its files are written."""
        how = self._file_options()
        return task.for_files(columns=how["names"], format=how["format"], quoting=how["quoting"])

    def _file_options(self) -> dict[str, Any]:
        """How the files are written."""
        from cloze.corpus.readers.labelled import as_format, as_quoting

        names = self.columns.split(",") if self.columns else None
        return {"names": names, "format": as_format(self.file_format), "quoting": as_quoting(self.quoting)}

    def check_seed(self, *, drawn: bool) -> None:
        """Refuse a seed where nothing is drawn at random."""
        if self.seed is not None and not drawn:
            raise UserError(
                f"--seed {self.seed}: nothing is drawn at random. Omit it, or ask for intervals: --bootstrap 1000"
            )

    @abstractmethod
    def task_of(self, folder: Path) -> Any:
        """The task that a folder is measured on."""

    @abstractmethod
    def learner(self, loaded: Any, task: Any) -> tuple[Any, Mapping[str, Any]]:
        """What solves the task, and the contents of task.json."""

    def suggest(self, checkpoint: Path, file: str) -> None:
        """Print the next command."""

    def _measured(self, folder: Path, task: Any, examples: dict[str, Any]) -> tuple[Learner, dict[str, Evaluation]]:
        """What learned the task, and how it does on each file."""
        from cloze.checkpoint.annotators import parse_annotators, require_matches
        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress
        from cloze.tasks.evaluation import evaluate
        from cloze.tasks.pictures import show_pictures
        from cloze.tasks.task_json import constant_answer_of

        loaded = load_checkpoint(
            folder, self.device, annotate=parse_annotators(self.annotate or []), precision=self.precision
        )
        note_unfinished(folder)
        loaded = show_pictures(loaded, self.items or [], list(examples.values()))
        learner, task_json = self.learner(loaded, task)
        evaluations = {}
        for file, part in examples.items():
            with DecodingProgress(len(part), "texts") as progress:
                evaluations[file] = evaluate(
                    learner, part, constant_answer=constant_answer_of(task_json), size=self.batch, report=progress,
                    bootstrap=self.bootstrap, seed=self.seed or 0,
                )
        require_matches(loaded.annotations, self.annotate or [])
        return learner, evaluations

    def _compared(
        self, measured: list[tuple[Learner, dict[str, Evaluation]]], files: list[str]
    ) -> dict[str, dict[str, PairedDifference]]:
        """By how much the second of two is better on each file."""
        from cloze.tasks.bootstrap import differences

        (first_learner, first), (second_learner, second) = measured
        return {
            file: differences(
                (first[file].per_example, first_learner.compute_metrics),
                (second[file].per_example, second_learner.compute_metrics),
                resamples=self.bootstrap or 1000, seed=self.seed or 0,
            )
            for file in files
        }


@dataclass(frozen=True, kw_only=True)
class FinetunedMode(LabelledMode):
    """A fine-tuned folder."""

    purpose: ClassVar[str] = "a fine-tuned folder"

    task: Task = None
    repair: Annotated[str | None, typer.Option(help="Invalid BIO labels: begin (as conlleval), or drop.")] = None
    bleu: Annotated[str | None, typer.Option(help="Add BLEU by sacrebleu: 13a, zh, char or intl.")] = None
    threshold: Annotated[float | None, typer.Option(help="Least probability of a class, of two the second.")] = None
    at: Annotated[str | None, typer.Option(help="Add precision and recall at k: 1,5.")] = None
    beams: Annotated[int | None, typer.Option(min=1, help="Use beam search with this many beams.")] = None
    length_penalty: Annotated[float | None, typer.Option(help="For beam search: above 0 favours long texts.")] = None
    length: Length = None

    def task_of(self, folder: Path) -> Any:
        """The task of a folder, with the options in place of its own."""
        from cloze.tasks.tuned_folder import task_in_folder

        if self.task is not None:
            _require_task(folder, self.task)
        options = {"repair": self.repair, "threshold": self.threshold, "bleu": self.bleu, "at": _ks(self.at)}
        task = task_in_folder(folder, self.task, text=self.text, text_b=self.text_b, label=self.label, **options)
        return task.with_beam_search(beams=self.beams, length_penalty=self.length_penalty)

    def learner(self, loaded: Any, task: Any) -> tuple[Any, Mapping[str, Any]]:
        """The network with its head, and the contents of task.json."""
        from cloze.tasks.tuned_folder import load_tuned

        return load_tuned(loaded, task, name=self.task, length=self.length)

    def suggest(self, checkpoint: Path, file: str) -> None:
        """Print the command that labels texts."""
        words = words_of(self, "task", "text", "text_b", "columns", "file_format", "quoting", "encoding")
        suggest("cloze", "predict", checkpoint, file, *words, "--out", "predictions.jsonl")


@dataclass(frozen=True, kw_only=True)
class PromptedMode(LabelledMode):
    """Any checkpoint that predicts tokens, asked by a prompt."""

    purpose: ClassVar[str] = "a prompt"
    how: ClassVar[str] = "--template TEXT"

    template: Template = None
    verbalise: Verbalise = None
    shots: Shots = 0
    demonstrations: Demonstrations = None
    normalise: Normalise = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether any part of a prompt is given."""
        return any(options[name] for name in ("template", "verbalise", "shots", "demonstrations", "normalise"))

    def check_seed(self, *, drawn: bool) -> None:
        """Demonstrations are drawn, too."""
        super().check_seed(drawn=drawn or bool(self.shots))

    def task_prompt(self) -> TaskPrompt:
        """The prompt, and the task that reads its files."""
        prompt = prompt_of(
            self.template, self.verbalise, self.shots, self.demonstrations, seed=self.seed if self.shots else None,
            text=self.text, text_b=self.text_b, label=self.label, normalise=self.normalise,
        )
        assert prompt is not None  # without a template there is an error
        return prompt

    def task_of(self, folder: Path) -> Any:
        """The classes of the prompt; the same for any folder."""
        return self.task_prompt().task

    def learner(self, loaded: Any, task: Any) -> tuple[Any, Mapping[str, Any]]:
        """The language model with the prompt."""
        from cloze.tasks.kinds.prompted import prompted

        return prompted(loaded, self.task_prompt().prompt, task), {}


def _require_task(folder: Path, name: str) -> None:
    """A `TaskError` with the nearest names if a folder that was not fine-tuned is to be measured on a task that no mode has."""
    from cloze.errors import TaskError, propose
    from cloze.registry import names
    from cloze.tasks.tuned_folder import find_task_json

    task_names = {*names("task"), *LINK_TASKS, LINKING}
    if name not in task_names and folder.is_dir() and find_task_json(folder) is None:
        raise TaskError(f"--task {name}: unknown task. {propose(name, task_names)}")


MODES: tuple[
    type[FactsMode | SensesMode | LinksMode | EntityLinkingMode | PicturesMode | WordVectorsMode | LabelledMode], ...
] = (
    FactsMode, SensesMode, LinksMode, EntityLinkingMode, PicturesMode, WordVectorsMode, PromptedMode, FinetunedMode,
)


@takes_options_of(*MODES)
def command(
    context: typer.Context,
    checkpoint: Annotated[Path, typer.Argument(help="A fine-tuned folder, or word vectors.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="Labelled text; to compare, first a second folder.")
    ] = None,
    with_files: WithFiles = None,
    **options: Any,
) -> None:
    """Measure a checkpoint on labelled text. Example: cloze evaluate MINE test.tsv"""
    from cloze.training.schedule.untrained import require_trained

    require_trained(checkpoint)
    mode_of(MODES, context, options).run(checkpoint, files or [])


def _write_page(page: Path, folders: list[Path], measured: list[dict[str, Evaluation]]) -> None:
    """Write what was measured of one folder or of two as a page."""
    from cloze.reports.evaluation import write_page

    several = len(folders) > 1
    descriptions = {
        (f"{folder}: {file}" if several else file): evaluation
        for folder, evaluations in zip(folders, measured, strict=True) for file, evaluation in evaluations.items()
    }
    title = " and ".join(folder.resolve().name for folder in folders)
    write_page(descriptions, page, title=title, command=" ".join(["cloze evaluate", *map(str, folders), *measured[0]]))
    typer.echo(f"page: {page}", err=True)


def _ks(text: str | None) -> list[int] | None:
    """The numbers of `--at`."""
    try:
        return None if text is None else [int(k) for k in text.split(",")]
    except ValueError:
        raise UserError(f"--at {text}: expected whole numbers from 1 on, such as 1,5.") from None


def _check(folders: list[Path], files: list[str]) -> None:
    """Refuse more folders than two, no file, and a file that does not exist."""
    from cloze.corpus.readers.text_files import require_files
    from cloze.errors import TaskError

    if len(folders) > 2:
        raise TaskError(f"{len(folders)} folders of models: expected one, or two to compare.")
    if not files:
        raise TaskError("no file to evaluate on. Give labelled text or, for word vectors, --similarity or --analogies.")
    require_files(files)


def _show_differences(differences: Mapping[str, PairedDifference]) -> None:
    width = max(map(len, differences), default=0)
    for name, difference in differences.items():
        unsure = "" if difference.sure else "  not significant"
        value, low, high = map(_signed, (difference.value, difference.low, difference.high))
        print(f"  {name:<{max(width, 11)}}  {value:<8}  [{low}, {high}]{unsure}")


def _signed(value: float) -> str:
    from cloze.html_parts import metric_text

    return ("" if value < 0 else "+") + metric_text(value)


def _both_right(measured: list[tuple[Learner, dict[str, Evaluation]]], files: list[str]) -> dict[str, float]:
    """The share of the rows of each file that both folders answer correctly, where an answer is right or wrong."""
    from cloze.tasks.bootstrap import both_right

    shares: dict[str, float] = {}
    for file in files:
        share = both_right(*(learner.right(evaluations[file].per_example) for learner, evaluations in measured))
        shares |= {} if share is None else {file: share}
    return shares


def _print_json(folders: list[Path], measured: list[Any], compared: dict[str, Any], both_right: dict[str, float]) -> None:
    import json

    records: list[dict[str, Any]] = [
        {file: evaluation.record() for file, evaluation in evaluations.items()} for _, evaluations in measured
    ]
    output = records[0]
    if len(folders) == 2:
        output = {str(folder): record for folder, record in zip(folders, records, strict=True)}
        output["difference"] = {
            file: {name: delta._asdict() for name, delta in differences.items()} for file, differences in compared.items()
        }
        output |= {"both_right": both_right} if both_right else {}
    print(json.dumps(output, indent=2, ensure_ascii=False))
