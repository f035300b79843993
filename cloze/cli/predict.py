"""`cloze predict`: label text with probabilities, or write a text for each text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that cloze finetune wrote.")],
    file: Annotated[str, typer.Argument(help="Text: TSV, CSV or JSON lines; of words CoNLL; also .gz and .xz; - is stdin.")],
    out: Annotated[Path | None, typer.Option(help="A JSON-lines file; none: standard output.")] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text; default: as in training.")] = None,
    text_b: Annotated[str | None, typer.Option("--text-b", help="The column with the second text.")] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Write by a search with this many beams.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Of that search: above 0 favours long texts.")] = None,
    columns: Annotated[str | None, typer.Option(help="Names of the columns, a,b,c, of a file without a header.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="tsv, csv or jsonl; default: by the name.")] = None,
    quoting: Annotated[str, typer.Option(help="auto, none (a quote is a letter) or standard (quotes enclose).")] = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
) -> None:
    """Answer every row of a file: a JSON object per row with label and probabilities, or with the text that was written.

    Example: cloze predict SENTIMENT reviews.csv --out labelled.jsonl
    """
    from cloze.corpus.readers.labelled import as_format, as_quoting
    from cloze.tasks.evaluation import check_predictions
    from cloze.tasks.result import task_of

    if out is not None:
        check_predictions(out)
    task = task_of(checkpoint, text=text, text_b=text_b).reading(
        columns=columns.split(",") if columns else None, format=as_format(file_format), quoting=as_quoting(quoting)
    ).deciding(beams=beams, length_penalty=length_penalty)
    examples = task.read(file, labelled=False)

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.progress import Progress
    from cloze.tasks.evaluation import predict, write_predictions
    from cloze.tasks.result import load_tuned

    learner, _ = load_tuned(load_checkpoint(checkpoint, device), task)
    with Progress(len(examples), "texts") as progress:
        predictions = predict(learner, examples, size=batch, report=progress)
    if out is None:
        write_predictions(predictions, None)
        return
    write_predictions(predictions, out)
    typer.echo(f"{out}: {len(examples)} rows")
