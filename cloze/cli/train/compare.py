"""`cloze compare`: which recipe is best, on this text, these tasks and this budget?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles
from cloze.runs.options import TRACK, Fit


def command(
    candidates: Annotated[
        list[str] | None, typer.Argument(help="Recipes (names or files), or folders of checkpoints.", show_default=False)
    ] = None,
    tasks: Annotated[list[str] | None, typer.Option(
        "--task", show_default=False, help="NAME=TRAIN,DEV,TEST or NAME=TYPE:TRAIN,DEV,TEST; repeatable."
    )] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the comparison; the same folder resumes or extends it.")] = None,
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Text or a token store to pre-train on.")] = None,
    budgets: Annotated[list[str] | None, typer.Option(
        "--budget", help="What each pre-training run may spend: 20Mtokens, 1e16flops, 10m; several give curves."
    )] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each candidate.")] = 3,
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base or large.")] = None,
    transfer: Annotated[str, typer.Option(help="Ways of fine-tuning, separated by commas: full, frozen, lora=8.")] = "full",
    vary: Annotated[list[str] | None, typer.Option(
        "--vary", help="PATH=VALUE,VALUE: each recipe with each value, such as exercise.mask.rate=0.15,0.3."
    )] = None,
    values: Annotated[list[str] | None, typer.Option("--set", help="Set a value in every recipe that is pre-trained.")] = None,
    tuning: Annotated[list[str] | None, typer.Option(
        "--tune", help="Set a value in the recipes of tasks: training.epochs=3, or mood:corpus.text=review for one task."
    )] = None,
    rates: Annotated[int, typer.Option(help="Peak learning rates to try per candidate, around the fitted one: 1, 3 or 5.")] = 1,
    jobs: Annotated[int, typer.Option(help="How many runs (cells) to do in parallel.")] = 1,
    on: Annotated[str, typer.Option(help="Where cells run: local, ray, ray://HOST:PORT or dask://HOST:PORT.")] = "local",
    tokenizer: Annotated[Path | None, typer.Option(help="One tokenizer for all recipes; default: each trains its own.")] = None,
    text_format: Annotated[str, typer.Option("--format", help="Format of the corpus; default: detected.")] = "auto",
    reach: Annotated[float | None, typer.Option(help="Show the cost of reaching this mean score, such as 0.8.")] = None,
    shared: Annotated[bool, typer.Option("--allow-shared", help="Compare even if the splits of a task share rows.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    no_baselines: Annotated[bool, typer.Option(
        "--no-baselines", help="Do not fit a linear model on n-grams to each task for comparison."
    )] = False,
    track: Annotated[list[str] | None, TRACK] = None,
    fit: Fit = None,
    encoding: Encoding = None,
    with_files: WithFiles = None,
    plan: Annotated[bool, typer.Option("--plan", help="Check everything, print the number of cells, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the score of every run as CSV.")] = False,
) -> None:
    """Pre-train and fine-tune candidates at an equal budget, and report which differences are significant.

    Example: cloze compare bert gpt2 --corpus TEXT --budget 20Mtokens --task mood=train.tsv,dev.tsv,test.tsv --out DIR

    Exit code: 0 if every run (cell) finished, 1 if one failed (the others still finish), 130 or 143 after a signal."""
    from cloze.cli.hints import typed
    from cloze.cli.train.finding import Forms, show
    from cloze.comparison.cell import planned
    from cloze.comparison.compare import finish, require_own
    from cloze.comparison.design import Design, budgets_of, candidates_of, checked, tasks_of, transfers_of
    from cloze.comparison.grid import Grid
    from cloze.comparison.sentence import as_csv, as_data, table
    from cloze.corpus.readers.formats import with_column
    from cloze.errors import UserError
    from cloze.jobs import workers_on

    design = Design(
        candidates_of(candidates or [], vary=vary or [], values=values or []), tasks_of(tasks or []), corpus or [],
        budgets_of(budgets or []), seeds, size, transfers_of(transfer), rates, tuning or [], tokenizer,
        with_column(text_format, None, encoding), device, with_files or [], shared, fit, encoding, not no_baselines,
        track or [],
    )
    if plan:
        if out is not None:
            require_own(out)
        typer.echo("\n".join(planned(Grid(checked(design), out or Path("COMPARE")))))
        return
    if out is None:
        raise UserError("--out is missing: name the folder of the comparison, such as --out COMPARE. (--plan does not need it.)")
    run = partial(
        finish, design, out, workers_on(on, jobs), command=typed(), reach=reach, say=lambda line: typer.echo(line, err=True)
    )
    answer = show(run, Forms(as_data, as_csv, table), out, page="compare.html", as_json=as_json, csv=csv)
    raise typer.Exit(1 if answer.failures else 0)
