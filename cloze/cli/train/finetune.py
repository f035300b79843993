"""`cloze finetune`: teach a checkpoint a task from a table of labelled text."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from cloze.cli.options import with_options
from cloze.runs.options import FinetuneOptions


@with_options(FinetuneOptions, help_before={
    "print_recipe": "extend", "print_plan": "extend", "no_baselines": "mix_ngrams", "as_json": "encoding",
})  # fmt: skip
def command(
    options: FinetuneOptions,
    tasks: Annotated[list[str] | None, typer.Option(
        "--task", show_default=False, help="The task; for several tasks, NAME=TYPE:TRAIN,DEV for each."
    )] = None,
    first: Annotated[str | None, typer.Option(help="A task to train on first: TYPE:TRAIN,DEV.")] = None,
    seeds: Annotated[str, typer.Option(help="One run per seed, such as 1,2,3; the best is kept.")] = "1",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the contents of --out.")] = False,
    no_baselines: Annotated[bool, typer.Option(
        "--no-baselines", help="Do not fit a linear model on n-grams for comparison."
    )] = False,
    print_recipe: Annotated[bool, typer.Option("--show", help="Print the recipe and stop.")] = False,
    print_plan: Annotated[bool, typer.Option("--plan", help="Print what the run would read and cost, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fine-tune a checkpoint on a task. Example: cloze finetune RUN --train A.tsv --dev B.tsv --out DIR

    Rates, epochs, columns and lengths are values of the task's recipe: --show prints it, --set changes it."""
    from cloze.checkpoint.several import parse_files
    from cloze.errors import TaskError

    task, several = _tasks_of(tasks or [], options, shows=print_recipe)
    options = replace(
        options, task=task, tasks=several, first=None if first is None else parse_files(first, option="--first "),
        overwrite=overwrite, baselines=not no_baselines, report=print if print_plan else lambda line: typer.echo(line, err=True),
    )
    if print_recipe:
        _show_recipe(options)
        return
    try:
        options = replace(options, seeds=[int(seed) for seed in seeds.split(",") if seed.strip()])
    except ValueError:
        raise TaskError(f"--seeds {seeds!r}: expected whole numbers, such as 1,2,3.") from None
    if print_plan:
        from cloze.runs.finetuning.finetune_plan import plan_lines

        print("\n".join(plan_lines(options)))
        return
    if options.out is None:
        raise TaskError("--out is missing: name the folder to write, such as --out TUNED. (--show does not need it.)")
    _train(options, as_json=as_json)


def _tasks_of(tasks: list[str], options: FinetuneOptions, *, shows: bool) -> tuple[str | None, dict[str, Any]]:
    """The type of the task if it is named, or several tasks by name with their files; --train and --dev belong to one."""
    from cloze.checkpoint.several import parse_tasks
    from cloze.errors import TaskError

    if any("=" in task for task in tasks) or len(tasks) > 1:
        for option, file in (("--train", options.train), ("--dev", options.dev), ("--test", options.test)):
            if file:
                raise TaskError(f"{option} {file}: with several tasks, each names its files. Write --task NAME=TYPE:TRAIN,DEV.")
        several = parse_tasks(tasks)
        return next(iter(several.values())).recipe, several
    needed = (
        ("--train FILE", options.train, "labelled text to train on"),
        ("--dev FILE", options.dev, "labelled text to select the epoch"),
    )
    if not shows and (missing := [(option, use) for option, file, use in needed if not file]):
        names, uses = (" and ".join(words) for words in zip(*missing, strict=True))
        raise TaskError(f"{names} {'is' if len(missing) == 1 else 'are'} missing. Give {uses}.")
    return next(iter(tasks), None), {}


def _show_recipe(options: FinetuneOptions) -> None:
    """Print the recipe of a task as it is trained onto a checkpoint, fitted to the rows of the files where they are given."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.recipe.canonical import to_yaml
    from cloze.runs.finetuning.finetune import row_counts_of
    from cloze.runs.finetuning.task_checks import require_task_type
    from cloze.runs.finetuning.task_recipe import is_recipe_without_checkpoint, recipe_maker

    loaded = None if is_recipe_without_checkpoint(options.checkpoint) else load_checkpoint(options.checkpoint)
    make_recipe = recipe_maker(options, loaded)
    require_task_type(plain := make_recipe(), options)
    recipe = make_recipe(row_counts=row_counts_of(plain, options, None if loaded is None else loaded.tokenizer))
    print(to_yaml(recipe.canonical()), end="")


def _train(options: FinetuneOptions, *, as_json: bool) -> None:
    """Train the recipe of a task onto a checkpoint, and print the result."""
    from cloze.cli.hints import print_next_step
    from cloze.cli.train.finetune_output import print_result
    from cloze.cli.train.quiet import silence
    from cloze.errors import spelled_by
    from cloze.runs.finetuning.autotune import search_within
    from cloze.runs.finetuning.finetune import run_finetuning
    from cloze.runs.finetuning.measure_result import measure_on_files

    out: Any = options.out
    way_out = f"or remove {out}" if options.overwrite else "or add --overwrite"
    with silence(on=as_json, results=True):
        with spelled_by(lambda phrase: phrase.naming(f"--out, {way_out}") if phrase.parameter.path == "out" else None):
            result = run_finetuning(options) if options.tune is None else search_within(options)
        stopped = [outcome for outcome in result.outcomes.values() if not outcome.finished]
        if stopped:
            print_next_step(out)
            raise typer.Exit(stopped[0].exit_code)
        if options.test is not None:
            result = measure_on_files(result, [options.test], "test", options.items, options.annotate)
    print_result(result.task_json, out, as_json=as_json)
    if not as_json:
        print_next_step(out)
