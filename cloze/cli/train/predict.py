"""`cloze predict`: label texts with probabilities, or generate a text for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.hints import note_unfinished
from cloze.cli.options import Annotate, Batch, Columns, Device, Encoding, FileFormat, Items, Length, Precision, Quoting, WithFiles
from cloze.cli.prompts import Demonstrations, Normalise, Shots, TaskPrompt, Template, Verbalise, prompt_of

if TYPE_CHECKING:
    from cloze.checkpoint.loaded import Loaded
    from cloze.tasks.task import Learner, Prediction, Task


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A folder from cloze finetune; with --template, any checkpoint.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, or a file: TSV, CSV, JSON lines, Parquet, CoNLL, .txt (a text per line); - or none: stdin."),
    ] = None,
    out: Annotated[Path | None, typer.Option(
        help="The file: .jsonl, .json, .csv, .tsv, .parquet; words .conll, trees .conllu, runs .run. Default: standard output."
    )] = None,
    written_as: Annotated[str | None, typer.Option("--as", help="The format to write: jsonl, json, csv, tsv, …")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing --out.")] = False,
    task: Annotated[str | None, typer.Option(help="The task to predict, if the folder has several.")] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text; default: as in training.")] = None,
    text_b: Annotated[str | None, typer.Option("--text-b", help="The column with the second text.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write probabilities as soft labels for training.")] = False,
    template: Template = None,
    verbalise: Verbalise = None,
    shots: Shots = 0,
    demonstrations: Demonstrations = None,
    normalise: Normalise = None,
    seed: Annotated[int | None, typer.Option(help="With --shots: seed of the drawn demonstrations; default: 0.")] = None,
    threshold: Annotated[float | None, typer.Option(
        help="With two classes: predict the second if its probability reaches this. With several labels: each label that does."
    )] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Use beam search with this many beams.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="For beam search: above 0 favours long texts.")] = None,
    columns: Columns = None,
    file_format: FileFormat = None,
    quoting: Quoting = "auto",
    annotate: Annotate = None,
    items: Items = None,
    length: Length = None,
    batch: Batch = 64,
    device: Device = "auto",
    precision: Precision = "fp32",
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Label texts, or generate a text for each: one JSON object per text, with label and probabilities or the generated text.

    With --template, any checkpoint that predicts tokens answers a prompt, without fine-tuning.
    Examples: cloze predict SENTIMENT "What a film!"; cloze predict SENTIMENT reviews.csv --out labelled.jsonl. Separate the two
    texts of a pair, or a text and the key of its picture, with a tab.
    """
    from cloze.corpus.readers.labelled import as_format, as_quoting
    from cloze.tasks.prediction_files import check_predictions
    from cloze.tasks.tuned_folder import task_in_folder

    input_format, inputs = as_format(file_format), inputs or []
    task_prompt = prompt_of(
        template, verbalise, shots, demonstrations, seed=seed, text=text, text_b=text_b, label=None, normalise=normalise,
        task=task, threshold=threshold, beams=beams, length_penalty=length_penalty, length=length,
    )
    options = {"text": text, "text_b": text_b, "threshold": threshold}
    chosen_task: Task = task_prompt.task if task_prompt else task_in_folder(checkpoint, task, **options)
    names = columns.split(",") if columns else None
    chosen_task = chosen_task.for_files(columns=names, format=input_format, quoting=as_quoting(quoting))
    chosen_task = chosen_task.with_beam_search(beams=beams, length_penalty=length_penalty)
    output_format = _output_format(out, written_as, chosen_task, scores=scores, threshold=threshold)
    if out is not None:
        check_predictions(out, format=output_format, inputs=inputs, overwrite=overwrite)
    from cloze.decoding.lengths import cut_remark
    from cloze.decoding.progress import DecodingProgress
    from cloze.tasks.prediction_files import TABLES, table_of, write_predictions, write_records

    is_table = input_format is not None or columns is not None
    with _examples(chosen_task, inputs, is_table=is_table) as (examples, file):
        from cloze.checkpoint.annotators import parse_annotators, require_matches
        from cloze.checkpoint.build import load_checkpoint
        from cloze.tasks.pictures import show_pictures

        loaded = load_checkpoint(checkpoint, device, annotate=parse_annotators(annotate or []), precision=precision)
        note_unfinished(checkpoint)
        loaded = show_pictures(loaded, items or [], [examples])
        learner = _learner_of(loaded, task_prompt, chosen_task, name=task, length=length)
        with DecodingProgress(len(examples), "texts") as progress:
            soft_labels = list(learner.scored(examples, size=batch, report=progress)) if scores else []
            predictions = [] if scores else learner.predict(examples, size=batch, report=progress)
        require_matches(loaded.annotations, annotate or [])
        table = table_of(chosen_task, file) if output_format in TABLES else None
    cut = [row.get("cut", 0) for row in soft_labels] + [prediction.cut for prediction in predictions]
    for remark in filter(None, (cut_remark(cut, learner.length), *learner.remarks_on_texts(examples))):
        typer.echo(f"note: {remark}", err=True)
    if scores:
        write_records(soft_labels, out)
        return
    write_predictions(predictions, out, output_format, task=chosen_task, table=table)
    if out:
        typer.echo(f"{out}: {len(predictions)} {_unit_of(predictions)}")


def _learner_of(loaded: Loaded, task_prompt: TaskPrompt | None, task: Task, *, name: str | None, length: int | None) -> Learner:
    """The checkpoint with the prompt, or with its head for the task."""
    from cloze.tasks.kinds.prompted import prompted
    from cloze.tasks.tuned_folder import load_tuned

    if task_prompt is not None:
        return prompted(loaded, task_prompt.prompt, task_prompt.task)
    return load_tuned(loaded, task, name=name, length=length)[0]


def _unit_of(predictions: Sequence[Prediction]) -> str:
    """What is counted: a text of words has several rows or lines."""
    return "texts" if any(prediction.word_rows() is not None for prediction in predictions[:1]) else "rows"


def _output_format(
    out: Path | None, written_as: str | None, task: Task, *, scores: bool, threshold: float | None
) -> str | None:
    """The format of the predictions; None: that of the task, which is JSON lines for most."""
    from cloze.errors import TaskError
    from cloze.tasks.prediction_files import format_of

    if scores and threshold is not None:
        raise TaskError("--threshold decides on labels, and --scores writes probabilities. Leave out one of them.")
    format = format_of(out, written_as, task)
    if scores and format not in (None, "jsonl"):
        raise TaskError(f"--scores writes soft labels as JSON lines, not as {format}. Write them to a name that ends in .jsonl.")
    return format


@contextmanager
def _examples(task: Task, inputs: list[str], *, is_table: bool) -> Iterator[tuple[Any, str | None]]:
    """The examples, and the path of their table; None if texts came as arguments or as lines of a file or of standard input.

    `is_table`: the options describe a table, so that standard input and a .txt file are read as one.
    """
    from cloze.decoding.texts import gather, named_file
    from cloze.tasks.given import columns_of, has_texts, line_examples, stream_file

    inputs = [] if inputs == ["-"] else inputs
    file = named_file(inputs, tables=True)
    if file is None and is_table and not inputs:
        with stream_file(sys.stdin.buffer) as path:
            yield task.read(path, labelled=False), str(path)
    elif file is not None and (is_table or not has_texts(task, file)):
        yield task.read(file, labelled=False), file
    else:
        column = columns_of(task)[0][0]
        lines = inputs if file is None and inputs else gather([], file, field=column, way_out="To read them, add --format jsonl.")
        source = "standard input" if file is None else file
        with line_examples(task, lines, None if lines is inputs else source) as examples:
            yield examples, None
