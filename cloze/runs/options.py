"""The options of a run, each declared once: a field is both a command-line option and an argument in Python.

A field that is annotated with a `typer.Option` is an option of the command (`cloze.cli.options.with_options`), of the first of
its types; `accepts_fields_of` makes a function of an object a function of its fields.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, get_type_hints

import typer

from cloze.errors import Say, TaskError
from cloze.hub import local_folder, name_of
from cloze.missing import SCRATCH_TASKS
from cloze.processes import rank

if TYPE_CHECKING:
    from cloze.checkpoint.bound import BoundCheckpoints
    from cloze.checkpoint.several import LabelledFiles
    from cloze.recipe.recipe import Recipe
else:
    LabelledFiles = tuple  # its module imports the language of recipes, which help does not need

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
#: One checkpoint or several, each a folder or `NETWORK=FOLDER`, or a mapping from networks to folders.
Inits = Sequence[str | Path] | str | Path | Mapping[str, Path] | None


def quiet(line: str) -> None:
    """A `Say` that prints nothing."""


def say_of(report: Say | None) -> Say:
    """Where messages before and after training go: to `report`, or to `print` for None; of several processes, those of the
    first."""
    return (report or print) if rank() == 0 else quiet


def accepts_fields_of(options: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Turn a function of an object into a function of the object's fields, with their names, types and defaults."""

    def changed(function: Callable[[T], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(options(*args, **kwargs))

        result = get_type_hints(function)["return"]
        signature = inspect.signature(options)
        call.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        call.__annotations__ = {**get_type_hints(options), "return": result}
        return call

    return changed


def words_of(options: Any, *names: str) -> list[str]:
    """Options by name as words of a command line; those that have their default are left out."""
    hints = get_type_hints(type(options), include_extras=True)
    defaults = {field.name: field.default for field in fields(options)}
    words = []
    for name in names:
        value, declared = vars(options)[name], hints[name].__metadata__[0].default
        option = declared if isinstance(declared, str) else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            yes, _, no = option.partition("/")
            words += [] if value == defaults[name] else [yes if value else no]
        elif value != defaults[name] and value is not None:
            entries = [value] if isinstance(value, (str, Path, int)) else value
            words += [word for entry in entries for word in (option, str(entry))]
    return words


def _import(files: list[Path] | None) -> list[Path]:
    if files:
        from cloze.recipe.user_files import import_files

        import_files(files)
    return files or []


def _read_as(context: typer.Context, encoding: str | None) -> str | None:
    """Read the files of the command in this encoding, and print a note for each that is not UTF-8."""
    if not context.resilient_parsing:
        from cloze.text.encodings import reading_as

        context.with_resource(reading_as(encoding, lambda line: typer.echo(line, err=True)))
    return encoding


#: A command that may meet parts of a user's own imports the file that registers them before it begins.
WITH_FILES = typer.Option("--with", help="A Python file that registers parts.", callback=_import)
ITEMS = typer.Option("--items", help="Items of pictures: regions=features.npz.")
TRACK = typer.Option(help="TOOL[=NAME OF RUN]: tensorboard, wandb, mlflow or trackio; repeatable.")
TRACK_MODEL = typer.Option("--track-model", help="With --track: also keep the finished model there.")
ENCODING = typer.Option("--encoding", callback=_read_as, help="Encoding of texts; default: detected.")
Fit = Annotated[
    bool | None,
    typer.Option("--fit/--as-published", help="Fit to the budget; default: built-in recipes only.", show_default=False),
]
FitTask = Annotated[bool | None, typer.Option(
    "--fit/--as-published", help="Fit the recipe; default: if built in.", show_default=False
)]


@dataclass(frozen=True)
class PretrainOptions:
    """What `cloze pretrain` is asked for.

    `corpus` is text (files, folders, globs, `-`) or one token store; text is built into `out/cloze/corpus`. `binds` are
    `NAME=PATH` for the recipe's other sources and for the checkpoints that its networks come from. `init` begins with the weights
    of a checkpoint, or with those of several, one for each network. Each stage of a recipe is a run: the last in `out`, the
    others in `out/cloze/stages`. `report` gets every line of the run; None prints them. cloze itself sets `stage`, to one stage
    of the recipe, and `drop_stage_origins`: the stage is planned alone, and its networks that come from an earlier stage start at
    random.
    """

    recipe: Annotated[str | Path, typer.Argument(help="A recipe: a name (see `cloze list`), file or run folder.")]
    corpus: Annotated[Sequence[str | Path] | str | Path, typer.Option(
        "--corpus", help="Text, folders, globs, - for stdin, or a token store, also at s3://…."
    )]
    out: Annotated[Path | str | None, typer.Option("--out", help="The run folder; it is in Hugging Face format.")] = None
    budget: Annotated[str | None, typer.Option(
        help="10m, 2h, 2000steps, 50Mtokens, 1e18flops or 3epochs; default: the recipe's own."
    )] = None
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base or large.")] = None
    overrides: Annotated[Sequence[str], typer.Option(
        "--set", help="Change a value of the recipe, such as training.batch=64; repeatable."
    )] = ()
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer; default: train one.")] = None
    held_out: Annotated[Sequence[str] | None, typer.Option(
        "--held-out", help="Text or store for the held-out loss; default: a share of the corpus."
    )] = None
    measure: Annotated[Sequence[str], typer.Option(
        help="NAME=PATH: measure this text before and after, in bits per byte and tokens per word; repeatable."
    )] = ()
    init: Annotated[Inits, typer.Option(
        help="Start from the weights of this checkpoint; NETWORK=DIR for one of several networks; repeatable."
    )] = None
    text_format: Annotated[str, typer.Option(
        "--format", help="blank, line, sentence, wiki, jsonl, csv, tsv or parquet; default: detected."
    )] = "auto"
    column: Annotated[str | None, typer.Option(
        "--text", help="In tables and JSON lines, the column or key with the text; default: text."
    )] = None
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of texts; default: detected.")] = None
    binds: Annotated[Sequence[str], typer.Option(
        "--bind", help="NAME=PATH for another source of the recipe, or for a checkpoint that it starts from."
    )] = ()
    cache: Annotated[str | None, typer.Option(
        help="Where remote stores are cached: DIR or DIR:SIZE, such as /local:200GB."
    )] = None
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto"
    extend: Annotated[bool, typer.Option("--extend", help="Continue a finished run with a larger budget.")] = False
    track: Annotated[Sequence[str], TRACK] = ()
    track_model: Annotated[bool, TRACK_MODEL] = False
    until: Annotated[float, typer.Option(
        help="Pause at this share of the budget; the same command without it continues."
    )] = 1.0
    mirror: Annotated[str | None, typer.Option(help="A URL to which finished checkpoints are copied.")] = None
    strategy: Annotated[Literal["ddp", "fsdp"], typer.Option(
        help="For several processes: ddp, or fsdp, which shards parameters."
    )] = "ddp"
    shard: Annotated[int | None, typer.Option(
        help="With fsdp: how many processes share one copy of the parameters."
    )] = None
    with_files: Annotated[Sequence[Path], WITH_FILES] = ()
    verbose: Annotated[bool, typer.Option(
        "--verbose", "-v", help="Print every logged step with rate and gradient norm, and held-out losses."
    )] = False
    fit: Fit = None
    report: Say | None = None
    stage: str | None = None
    drop_stage_origins: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.out or "RUN")

    @property
    def paths(self) -> list[str]:
        """The paths of the corpus."""
        return [str(path) for path in ([self.corpus] if isinstance(self.corpus, (str, Path)) else self.corpus)]

    @property
    def checkpoints(self) -> BoundCheckpoints:
        """The folders that `--bind` gives to the names of checkpoints."""
        return _bound(self.binds)

    def load(self, values: Sequence[str] = ()) -> Recipe:
        """The recipe with these `values` set (`path=value`). The user's own values are set after them and win."""
        from cloze.recipe.load import load_recipe, read_tree

        tree = read_tree(str(self.recipe))
        if self.init:
            from cloze.recipe.origins import add_masks
            from cloze.recipe.user_files import import_files
            from cloze.runs.binds import parse_inits

            import_files(self.with_files)  # which may register the changes
            add_masks(tree, parse_inits(self.init))
        first = [value if self.stage is None else f"stages.{self.stage}.{value}" for value in values]
        loaded = load_recipe(
            tree, size=self.size, overrides=[*first, *self.overrides], with_files=self.with_files, checkpoints=self.checkpoints
        )
        if self.stage is None:
            return loaded
        recipe = next(stage.recipe for stage in loaded.stages if stage.name == self.stage)
        if self.drop_stage_origins:
            stages = {stage.name for stage in loaded.stages}
            networks = {name: replace(n, origin=None) if n.origin in stages else n for name, n in recipe.networks.items()}
            return replace(recipe, networks=networks)
        return replace(recipe, stages=loaded.stages) if self.stage == loaded.stages[-1].name else recipe

    def words(self, **changes: Any) -> tuple[str, ...]:
        """The words of the command line, with other values in it."""
        new = replace(self, **changes)
        words = words_of(
            new, "size", "corpus", "budget", "overrides", "with_files", "fit", "tokenizer", "held_out", "text_format", "init",
            "binds", "seed", "device", "measure", "track", "track_model",
        )
        return ("cloze", "pretrain", str(new.recipe), *words, "--out", str(new.out or "RUN"))

    def command(self, **changes: Any) -> str:
        """The command line, with other values in it."""
        return shlex.join(self.words(**changes))


@dataclass(frozen=True)
class FinetuneOptions:
    """What `cloze finetune` is asked for.

    `tasks` are several tasks by name with their files, in place of a `task` with its `train` and `dev` files; `first` is trained
    before them. Without a `task`, the `recipe` says which it is, else it is sentence_classification. `baselines`: a linear
    model on n-grams is fitted for comparison. `fit`: the recipe is fitted to the checkpoint and the rows; None: if it comes with
    cloze.
    `from_scratch` starts from random weights in the shape of the checkpoint, `within` is the maximum training time in seconds,
    and `report` gets every line; None prints them.
    """

    checkpoint: Annotated[Path | str, typer.Argument(
        help="A run folder or a Hugging Face folder, or a recipe that needs none: fasttext-supervised, dssm."
    )]
    out: Annotated[Path | None, typer.Option(help="The folder to write.")] = None
    train: Annotated[str | Sequence[str], typer.Option(
        help="Labelled text: TSV, CSV, JSONL, CoNLL, or a folder per class."
    )] = ()
    dev: Annotated[str | Sequence[str], typer.Option(help="Labelled text that selects the best epoch.")] = ()
    tasks: Mapping[str, LabelledFiles] = field(default_factory=dict)
    first: LabelledFiles | None = None
    test: Annotated[str | None, typer.Option(help="Labelled text to evaluate once at the end.")] = None
    recipe: Annotated[str | Path | None, typer.Option(help="A recipe's name or file; default: the task's.")] = None
    init: Annotated[Path | None, typer.Option(
        help="With fasttext-supervised: start from these word vectors, a file or a run."
    )] = None
    overrides: Annotated[Sequence[str], typer.Option(
        "--set", help="Change a value of the recipe: training.epochs=3, corpus.label=stars."
    )] = ()
    binds: Annotated[Sequence[str], typer.Option(
        "--bind", help="NAME=FOLDER for another checkpoint, such as a teacher."
    )] = ()
    changes: Annotated[Sequence[str], typer.Option(
        "--change", help="Change the network: lora=8, adapters=64, keep_layers=[0,2,4]."
    )] = ()
    fit: FitTask = None
    auxiliary: Annotated[str | None, typer.Option(
        help="Add the checkpoint's language-model loss, causal or masked, with this weight: 0.5 (GPT)."
    )] = None
    annotate: Annotated[Sequence[str], typer.Option(
        help="Annotate the texts for a layer that the checkpoint reads: NAME=PART:FILE, such as entity=mentions:links.jsonl."
    )] = ()
    items: Annotated[Sequence[str], ITEMS] = ()
    picture: Annotated[str | None, typer.Option(
        help="With --items: the column of its key; default: image."
    )] = None
    extend: Annotated[bool, typer.Option(
        "--extend", help="Continue a finished run with more training.epochs. It needs --keep-checkpoints."
    )] = False
    track: Annotated[Sequence[str], TRACK] = ()
    track_model: Annotated[bool, TRACK_MODEL] = False
    keep_checkpoints: Annotated[bool, typer.Option(
        "--keep-checkpoints", help="Keep the checkpoints of a finished run, for --extend; several times the size of the model."
    )] = False
    mix_ngrams: Annotated[bool, typer.Option(
        "--mix-ngrams", help="Mix the network's answers with those of a linear model on n-grams; the dev rows choose the share."
    )] = False
    seeds: Sequence[int] = (1,)
    tune: Annotated[str | None, typer.Option(
        help="With fasttext-supervised: search for good values for this long, such as 5m."
    )] = None
    overwrite: bool | None = None
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto"
    encoding: Annotated[str | None, ENCODING] = None
    with_files: Annotated[Sequence[Path], WITH_FILES] = ()
    task: str | None = None
    baselines: bool = True
    from_scratch: bool = False
    within: float | None = None
    report: Say | None = None

    def __post_init__(self) -> None:
        if self.picture is not None and not self.items:
            raise TaskError(f"--picture {self.picture}: the items of the pictures are needed, too. Add their file: --items FILE")

    @property
    def task_name(self) -> str:
        """The name of the task recipe that is used where `recipe` names none: `task`, else sentence_classification."""
        return self.task or "sentence_classification"

    @property
    def checkpoints(self) -> BoundCheckpoints:
        """The folders that `--bind` gives to the names of checkpoints."""
        return _bound(self.binds)

    def files(self, name: str = "main") -> dict[str, LabelledFiles]:
        """The labelled text of every task, by the name of the task's source; `name` is the source that `train` and `dev` belong
        to."""
        from cloze.checkpoint.several import FIRST, LabelledFiles

        train, dev = ((str(part),) if isinstance(part, (str, Path)) else tuple(map(str, part)) for part in (self.train, self.dev))
        return {
            **({} if self.first is None else {FIRST: self.first}),
            **(self.tasks or {name: LabelledFiles(self.task_name, train, dev)})
        }

    def words(self) -> tuple[str, ...]:
        """The command line that `run.json` records: all that decides what is trained and measured, without `device`, `extend`,
        `overwrite` and `tune`; empty if none says the same (several files of one kind)."""
        from cloze.corpus.readers.hub_tables import with_dataset_names  # loads numpy, which help does not need

        tasks = self.tasks or {"": self.files()["main"]}
        if any(len(files) != 1 for task in tasks.values() for files in (task.train, task.dev)):
            return ()
        words = ["cloze", "finetune", name_of(Path(self.checkpoint)) or str(self.checkpoint)]
        if self.first is not None:
            words += ["--first", _typed(self.first)]
        if self.tasks:
            words += [word for name, task in self.tasks.items() for word in ("--task", f"{name}={_typed(task)}")]
        else:
            recipe_says_task = self.recipe is not None or str(self.checkpoint) in SCRATCH_TASKS  # a recipe says which task it is
            words += ["--task", self.task_name] if self.task is not None or not recipe_says_task else []
            words += words_of(self, "train", "dev")
        words += words_of(
            self, "init", "encoding", "recipe", "overrides", "binds", "annotate", "items", "picture", "changes", "fit",
            "auxiliary", "with_files", "track", "track_model",
        )
        words += ["--seeds", ",".join(map(str, self.seeds))] if tuple(self.seeds) != (1,) else []
        words += words_of(self, "test") + ([] if self.baselines else ["--no-baselines"])
        words += words_of(self, "mix_ngrams", "keep_checkpoints")
        return (*map(with_dataset_names, words), "--out", str(self.out))


def _bound(binds: Sequence[str]) -> BoundCheckpoints:
    from cloze.checkpoint.bound import BoundCheckpoints
    from cloze.runs.binds import parse_binds

    return BoundCheckpoints({name: local_folder(paths[0]) for name, paths in parse_binds(binds).items()})


def _typed(task: LabelledFiles) -> str:
    """A task as it is typed: TYPE:TRAIN,DEV."""
    return f"{task.recipe}:{','.join(task.train)},{','.join(task.dev)}"
