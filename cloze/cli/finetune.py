"""`cloze finetune`: teach a checkpoint a task from a table of labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cloze.tasks import Settings
    from cloze.tasks.finetune import Moment, Result


# Options that are settings of training, and those that a task is made with.
_SETTINGS = (
    "epochs", "batch", "optimizer", "rate", "length", "patience", "metric", "dropout", "schedule", "unfreeze", "layerwise",
    "pool", "clip", "task_lstm", "auxiliary", "truncate",
)  # fmt: skip
_OF_TASKS = ("text", "text_b", "label", "mix")
_READS_MORE = {"text": "--length", "target": "--target-length"}


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    train: Annotated[str | None, typer.Option(help="Labelled text: TSV, CSV, JSONL, CoNLL, or a folder per class.")] = None,
    dev: Annotated[str | None, typer.Option(help="Labelled text to choose the epoch by.")] = None,
    tasks: Annotated[list[str] | None, typer.Option(
        "--task", show_default=False, help="The task, or of several NAME=TYPE:TRAIN,DEV each."
    )] = None,
    first: Annotated[str | None, typer.Option(help="TYPE:TRAIN,DEV of a task learned before.")] = None,
    test: Annotated[str | None, typer.Option(help="Labelled text, measured once at the end.")] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text; default: text.")] = None,
    text_b: Annotated[str | None, typer.Option("--text-b", help="The second text's column; default: text_b.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of the answer; default: label, or target.")] = None,
    columns: Annotated[str | None, typer.Option(help="Column names of files without a header: a,b,c.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="tsv, csv or jsonl; default: by the file's name.")] = None,
    quoting: Annotated[str, typer.Option(help="Quotes: auto, none or standard.")] = "auto",
    epochs: Annotated[int | None, typer.Option(help="At most this many epochs; default: 4, LSTM: 8.")] = None,
    batch: Annotated[int | None, typer.Option(help="Texts per step; default: 32.")] = None,
    rate: Annotated[float | None, typer.Option(help="Peak rate; default: 5e-5 · 768 / width, LSTM: 0.01.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw, adamw:0.8,0.99 (betas), or adafactor (T5).")] = None,
    manner: Annotated[str | None, typer.Option(help="plain, or as published: ulmfit, siatl (LSTMs).")] = None,
    clip: Annotated[float | None, typer.Option(help="Clip the gradient's norm to this; default: 1.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Of the rate: linear, slanted_triangular, plateau, …")] = None,
    unfreeze: Annotated[str | None, typer.Option(help="gradual, chain, sequential, all, or none.")] = None,
    layerwise: Annotated[str | None, typer.Option(help="2.6: divides the rate per layer down; or factors.")] = None,
    pool: Annotated[str | None, typer.Option(help="concat, attention, mean, max, last or summary.")] = None,
    task_lstm: Annotated[int | None, typer.Option(help="Add an LSTM of this width on top of the network.")] = None,
    auxiliary: Annotated[str | None, typer.Option(help="0.2,0.1: language-model loss, weight from and to.")] = None,
    truncate: Annotated[str | None, typer.Option(help="LSTM: tokens per step and pooled, 70,1400; 0: off.")] = None,
    mix: Annotated[str | None, typer.Option(help="Features at input, output or both; or both:0.01.")] = None,
    length: Annotated[int | None, typer.Option(help="Cut texts to this many tokens; default: 128.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after this many epochs without a better one; default: 2.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric that chooses the epoch; default: the task's.")] = None,
    dropout: Annotated[float | None, typer.Option(min=0.0, max=0.9, help="In the classifier; default: 0.1.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe of your own; default: the task's.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Override a value of the recipe: path=value.")] = None,
    binds: Annotated[list[str] | None, typer.Option("--bind", help="NAME=FOLDER of a further checkpoint, a teacher.")] = None,
    print_recipe: Annotated[bool, typer.Option("--show", help="Print the recipe, and stop.")] = False,
    extend: Annotated[bool, typer.Option("--extend", help="Resume a finished run with more training.epochs.")] = False,
    seeds: Annotated[str, typer.Option(help="1,2,3: a run each; best kept.")] = "1",
    from_scratch: Annotated[bool, typer.Option("--from-scratch", help="Start from random weights, to compare.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32 or bf16.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the settings too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fine-tune. Example: cloze finetune RUN --train A.tsv --dev B.tsv --out DIR"""
    from cloze.assembly.build import load_checkpoint
    from cloze.assembly.several import parse_files
    from cloze.cli.tuning import fits, run_recipe, values_of
    from cloze.tasks.finetune import as_dtype
    from cloze.tasks.result import check_new

    told = dict(locals())  # every option by its name
    task, several = _asked(tasks or [], train=train, dev=dev, test=test)
    said = {name: told[name] for name in _SETTINGS} | {"from_scratch": from_scratch or None}
    given = _given(said)
    options: dict[str, Any] = {name: told[name] for name in _OF_TASKS}
    chosen = _chosen(task, options, metric, columns=_listed(columns), file_format=file_format, quoting=quoting)
    before = None if first is None else parse_files(first, option="--first ")
    values = values_of({
        **{name: said[name] for name in _SETTINGS}, **options, "columns": _listed(columns), "format": file_format,
        "quoting": None if quoting == "auto" else quoting, "manner": manner,
        "precision": None if precision == "auto" else precision,
    })  # fmt: skip
    own = recipe is not None or bool(overrides or binds or several or before) or print_recipe or extend
    if values is None:
        _require_small_loop(task, chosen, own=own)
    loaded = load_checkpoint(checkpoint, device)
    as_dtype(precision, next(loaded.network.parameters()).device)
    if values is not None and (own or fits(loaded, task) or not hasattr(chosen, "begin")):
        run_recipe(
            checkpoint, task=task, train=train, dev=dev, test=test, out=out, recipe=recipe, show=print_recipe, extend=extend,
            seeds=_seeds(seeds), binds=binds or [], device=device, quiet=quiet, as_json=as_json, from_scratch=from_scratch,
            overwrite=overwrite, overrides=[*values, *(overrides or [])], tasks=several, first=before,
        )
        return
    assert train is not None and dev is not None  # as one task has them
    check_new(out, overwrite=overwrite)
    files = {name: path for name, path in (("train", train), ("dev", dev), ("test", test)) if path}
    settings = _settings(loaded, given, task, manner)
    _tell(settings, verbose=verbose)
    _train_settings(
        loaded, chosen, files, out, settings, seeds=_seeds(seeds), precision=precision, overwrite=overwrite, quiet=quiet,
        as_json=as_json,
    )


def _require_small_loop(task: str, chosen: Any, *, own: bool) -> None:
    """Options that are no values of a recipe are for what has none yet."""
    from cloze.errors import TaskError

    if not hasattr(chosen, "begin"):
        raise TaskError(f"--task {task}: write what is structure in a recipe: cloze show {task} > mine.yaml; --recipe mine.yaml.")
    if own:
        raise TaskError(
            "--recipe, --set, --show, --extend, --first and several tasks: write the other options as values of the recipe, with "
            "--set."
        )


def _asked(tasks: list[str], *, train: str | None, dev: str | None, test: str | None) -> tuple[str, dict[str, Any]]:
    """The type of the task, or several tasks by name with their files; --train and --dev belong to one."""
    from cloze.assembly.several import parse_tasks
    from cloze.errors import TaskError

    if any("=" in one for one in tasks) or len(tasks) > 1:
        for option, given in (("--train", train), ("--dev", dev), ("--test", test)):
            if given is not None:
                raise TaskError(f"{option} {given}: of several tasks each names its files: --task NAME=TYPE:TRAIN,DEV.")
        several = parse_tasks(tasks)
        return next(iter(several.values())).type, several
    if train is None or dev is None:
        raise TaskError("--train FILE and --dev FILE are missing: labelled text to learn from, and to choose the epoch by.")
    return next(iter(tasks), "sentence_classification"), {}


def _chosen(
    task: str, options: dict[str, Any], metric: str | None, *, columns: list[str] | None, file_format: str | None, quoting: str
) -> Any:
    """The task with what it reads; an unknown metric is refused."""
    from cloze.corpus.readers.labelled import as_format, as_quoting
    from cloze.tasks import task as make_task
    from cloze.tasks.task import chosen_metric

    chosen = make_task(task, **options).reading(columns=columns, format=as_format(file_format), quoting=as_quoting(quoting))
    chosen_metric(chosen, metric)
    return chosen


def _train_settings(
    loaded: Any, chosen: Any, files: dict[str, str], out: Path, settings: Settings, *, seeds: list[int], precision: str,
    overwrite: bool, quiet: bool, as_json: bool,
) -> None:
    """Fine-tune by settings what no recipe says yet, and write and print the result."""
    from cloze.cli.quiet import silence
    from cloze.tasks import finetune_seeds
    from cloze.tasks.evaluation import evaluate
    from cloze.tasks.finetune import as_dtype
    from cloze.tasks.result import save_result

    examples = {name: chosen.read(path) for name, path in files.items()}
    with silence(on=quiet, results=True), _Show(quiet=as_json) as show:
        result = finetune_seeds(
            loaded, chosen, examples["train"], examples["dev"], settings=settings, seeds=seeds,
            precision=as_dtype(precision, next(loaded.network.parameters()).device), report=show,
        )
    facts: dict[str, Any] = {"examples": {name: len(part) for name, part in examples.items()}}
    facts |= chosen.facts(examples["train"], examples["dev"])
    if "test" in examples:
        facts["test"] = evaluate(result.tuned, examples["test"]).metrics
    remarks = _cuts(result, facts["examples"])
    remarks += save_result(out, result, loaded, facts=facts, overwrite=overwrite)
    _print(result, facts, remarks, out, as_json)


def _tell(settings: Settings, *, verbose: bool) -> None:
    if verbose:
        typer.echo(f"settings: {', '.join(f'{name}={value}' for name, value in vars(settings).items())}", err=True)


def _given(said: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as settings; whatever can be wrong without a checkpoint is found out here."""
    from cloze.tasks import Settings
    from cloze.transfer import layerwise_of, unfreezing_named

    given = {name: value for name, value in said.items() if value is not None}
    readers: dict[str, Any] = {
        "unfreeze": unfreezing_named, "layerwise": layerwise_of,
        "auxiliary": lambda text: _two("--auxiliary", text, float), "truncate": lambda text: _two("--truncate", text, int),
    }  # fmt: skip
    given |= {name: read(given[name]) for name, read in readers.items() if name in given}
    given |= _betas(given.get("optimizer", ""))
    if "patience" in given:
        given["patience"] = given["patience"] or None
    if given.get("pool") == "summary":
        given["pool"] = None
    Settings(**{"pool": "last", **given} if given.get("truncate") and "pool" not in given else given)
    return given


def _betas(optimizer: str) -> dict[str, Any]:
    """An optimiser with numbers behind a colon as settings: its name, and adamw's betas."""
    from cloze.errors import TaskError

    name, colon, numbers = optimizer.partition(":")
    if colon and name != "adamw":
        raise TaskError(f"--optimizer {optimizer}: only adamw has betas, such as adamw:0.8,0.99.")
    return {"optimizer": name, "betas": _two("--optimizer", numbers, float) or (0.0, 0.0)} if colon else {}


def _settings(loaded: Any, given: dict[str, Any], task: str, manner: str | None) -> Settings:
    """What was given, else what was published for classifiers on this kind of network, else the usual."""
    from cloze.errors import TaskError
    from cloze.registry import lookup, names
    from cloze.tasks import Settings
    from cloze.transfer import published

    part = next((name for name in names("network") if lookup("network", name) is type(loaded.network)), "")
    if manner is not None and not task.endswith("classification"):
        raise TaskError(f"--manner {manner} is for classification; the task is {task}. Leave it out.")
    recipe, groups = (loaded.recipe or {}).get("name"), len(loaded.network.depth_groups())
    usual = published(part, groups, manner=manner, recipe=recipe) if task.endswith("classification") else {}
    if given.get("from_scratch"):  # nothing was learned that could be kept
        usual = {name: value for name, value in usual.items() if name not in ("unfreeze", "layerwise")}
    if given.get("pool", "") is None:
        usual.pop("truncate", None)
    return Settings(**{**usual, **given})


def _two(option: str, text: str, kind: Any) -> Any:
    """Two numbers with a comma between them; one number stands for both, 0 for none."""
    from cloze.errors import TaskError

    try:
        numbers = [kind(one) for one in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise TaskError(f"{option} {text}: expected one number, or two with a comma between them.")
    return None if not any(numbers) else (numbers[0], numbers[-1])


def _listed(columns: str | None) -> list[str] | None:
    return None if columns is None else columns.split(",")


def _seeds(given: str) -> list[int]:
    from cloze.errors import TaskError

    try:
        return [int(seed) for seed in given.split(",") if seed.strip()]
    except ValueError:
        raise TaskError(f"--seeds {given!r}: expected whole numbers, such as 1,2,3.") from None


def _cuts(result: Result, examples: dict[str, int]) -> list[str]:
    """What did not fit, in plain words."""
    return [
        f"{part}: {number} of {examples[part]} rows have a {column} that is too long and lost its end "
        f"({_READS_MORE[column]} N reads more)"
        for part, columns in result.cut.items()
        for column, number in columns.items()
        if number
    ]


class _Show:
    """A progress line while an epoch runs, a lasting line when it ends."""

    def __init__(self, *, quiet: bool) -> None:
        from cloze.decoding.progress import Progress

        self.quiet = quiet
        self.make = Progress
        self.progress: Any = None
        self.seed: int | None = None

    def __call__(self, moment: Moment) -> None:
        if moment.seed != self.seed:
            self.seed, self.progress = moment.seed, self.make(moment.steps, "steps")
        if moment.dev is None:
            self.progress(1, f"  loss {moment.loss:.4f}")
        elif not self.quiet:
            self.progress.clear()
            figures = "  ".join(f"{name} {value:.4f}" for name, value in moment.dev.items())
            typer.echo(f"seed {moment.seed}  epoch {moment.epoch}  loss {moment.loss:.4f}  dev: {figures}", err=True)

    def __enter__(self) -> _Show:
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.progress.clear()


def _print(result: Result, facts: dict[str, Any], remarks: list[str], out: Path, as_json: bool) -> None:
    import json
    from dataclasses import asdict

    from cloze.tasks.metrics import spread

    summary = spread([trial.metrics for trial in result.trials])
    if as_json:
        trials = [asdict(trial) for trial in result.trials]
        print(json.dumps({"out": str(out), "trials": trials, "spread": summary, **facts, "remarks": remarks}, indent=2))
        return
    base = facts["baseline"]
    always = base["always"] if len(base["always"]) <= 40 else base["always"][:40] + "…"
    print(f"{'':<11}  dev       always {always!r}")
    for name, one in summary.items():
        value = f"{one['mean']:.4f}"
        more = f" ± {one['deviation']:.4f} over {len(result.trials)} seeds" if len(result.trials) > 1 else ""
        beside = f"{base[name]:.4f}" if name in base else ""
        print(f"{name:<11}  {value:<8}  {beside:<6}{more}".rstrip())
    for name, value in facts.get("test", {}).items():
        print(f"test {name}: {value:.4f}")
    for remark in remarks:
        print(f"note: {remark}")
    print(f"{out}: seed {result.best.seed}, epoch {result.best.epoch} of {result.best.epochs}")
