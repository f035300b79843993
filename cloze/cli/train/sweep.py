"""`cloze sweep`: which values of a recipe are best, for a part of the cost of trying all of them to the end?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, WithFiles
from cloze.runs.options import TRACK, Fit


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe: a name (see `cloze list`) or a file.")],
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Text or a token store to pre-train on.")] = None,
    vary: Annotated[list[str] | None, typer.Option(
        "--vary", help="PATH=A,B or PATH=LOW..HIGH or PATH=log:LOW..HIGH, such as training.rate.peak=log:1e-4..3e-3; repeatable."
    )] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the sweep; the same command resumes it.")] = None,
    tasks: Annotated[list[str] | None, typer.Option(
        "--task", show_default=False, help="NAME=TRAIN,DEV,TEST or NAME=TYPE:TRAIN,DEV,TEST: decides at the end; repeatable."
    )] = None,
    budget: Annotated[str | None, typer.Option(help="The full budget of a trial: 20Mtokens, 1e16flops, 10m.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials; default of --search grid: all points.")] = None,
    rungs: Annotated[str, typer.Option(help="Shares of the budget at which the worst trials stop.")] = "0.1,0.3,1",
    keep: Annotated[str, typer.Option(help="The share of the trials that continues at each rung.")] = "1/3",
    search: Annotated[str, typer.Option(help="grid, random or optuna.")] = "random",
    seeds: Annotated[int, typer.Option(help="Runs of each trial that reaches the end.")] = 1,
    search_seed: Annotated[int, typer.Option("--search-seed", help="Seed of the search.")] = 0,
    size: Annotated[str | None, typer.Option(help="Rescale networks: tiny, mini, small, medium, base, large.")] = None,
    values: Annotated[list[str] | None, typer.Option("--set", help="Set a value in every trial.")] = None,
    jobs: Annotated[int, typer.Option(help="How many runs (cells) to do in parallel.")] = 1,
    on: Annotated[str, typer.Option(help="Where cells run: local, ray, ray://HOST:PORT or dask://HOST:PORT.")] = "local",
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer; default: train one.")] = None,
    text_format: Annotated[str, typer.Option("--format", help="Format of the corpus; default: detected.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    track: Annotated[list[str] | None, TRACK] = None,
    fit: Fit = None,
    encoding: Encoding = None,
    with_files: WithFiles = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Check everything, print the first trials, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print every trial and rung as CSV.")] = False,
) -> None:
    """Try many values of a recipe, and stop the worst trials early (successive halving).

    All trials train to the first rung, a share of the budget; the best third continues to the next rung, and so on. The best
    trial is the one with the lowest held-out loss at the end. With --task, the trials that reach the end are fine-tuned, and the
    scores on dev sets decide.

    Example: cloze sweep bert --size tiny --corpus TEXT --budget 20Mtokens --vary training.rate.peak=log:1e-4..3e-3 --trials 16
    --out SWEEP

    Exit code: 0 if a trial reached the end, 1 if all failed, 130 or 143 after a signal."""
    from cloze.cli.hints import typed
    from cloze.cli.train.finding import Forms, show
    from cloze.comparison.cell import planned
    from cloze.comparison.compare import require_own
    from cloze.comparison.design import Design, budgets_of, tasks_of
    from cloze.comparison.search import search_of
    from cloze.comparison.space import space_of
    from cloze.comparison.standings import SweepFinding, as_csv, table
    from cloze.comparison.sweep import Rungs, Sweep, checked_sweep, keep_of, rungs_of
    from cloze.comparison.sweep_page import finish
    from cloze.corpus.readers.formats import with_column
    from cloze.errors import UserError
    from cloze.jobs import workers_on

    space = space_of(vary or [])
    design = Design(
        [], tasks_of(tasks) if tasks else [], corpus or [], budgets_of([] if budget is None else [budget]), seeds, size,
        tokenizer=tokenizer, text_format=with_column(text_format, None, encoding), device=device,
        with_files=with_files or [], fit=fit, encoding=encoding, track=track or [],
    )
    sweep = Sweep(
        recipe, design, space, search_of(search, space, trials, search_seed), rungs_of(rungs), keep_of(keep), values or []
    )
    if plan:
        if out is not None:
            require_own(out)
        rungs_there = Rungs(checked_sweep(sweep), out or Path("SWEEP"))
        lines = planned(rungs_there)  # it also draws the trials
        typer.echo("\n".join([*(" ".join(trial.values) for trial in rungs_there.trials), *lines]))
        return
    if out is None:
        raise UserError("--out is missing: name the folder of the sweep, such as --out SWEEP. (--plan does not need it.)")
    run = partial(finish, sweep, out, workers_on(on, jobs), command=typed(), say=lambda line: typer.echo(line, err=True))
    finding = show(run, Forms(SweepFinding.data, as_csv, table), out, page="sweep.html", as_json=as_json, csv=csv)
    raise typer.Exit(0 if finding.best is not None else 1)
