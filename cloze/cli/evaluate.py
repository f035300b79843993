"""`cloze evaluate`: measure a fine-tuned checkpoint on labelled text, or vectors of words on pairs and analogies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that cloze finetune wrote; of words, also a file of vectors.")],
    files: Annotated[list[str] | None, typer.Argument(help="Labelled text: TSV, CSV, JSON lines; of words CoNLL.")] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text; default: as in training.")] = None,
    text_b: Annotated[str | None, typer.Option("--text-b", help="The column with the second text.")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the label.")] = None,
    target: Annotated[str | None, typer.Option(help="The column with the text to write.")] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Write by a search with this many beams.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Of that search: above 0 favours long texts.")] = None,
    columns: Annotated[str | None, typer.Option(help="Names of the columns, a,b,c, of files without a header.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="tsv, csv or jsonl; default: by the name.")] = None,
    quoting: Annotated[str, typer.Option(help="auto, none (a quote is a letter) or standard (quotes enclose).")] = "auto",
    similarity: Annotated[list[str] | None, typer.Option(help="Of words: pairs with scores; files or a folder.")] = None,
    analogies: Annotated[list[str] | None, typer.Option(help="Of words: questions of four words; files or a folder.")] = None,
    method: Annotated[str, typer.Option(help="Of analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
    restrict: Annotated[int | None, typer.Option(min=1, help="Of analogies: the first N words only.")] = None,
    unknown: Annotated[str, typer.Option(help="Words without a vector: skip, or zero: count as cosine 0, as wrong.")] = "skip",
    lower: Annotated[bool, typer.Option("--lower", help="Of words: look them up in lower case.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure accuracy, macro-F1 and the Matthews correlation, or of texts loss, exact match, F1 over words and ROUGE.

    Example: cloze evaluate SENTIMENT test.tsv

    Vectors of words: Spearman's correlation with people's scores, and analogies by section, both with their coverage.
    Example: cloze evaluate RUN --similarity wordsim/*.txt
    """
    if similarity or analogies:
        from cloze.cli.vectors import evaluate as evaluate_vectors
        from cloze.cli.vectors import gathered

        pairs, questions = gathered(files or (), similarity or (), analogies or ())
        evaluate_vectors(
            checkpoint, pairs, questions, method=method, restrict=restrict, unknown=unknown, lower=lower, as_json=as_json
        )
        return
    if not files:
        from cloze.errors import TaskError

        raise TaskError("no file to measure on. Give labelled text, or for vectors of words --similarity or --analogies.")
    from cloze.corpus.readers.labelled import as_format, as_quoting
    from cloze.tasks.result import task_of

    task = task_of(checkpoint, text=text, text_b=text_b, label=label, target=target).reading(
        columns=columns.split(",") if columns else None, format=as_format(file_format), quoting=as_quoting(quoting)
    ).deciding(beams=beams, length_penalty=length_penalty)
    examples = [task.read(file) for file in files]

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.progress import Progress
    from cloze.tasks.evaluation import evaluate
    from cloze.tasks.result import load_tuned

    learner, described = load_tuned(load_checkpoint(checkpoint, device), task)
    always = (described.get("baseline") or {}).get("always")
    found = {}
    for file, part in zip(files, examples, strict=True):
        with Progress(len(part), "texts") as progress:
            found[file] = evaluate(learner, part, always=always, size=batch, report=progress)
    if as_json:
        import json

        print(json.dumps({file: one.record() for file, one in found.items()}, indent=2, ensure_ascii=False))
        return
    for file, one in found.items():
        print(f"{file}: {one.examples} examples")
        shown = f"always {one.baseline['always'][:40]!r}" if one.baseline else ""
        print(f"  {'':<11}  {'':<8}{shown}")
        for name, value in one.metrics.items():
            beside = f"{one.baseline[name]:.4f}" if one.baseline and name in one.baseline else ""
            print(f"  {name:<11}  {value:<8.4f}{beside}")
        for remark in one.remarks:
            print(f"  note: {remark}")
