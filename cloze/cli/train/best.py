"""`cloze best`: which model is best for this text and these few labels?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles


def command(
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Your text without labels; repeatable.")] = None,
    train: Annotated[list[str] | None, typer.Option("--train", help="A table of labelled rows; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the comparison; the same folder resumes it.")] = None,
    test: Annotated[str | None, typer.Option(help="A table of labelled rows that nothing learns from.")] = None,
    unlabelled: Annotated[list[str] | None, typer.Option(
        "--unlabelled", help="A table of texts like the rows, without labels; default: those in the corpus."
    )] = None,
    task: Annotated[str, typer.Option(help="A task on texts, pairs, words or choices.")] = "sentence_classification",
    models: Annotated[list[Path] | None, typer.Option("--from", help="A folder of a model to compare with; repeatable.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for the best model.")] = None,
    budget: Annotated[str, typer.Option(help="What each run of pre-training may spend: 10m, 5Mtokens.")] = "2m",
    size: Annotated[str, typer.Option(help="The size of quick: tiny, mini, small, medium, base or large.")] = "tiny",
    values: Annotated[list[str] | None, typer.Option(
        "--set", help="Set a value in the recipe of the task, such as corpus.text=review."
    )] = None,
    text_format: Annotated[str, typer.Option("--format", help="Format of the corpus; default: detected.")] = "auto",
    jobs: Annotated[int, typer.Option(help="How many runs (cells) to do in parallel.")] = 1,
    on: Annotated[str, typer.Option(help="Where cells run: local, ray, ray://HOST:PORT or dask://HOST:PORT.")] = "local",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    encoding: Encoding = None,
    with_files: WithFiles = None,
    plan: Annotated[bool, typer.Option(
        "--plan", help="Check everything, print the number of cells and how far the text is from each model, and stop."
    )] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
) -> None:
    """Find the best model for your text and a few labels, say how sure that is, and keep it.

    Example: cloze best --corpus TEXT --train labelled.tsv --keep MODEL --out DIR

    Cross-validates linear models on n-grams (with and without unlabelled text), fastText, word vectors, quick pre-trained on your
    text, and the models of --from. The best network is then fine-tuned, also on unlabelled texts with pseudo-labels.

    Exit code: 0 if every run (cell) finished, 1 if one failed (the others still finish), 130 or 143 after a signal."""
    from cloze.cli.hints import typed
    from cloze.comparison.best.best import answer, plan_of
    from cloze.comparison.best.question import BestQuestion
    from cloze.comparison.best.verdict import as_data, as_text
    from cloze.comparison.compare import Interrupted
    from cloze.corpus.readers.formats import with_column
    from cloze.errors import UserError
    from cloze.jobs import workers_on

    for option, value in (("--train", train), ("--out", out)):
        if not value:
            raise UserError(f"{option} is missing. Example: cloze best --corpus TEXT --train labelled.tsv --out DIR")
    assert train is not None and out is not None
    question = BestQuestion(
        task, train, test, corpus or [], unlabelled or [], models or [], budget, size, values or [],
        with_column(text_format, None, encoding), device, encoding, with_files or [],
    )  # fmt: skip
    workers = workers_on(on, jobs)
    if plan:
        typer.echo("\n".join(plan_of(question, out, workers, keep=keep)))
        return
    try:
        verdict, page = answer(
            question, out, workers, keep=keep, command=typed(), say=lambda line: typer.echo(line, err=True)
        )
    except Interrupted as stopped:
        typer.echo(f"Stopped. Finished cells are kept in {out}. To resume, repeat the command.", err=True)
        raise typer.Exit(stopped.code) from None
    typer.echo(json.dumps(as_data(verdict), ensure_ascii=False, indent=2) if as_json else as_text(verdict))
    typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)
    raise typer.Exit(1 if verdict.failures else 0)
