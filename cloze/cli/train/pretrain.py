"""`cloze pretrain`: the main job."""

from __future__ import annotations

from typing import Annotated

import typer

from cloze.cli.options import with_options
from cloze.runs.options import PretrainOptions


@with_options(PretrainOptions, help_before={"quiet": "verbose"})
def command(
    options: PretrainOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what the budget buys, then stop; needs no --out and writes nothing.")
    ] = False,
) -> None:
    """Pre-train a recipe on a corpus within a budget. If --out holds a run of the same recipe, resume it.

    Exit code: 0 when the budget, or its share --until, is spent. Ctrl-C (130) and SIGTERM (143) write a checkpoint first."""
    from cloze.cli.hints import print_next_step
    from cloze.cli.train.quiet import silence
    from cloze.errors import UserError, propose
    from cloze.runs.request import load_request
    from cloze.runs.run import run_request

    if options.strategy not in ("ddp", "fsdp"):
        raise UserError(f"--strategy {options.strategy}: no such strategy. {propose(options.strategy, ('ddp', 'fsdp'))}")
    if options.out is None and not plan:
        raise UserError("--out is missing: name the folder of the run, such as --out RUN. (--plan does not need it.)")
    with silence(on=quiet and not plan):
        loaded, request = load_request(options)
        if plan:
            from cloze.runs.planning import plan_request

            for line in plan_request(loaded, request):
                typer.echo(str(line))
            return
        outcome = run_request(loaded, request)
        print_next_step(options.folder)
    raise typer.Exit(outcome.exit_code)  # a run that a signal stopped is not done: `pretrain && finetune` must stop there
