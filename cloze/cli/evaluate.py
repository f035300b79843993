"""`cloze evaluate`: measure a fine-tuned checkpoint on labelled text, or vectors of words on pairs and analogies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cloze.cli.measures import show
from cloze.cli.prompts import Demonstrations, Shots, Template, Verbalise, prompt_of
from cloze.cli.with_files import Annotate, WithFiles

if TYPE_CHECKING:
    from cloze.tasks.bootstrap import Difference
    from cloze.tasks.prompted import Prompt
    from cloze.tasks.task import Evaluation, Learner


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A folder from cloze finetune, or vectors.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="TSV, CSV, JSON lines, Parquet, CoNLL. To compare, name a second folder first.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="The task to use, if the folder has several.")] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text; default: as in training.")] = None,
    text_b: Annotated[str | None, typer.Option("--text-b", help="The column with the second text.")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the label.")] = None,
    template: Template = None,
    verbalise: Verbalise = None,
    shots: Shots = 0,
    demonstrations: Demonstrations = None,
    repair: Annotated[str | None, typer.Option(help="Invalid BIO labels: begin (as conlleval), or drop.")] = None,
    bleu: Annotated[str | None, typer.Option(help="Add BLEU by sacrebleu: 13a, zh, char or intl.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Multi-label: the least probability of a label.")] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Use beam search with this many beams.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="For beam search: above 0 favours long texts.")] = None,
    columns: Annotated[str | None, typer.Option(help="Column names, a,b,c, for files without a header.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="tsv, csv, jsonl, parquet; default: by file name.")] = None,
    quoting: Annotated[str, typer.Option(help="Quotes: auto, none or standard.")] = "auto",
    similarity: Annotated[list[str] | None, typer.Option(help="Vectors: pairs with scores; files, a folder.")] = None,
    analogies: Annotated[list[str] | None, typer.Option(help="Vectors: questions of four words; files, a folder.")] = None,
    method: Annotated[str, typer.Option(help="Analogies: add, or multiply.")] = "add",
    restrict: Annotated[int | None, typer.Option(min=1, help="Analogies: use only the first N words.")] = None,
    unknown: Annotated[str, typer.Option(help="No vector: skip, or zero (wrong).")] = "skip",
    lower: Annotated[bool, typer.Option("--lower", help="Word vectors: look words up in lower case.")] = False,
    facts: Annotated[list[str] | None, typer.Option(help="Masked models: sentences and their objects.")] = None,
    senses: Annotated[list[str] | None, typer.Option(help="Networks of senses: texts, a word and its sense.")] = None,
    no_leaks: Annotated[bool, typer.Option("--no-leaks", help="Facts: not those whose subject names the object.")] = False,
    known: Annotated[list[str] | None, typer.Option(help="Graphs: files of known facts, no wrong answers.")] = None,
    candidates: Annotated[str | None, typer.Option(help="Graphs: wrong entities per fact; default: all, KG-BERT: 100.")] = None,
    graph: Annotated[str | None, typer.Option(help="Graphs: the entities, for networks of texts.")] = None,
    annotate: Annotate = None,
    bootstrap: Annotated[int | None, typer.Option(help="95 % intervals by so many resamples: 1000.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for --bootstrap, --shots.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    with_files: WithFiles = None,
) -> None:
    """Print the metrics of the folder's task on labelled text, next to those of always giving one answer.

    Examples: cloze evaluate SENTIMENT test.tsv --bootstrap 1000; to compare two folders on the same examples:
    cloze evaluate SENTIMENT OTHER test.tsv

    Word vectors: cloze evaluate RUN --similarity PAIRS.txt. Knowledge graphs: cloze evaluate KG test.tsv --task link_prediction
    --known train.tsv,dev.tsv

    Columns of --facts: object and text (with [MASK]), or object, subject and template ([X] … [Y]). Columns of --senses: text,
    word, sense, and start if the word is in the text twice.
    """
    if facts or no_leaks:
        from cloze.cli.facts import evaluate as evaluate_facts

        every = [*(facts or ()), *(files or ())]
        evaluate_facts(checkpoint, every, no_leaks=no_leaks, batch=batch, device=device, as_json=as_json)
        return
    if senses:
        from cloze.cli.senses import evaluate as evaluate_senses

        evaluate_senses(checkpoint, [*senses, *(files or ())], batch=batch, device=device, as_json=as_json)
        return
    if task == "link_prediction":
        from cloze.cli.links import evaluate as evaluate_links

        evaluate_links(
            checkpoint, files or (), known=known or (), candidates=candidates, unknown=unknown, seed=seed, device=device,
            as_json=as_json, graph=graph,
        )
        return
    if similarity or analogies:
        from cloze.cli.vectors import evaluate as evaluate_vectors
        from cloze.cli.vectors import gathered

        pairs, questions = gathered(files or (), similarity or (), analogies or ())
        evaluate_vectors(
            checkpoint, pairs, questions, method=method, restrict=restrict, unknown=unknown, lower=lower, as_json=as_json
        )
        return
    given = _Given(
        task, text, text_b, label, {"repair": repair, "threshold": threshold, "bleu": bleu}, beams, length_penalty,
        columns.split(",") if columns else None, file_format, quoting,
    )
    asked = prompt_of(
        template, verbalise, shots, demonstrations, seed=seed, text=text, text_b=text_b, label=label, task=task, beams=beams,
        length_penalty=length_penalty, **given.options,
    )
    how = _How(asked[0] if asked else None, task, batch, device, bootstrap, seed, annotate or [])
    _evaluate(checkpoint, files or [], given, asked[1] if asked else None, how, as_json=as_json)


class _Given(NamedTuple):
    """What was asked of the files: task, columns, options of the task, search, and how they are written."""

    task: str | None
    text: str | None
    text_b: str | None
    label: str | None
    options: dict[str, Any]
    beams: int | None
    length_penalty: float | None
    columns: list[str] | None
    file_format: str | None
    quoting: str

    def task_of(self, folder: Path, prompted: Any) -> Any:
        """The task of a folder, or that of the prompt."""
        from cloze.corpus.readers.labelled import as_format, as_quoting
        from cloze.tasks.result import task_of

        found = prompted or task_of(
            folder, self.task, text=self.text, text_b=self.text_b, label=self.label, **self.options
        )
        made = found.reading(columns=self.columns, format=as_format(self.file_format), quoting=as_quoting(self.quoting))
        return made.deciding(beams=self.beams, length_penalty=self.length_penalty)


def _evaluate(
    checkpoint: Path, files: list[str], given: _Given, prompted: Any, how: _How, *, as_json: bool
) -> None:
    """Measure one fine-tuned folder on labelled text, or two on the same."""
    from cloze.cli.hints import suggest
    from cloze.tasks.result import is_tuned

    folders = [checkpoint, *(Path(file) for file in files if is_tuned(Path(file)))]
    files = [file for file in files if not is_tuned(Path(file))]
    _check(folders, files)
    tasks = [given.task_of(folder, prompted) for folder in folders]
    examples = [[one.read(file) for file in files] for one in tasks]
    measured = [
        _measured(folder, one, dict(zip(files, own, strict=True)), how)
        for folder, one, own in zip(folders, tasks, examples, strict=True)
    ]
    compared = _compared(measured, files, how) if len(folders) == 2 else {}
    if as_json:
        _print_json(folders, measured, compared)
        return
    for folder, (_, found) in zip(folders, measured, strict=True):
        for file, one in found.items():
            show(f"{folder}: {file}" if len(folders) > 1 else file, one)
    if len(folders) == 1 and prompted is None:
        named = ["--task", given.task] if given.task else []
        suggest("cloze", "predict", checkpoint, files[0], *named, "--out", "predictions.jsonl")
    for file, differences in compared.items():
        print(f"{file}: {folders[1]} - {folders[0]}, on the same {measured[0][1][file].examples} examples")
        _show_differences(differences)


@dataclass(frozen=True)
class _How:
    """How folders are measured: by a `prompt` or as fine-tuned for the task `name`, in batches of `size`, with intervals over so
    many draws (`bootstrap`) by `seed`; `annotate` replaces annotators of the folder."""

    prompt: Prompt | None
    name: str | None
    size: int
    device: str
    bootstrap: int | None
    seed: int
    annotate: list[str]


def _check(folders: list[Path], files: list[str]) -> None:
    """Refuse more folders than two, and no file."""
    from cloze.errors import TaskError

    if len(folders) > 2:
        raise TaskError(f"{len(folders)} fine-tuned folders: expected one, or two to compare.")
    if not files:
        raise TaskError("no file to evaluate on. Give labelled text or, for word vectors, --similarity or --analogies.")


def _measured(folder: Path, task: Any, examples: dict[str, Any], how: _How) -> tuple[Learner, dict[str, Evaluation]]:
    """What learned the task, and how it does on each file."""
    from cloze.assembly.annotating import parse_annotators
    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.progress import Progress
    from cloze.tasks.evaluation import evaluate
    from cloze.tasks.prompted import prompted
    from cloze.tasks.result import load_tuned

    loaded = load_checkpoint(folder, how.device, annotate=parse_annotators(how.annotate))
    learner: Any
    described: dict[str, Any]
    if how.prompt is not None:
        learner, described = prompted(loaded, how.prompt, task), {}
    else:
        learner, described = load_tuned(loaded, task, name=how.name)
    always = (described.get("baseline") or {}).get("always")
    found = {}
    for file, part in examples.items():
        with Progress(len(part), "texts") as progress:
            found[file] = evaluate(
                learner, part, always=always, size=how.size, report=progress, bootstrap=how.bootstrap, seed=how.seed
            )
    return learner, found


def _compared(
    measured: list[tuple[Learner, dict[str, Evaluation]]], files: list[str], how: _How
) -> dict[str, dict[str, Difference]]:
    """By how much the second of two is better on each file."""
    from cloze.tasks.bootstrap import differences

    (one, first), (two, second) = measured
    return {
        file: differences(
            (first[file].judged, one.metrics), (second[file].judged, two.metrics), resamples=how.bootstrap or 1000, seed=how.seed
        )
        for file in files
    }


def _show_differences(differences: Mapping[str, Difference]) -> None:
    for name, difference in differences.items():
        unsure = "" if difference.sure else "  not significant"
        print(f"  {name:<11}  {difference.value:<+8.4f}  [{difference.low:+.4f}, {difference.high:+.4f}]{unsure}")


def _print_json(folders: list[Path], measured: list[Any], compared: dict[str, Any]) -> None:
    import json

    records: list[dict[str, Any]] = [{file: one.record() for file, one in found.items()} for _, found in measured]
    made = records[0]
    if len(folders) == 2:
        made = {str(folder): own for folder, own in zip(folders, records, strict=True)}
        made["difference"] = {
            file: {name: one._asdict() for name, one in own.items()} for file, own in compared.items()
        }
    print(json.dumps(made, indent=2, ensure_ascii=False))
