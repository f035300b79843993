"""`cloze finetune`: teach a checkpoint a task from a table of labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.options import Encoding
from cloze.cli.with_files import Items, WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(
        help="A run folder or a Hugging Face folder, or a recipe that needs none: fasttext-supervised."
    )],
    out: Annotated[Path | None, typer.Option(help="The folder to write.")] = None,
    train: Annotated[str | None, typer.Option(help="Labelled text: TSV, CSV, JSONL, CoNLL, or a folder per class.")] = None,
    dev: Annotated[str | None, typer.Option(help="Labelled text that selects the best epoch.")] = None,
    tasks: Annotated[list[str] | None, typer.Option(
        "--task", show_default=False, help="The task; for several tasks, NAME=TYPE:TRAIN,DEV for each."
    )] = None,
    first: Annotated[str | None, typer.Option(help="A task to train on first: TYPE:TRAIN,DEV.")] = None,
    test: Annotated[str | None, typer.Option(help="Labelled text to evaluate once at the end.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name or file; default: the task's.")] = None,
    init: Annotated[Path | None, typer.Option(
        help="With fasttext-supervised: start from these word vectors, a file or a run."
    )] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", help="Change a value of the recipe: training.epochs=3, corpus.label=stars."
    )] = None,
    binds: Annotated[
        list[str] | None, typer.Option("--bind", help="NAME=FOLDER for another checkpoint, such as a teacher.")
    ] = None,
    changes: Annotated[list[str] | None, typer.Option(
        "--change", help="Change the network: lora=8, adapters=64, keep_layers=[0,2,4]."
    )] = None,
    auxiliary: Annotated[str | None, typer.Option(
        help="Add the checkpoint's language-model loss, causal or masked, with this weight: 0.5 (GPT)."
    )] = None,
    annotate: Annotated[list[str] | None, typer.Option(
        help="Annotate the texts for a layer that the checkpoint reads: NAME=PART:FILE, such as entity=mentions:links.jsonl."
    )] = None,
    items: Items = None,
    picture: Annotated[str | None, typer.Option(
        help="With --items: the column with the key of the picture; default: image."
    )] = None,
    print_recipe: Annotated[bool, typer.Option("--show", help="Print the recipe and stop.")] = False,
    plans: Annotated[bool, typer.Option("--plan", help="Print what the run would read and cost, and stop.")] = False,
    extend: Annotated[bool, typer.Option(
        "--extend", help="Continue a finished run with more training.epochs. It needs --keep-checkpoints."
    )] = False,
    keep_checkpoints: Annotated[bool, typer.Option(
        "--keep-checkpoints", help="Keep the checkpoints of a finished run, for --extend; several times the size of the model."
    )] = False,
    no_baselines: Annotated[bool, typer.Option(
        "--no-baselines", help="Do not fit a linear model on n-grams for comparison."
    )] = False,
    mix_ngrams: Annotated[bool, typer.Option(
        "--mix-ngrams", help="Mix the network's answers with those of a linear model on n-grams; the dev rows choose the share."
    )] = False,
    seeds: Annotated[str, typer.Option(help="One run per seed, such as 1,2,3; the best is kept.")] = "1",
    tune: Annotated[str | None, typer.Option(
        help="With fasttext-supervised: search for good values for this long, such as 5m."
    )] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the contents of --out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Fine-tune a checkpoint on a task. Example: cloze finetune RUN --train A.tsv --dev B.tsv --out DIR

    Rates, epochs, columns and lengths are values of the task's recipe: --show prints it, --set changes it."""
    from cloze.checkpoint.several import parse_files
    from cloze.cli.train.tuning import run_recipe, show_plan, show_recipe
    from cloze.runs.finetuning.assignment import Assignment
    from cloze.runs.finetuning.item_options import ShownItems

    task, several = _tasks_of(tasks or [], train=train, dev=dev, test=test, shows=print_recipe)
    before = None if first is None else parse_files(first, option="--first ")
    assignment = Assignment(
        task, [train] if train else [], [dev] if dev else [], several, before, recipe, overrides or [], binds or [],
        changes or [], with_files or [], auxiliary, annotate or [], ShownItems(items or [], picture), init, encoding, test,
        not no_baselines, mix_ngrams,
    )
    if print_recipe:
        show_recipe(checkpoint, assignment)
        return
    if plans:
        show_plan(checkpoint, assignment, out=out, seeds=_seeds(seeds), device=device)
        return
    run_recipe(
        checkpoint, assignment, out=_required(out), extend=extend, seeds=_seeds(seeds), device=device, as_json=as_json,
        overwrite=overwrite, keep_checkpoints=keep_checkpoints, tune=tune,
    )


def _tasks_of(
    tasks: list[str], *, train: str | None, dev: str | None, test: str | None, shows: bool
) -> tuple[str | None, dict[str, Any]]:
    """The type of the task if it is named, or several tasks by name with their files; --train and --dev belong to one."""
    from cloze.checkpoint.several import parse_tasks
    from cloze.errors import TaskError

    if any("=" in task for task in tasks) or len(tasks) > 1:
        for option, file in (("--train", train), ("--dev", dev), ("--test", test)):
            if file is not None:
                raise TaskError(f"{option} {file}: with several tasks, each names its files. Write --task NAME=TYPE:TRAIN,DEV.")
        several = parse_tasks(tasks)
        return next(iter(several.values())).type, several
    needed = (("--train FILE", train, "labelled text to train on"), ("--dev FILE", dev, "labelled text to select the epoch"))
    if not shows and (missing := [(option, use) for option, file, use in needed if file is None]):
        options, uses = (" and ".join(words) for words in zip(*missing, strict=True))
        raise TaskError(f"{options} {'is' if len(missing) == 1 else 'are'} missing. Give {uses}.")
    return next(iter(tasks), None), {}


def _required(out: Path | None) -> Path:
    from cloze.errors import TaskError

    if out is None:
        raise TaskError("--out is missing: name the folder to write, such as --out TUNED. (--show does not need it.)")
    return out


def _seeds(given: str) -> list[int]:
    from cloze.errors import TaskError

    try:
        return [int(seed) for seed in given.split(",") if seed.strip()]
    except ValueError:
        raise TaskError(f"--seeds {given!r}: expected whole numbers, such as 1,2,3.") from None
