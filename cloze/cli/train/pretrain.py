"""`cloze pretrain`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cloze.cli.train.fitting import Fit
from cloze.cli.with_files import WithFiles

if TYPE_CHECKING:
    from cloze.training.distribution import Strategy


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe: a name (see `cloze list`), file or run folder.")],
    corpus: Annotated[list[str], typer.Option("--corpus", help="Text, folders, globs, - for stdin, or a token store, also at s3://….")],
    out: Annotated[Path | None, typer.Option("--out", help="The run folder to write; it is in Hugging Face format.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="10m, 2h, 2000steps, 50Mtokens, 1e18flops or 3epochs; default: the recipe's own.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base or large.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value of the recipe, such as training.batch=64; repeatable.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer; default: trained on the corpus.")] = None,
    held_out: Annotated[
        list[str] | None, typer.Option("--held-out", help="Text or store for the held-out loss; default: a share of the corpus.")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATH: measure this text before and after, in bits per byte and tokens per word; repeatable."),
    ] = None,
    init: Annotated[
        list[str] | None,
        typer.Option(help="Start from the weights of this checkpoint; NETWORK=DIR for one of several networks; repeatable."),
    ] = None,
    text_format: Annotated[
        str, typer.Option("--format", help="blank, line, sentence, wiki, jsonl, csv, tsv or parquet; default: detected.")
    ] = "auto",
    column: Annotated[
        str | None, typer.Option("--text", help="In tables and JSON lines, the column or key with the text; default: text.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of texts; default: detected.")
    ] = None,
    binds: Annotated[
        list[str] | None,
        typer.Option("--bind", help="NAME=PATH for another source of the recipe, or for a checkpoint that it starts from."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="Where remote stores are cached: DIR or DIR:SIZE, such as /local:200GB."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    extend: Annotated[bool, typer.Option("--extend", help="Continue a finished run with a larger budget.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    until: Annotated[float, typer.Option(help="Pause at this share of the budget; the same command without it continues.")] = 1.0,
    mirror: Annotated[str | None, typer.Option(help="A URL to which finished checkpoints are copied.")] = None,
    strategy: Annotated[str, typer.Option(help="For several processes: ddp, or fsdp, which shards parameters.")] = "ddp",
    shard: Annotated[int | None, typer.Option(help="With fsdp: how many processes share one copy of the parameters.")] = None,
    with_files: WithFiles = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every logged step with rate and gradient norm, and held-out losses.")
    ] = False,
    fit: Fit = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what the budget buys, then stop; needs no --out and writes nothing.")
    ] = False,
) -> None:
    """Pre-train a recipe on a corpus within a budget. If --out holds a run of the same recipe, resume it.

    Exit code: 0 when the budget, or its share --until, is spent. Ctrl-C (130) and SIGTERM (143) write a checkpoint first."""
    from cloze.cli.hints import hint
    from cloze.cli.train.quiet import silence
    from cloze.corpus.readers.formats import with_column
    from cloze.errors import UserError, propose
    from cloze.runs.request import requested
    from cloze.runs.run import run_request

    if strategy not in ("ddp", "fsdp"):
        raise UserError(f"--strategy {strategy}: no such strategy. {propose(strategy, ('ddp', 'fsdp'))}")
    if out is None and not plan:
        raise UserError("--out is missing: name the folder of the run, such as --out RUN. (--plan does not need it.)")
    with silence(on=quiet and not plan):
        loaded, request = requested(
            recipe, corpus, out or "RUN", budget=budget, size=size, overrides=overrides or [], with_files=with_files or [],
            tokenizer=tokenizer, held_out=held_out, init=init or [], text_format=with_column(text_format, column, encoding),
            binds=binds or [], cache=cache, seed=seed, device=device, fit=fit, extend=extend,
            tensorboard=tensorboard, strategy=cast("Strategy", strategy), verbose=verbose, measure=measure or [], until=until,
            shard=shard, mirror=mirror,
        )
        if plan:
            from cloze.runs.planning import plan_request

            for line in plan_request(loaded, request):
                typer.echo(str(line))
            return
        outcome = run_request(loaded, request)
        hint(Path(request.command_line.out))
    raise typer.Exit(outcome.exit_code)  # a run that a signal stopped is not done: `pretrain && finetune` must stop there
