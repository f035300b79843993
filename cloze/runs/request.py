"""A user's request: the command line of `cloze pretrain` and the meaning of its options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, Unpack

from cloze.checkpoint.build import build_part
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.references import BoundCheckpoints, origins_of
from cloze.corpus import Store
from cloze.corpus.shards.place import is_address
from cloze.corpus.shards.remote import Cache, local_store
from cloze.errors import BudgetError, CheckpointError, CorpusError, RecipeError, propose
from cloze.processes import rank
from cloze.recipe.changes import type_of
from cloze.recipe.load import load_recipe, pretraining_recipe_names, tuning_recipe_names
from cloze.recipe.origins import bound_checkpoints, checkpoint_names
from cloze.recipe.recipe import Recipe, Stage
from cloze.runs.binds import bound_tables, check_binds, parse_binds
from cloze.runs.held_texts import parse_measured
from cloze.training.distribution import Strategy
from cloze.training.run import read_run_record
from cloze.training.schedule.budget import Budget

Say = Callable[[str], None]
#: One checkpoint or several, each a folder or `NETWORK=FOLDER`, or a mapping from networks to folders.
Inits = str | Path | Sequence[str | Path] | Mapping[str, Path] | None

TOKENIZER = "--tokenizer"
#: How a command says whether to fit the recipe; None: built-in recipes are fitted, others are not.
FITTING = {None: (), True: ("--fit",), False: ("--as-published",)}


class CommandLine(NamedTuple):
    """A `cloze pretrain` command as the user typed it.

    `fit`: `--fit` or `--as-published`, if one of them is given. `options` are the other options, `checkpoints` the folder of each
    checkpoint by name. `stage` selects one stage of the recipe; `without_earlier`: nothing comes from another stage.
    """

    recipe: str
    corpus: Sequence[str] = ()
    out: str = "RUN"
    budget: str | None = None
    size: str | None = None
    overrides: Sequence[str] = ()
    with_files: Sequence[str] = ()
    fit: bool | None = None
    options: Sequence[str] = ()
    stage: str | None = None
    checkpoints: Mapping[str, Path] = MappingProxyType({})
    without_earlier: bool = False

    def load(self, values: Sequence[str] = (), **changes: Any) -> Recipe:
        """The recipe with these `values` set (`path=value`). The user's own values are set after them and win. `changes` replace
        fields."""
        new = self._replace(**changes)
        first = [value if new.stage is None else f"stages.{new.stage}.{value}" for value in values]
        loaded = load_recipe(
            new.recipe, size=new.size, overrides=[*first, *new.overrides], with_files=new.with_files,
            checkpoints=BoundCheckpoints(new.checkpoints),
        )
        if new.stage is None:
            return loaded
        stage_recipe = next(stage.recipe for stage in loaded.stages if stage.name == new.stage)
        if new.without_earlier:
            stages = {stage.name for stage in loaded.stages}
            networks = {name: replace(n, origin=None) if n.origin in stages else n for name, n in stage_recipe.networks.items()}
            return replace(stage_recipe, networks=networks)
        return replace(stage_recipe, stages=loaded.stages) if new.stage == loaded.stages[-1].name else stage_recipe

    def command(self, **changes: Any) -> str:
        """The command line, with other values in it."""
        return shlex.join(self.words(**changes))

    def words(self, **changes: Any) -> tuple[str, ...]:
        """The words of the command line, with other values in it."""
        new = self._replace(**changes)
        words = ["cloze", "pretrain", new.recipe]
        words += ["--size", new.size] if new.size else []
        words += ["--corpus", *new.corpus] if len(new.corpus) == 1 else [w for path in new.corpus for w in ("--corpus", path)]
        words += ["--budget", new.budget] if new.budget else []
        words += [word for override in new.overrides for word in ("--set", override)]
        words += [word for file in new.with_files for word in ("--with", file)]
        return (*words, *FITTING[new.fit], *new.options, "--out", new.out)


@dataclass(frozen=True)
class Request:
    """The options of a run; see `pretrain`.

    `binds` are paths of sources by name, `checkpoints` the folders of the checkpoints that networks come `from`. `fit`: fit the
    recipe to the budget; otherwise it is trained as written. `dev` are the files of the dev set of each source of labelled text,
    `held_out` the files of held-out text that replace a share of the corpus, `init` the folders that networks start from by
    name ("" is the exported one), `measure` texts by name that the run is measured on
    before and after. `command` is the command that started the run, as words. `until`: the share of the budget at which the run
    pauses. `shard`: under FSDP, how many processes hold the parameters once. `mirror`: a URL for copies of the checkpoints.
    `later`: of a stage, whether its exported network starts from the weights of an earlier one. `closed`: the run has finished
    and keeps no checkpoints; what it was started with is compared, and nothing is trained.
    """

    command_line: CommandLine
    corpus: Sequence[str]
    binds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    tokenizer: Path | None = None
    held_out: Sequence[str] | None = None
    dev: Mapping[str, Sequence[str]] = field(default_factory=dict)
    text_format: str = "auto"
    seed: int = 0
    device: str = "auto"
    extend: bool = False
    tensorboard: bool = False
    strategy: Strategy = "ddp"
    init: Mapping[str, Path] = field(default_factory=dict)
    measure: Mapping[str, str] = field(default_factory=dict)
    report: Say | None = None
    fit: bool = False
    verbose: bool = False
    command: tuple[str, ...] = ()
    until: float = 1.0
    shard: int | None = None
    mirror: str | None = None
    later: bool = False
    closed: bool = False

    def continues(self, recipe: Recipe) -> bool:
        """Whether the exported network of a recipe starts from a checkpoint that the user gave."""
        origin = recipe.exported.origin
        return bool({"", recipe.export} & self.init.keys()) if origin is None else origin in self.checkpoints

    @property
    def say(self) -> Say:
        """Where messages before and after training go: of several processes, those of the first."""
        return (self.report or print) if rank() == 0 else lambda text: None


class Passed(TypedDict, total=False):
    """The options of a run that are fields of `Request` as they are."""

    tokenizer: Path | None
    seed: int
    device: str
    extend: bool
    tensorboard: bool
    strategy: Strategy
    report: Say | None
    verbose: bool
    until: float
    shard: int | None
    mirror: str | None


class Options(Passed, total=False):
    """All options of a run, which `pretrain` explains: those of `cloze pretrain`."""

    budget: str | None
    size: str | None
    overrides: Sequence[str]
    with_files: Sequence[Path]
    held_out: Sequence[str] | None
    init: Inits
    text_format: str
    binds: Sequence[str]
    fit: bool | None
    measure: Sequence[str]
    cache: str | None


def requested(
    recipe: str | Path, corpus: Sequence[str | Path] | str | Path, out: Path | str = "RUN", *, budget: str | None = None,
    size: str | None = None, overrides: Sequence[str] = (), with_files: Sequence[Path] = (),
    held_out: Sequence[str] | None = None, init: Inits = (), text_format: str = "auto", binds: Sequence[str] = (),
    fit: bool | None = None, measure: Sequence[str] = (), cache: str | None = None,
    **options: Unpack[Passed],
) -> tuple[Recipe, Request]:
    """The checked recipe of a `cloze pretrain`, and the request. Each argument is one of its `Options`.

    Raises a `ClozeError` before any text is read.
    """
    if (name := str(recipe)) in tuning_recipe_names() and not Path(name).exists():
        raise RecipeError(
            f"{name}: this recipe is for fine-tuning, on labelled text.\n"
            f"  cloze finetune CHECKPOINT --recipe {name} --train FILE --dev FILE --out DIR"
        )
    bound, inits = parse_binds(binds), parse_inits(init)
    room = Cache.parse(cache)
    paths = [_near(_path(path), room) for path in ([corpus] if isinstance(corpus, (str, Path)) else corpus)]
    held_out = None if held_out is None else [_near(path, room) for path in held_out]
    more = {
        "tokenizer": options.get("tokenizer"), "held-out": held_out, "format": text_format,
        "init": [f"{name}={folder}" if name else str(folder) for name, folder in inits.items()],
        "bind": binds, "seed": options.get("seed"), "device": options.get("device"), "measure": measure,
    }
    command_line = CommandLine(
        str(recipe), paths, str(out), budget, size, tuple(overrides), tuple(map(str, with_files)),
        fit, _typed(more),
        checkpoints=BoundCheckpoints({name: Path(bind_paths[0]) for name, bind_paths in bound.items()}),
    )
    loaded = command_line.load()
    tables = bound_tables(loaded, bound)
    if tables:
        bound = {name: bind_paths for name, bind_paths in bound.items() if name not in tables}
        loaded = (command_line := command_line._replace(overrides=(*overrides, *tables.values()))).load()
    check_recipe(loaded)
    checkpoints = bound_checkpoints(loaded, bound)
    check_binds(loaded, bound, checkpoint_names(loaded))
    require_networks(inits, loaded)
    return loaded, Request(
        command_line, command_line.corpus, {name: bind_paths for name, bind_paths in bound.items() if name not in checkpoints},
        checkpoints, held_out=held_out, text_format=text_format, init=inits,
        measure=parse_measured(measure),
        fit=to_be_fitted(command_line, loaded) or (fit is None and _was_fitted(Path(out))), command=command_line.words(),
        **options,
    )


def _was_fitted(out: Path) -> bool:
    """Whether there is a run that was fitted, or a stage of it: the command that resumes it need not say so."""
    records = map(read_run_record, (out, *out.glob("cloze/stages/*")))
    return any(record.get("fitted") for record in records if record is not None)


def _typed(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options by name as words of a command line; those that have their default are omitted."""
    return tuple(
        word for name, argument in options.items() if argument not in (None, "auto", 0, ()) for entry in
        (argument if isinstance(argument, (list, tuple)) else [argument]) for word in (f"--{name}", str(entry))
    )


def _near(path: str, cache: Cache) -> str:
    """A path; of a store at an address, the folder through which it is read."""
    return str(local_store(path, cache)) if is_address(path) else path


def _path(given: Any) -> str:
    """A path as text; text that was given in its place is a `CorpusError`."""
    text = given if isinstance(given, str) else ""
    is_text = len(text) > 1000 or "\n" in text or (" " in text and not re.search(r"[/*\\]|\.\w{1,7}$", text))
    if not isinstance(given, (str, Path)) or (is_text and not os.path.exists(text)):
        start = repr(text[:40] + ("…" if len(text) > 40 else ""))
        problem = f"{start} names no file and looks like text" if text else f"a {type(given).__name__} is no path"
        raise CorpusError(
            f"corpus: {problem}; expected files, folders, patterns such as 'texts/*.txt', or a token store.\n"
            "  From Python, pass texts in memory as a list: cloze.pretrain(recipe, corpus=[text, …], …)."
        )
    return str(given)


def parse_inits(given: Inits) -> dict[str, Path]:
    """The folder of each `--init [NETWORK=]DIR` by the name of the network, "" for the exported one.

    Raises `CheckpointError` for a folder that does not exist, and for two checkpoints for one network.
    """
    if isinstance(given, Mapping):
        pairs = [(name, Path(folder)) for name, folder in given.items()]
    else:
        pairs = [_init(str(option)) for option in ([given] if isinstance(given, (str, Path)) else given or ())]
    folders: dict[str, Path] = {}
    for name, folder in pairs:
        if not folder.is_dir():
            raise CheckpointError(f"{folder}: there is no such folder. --init takes a run folder or a Hugging Face folder.")
        if name in folders:
            what = f"the network {name!r}" if name else "the exported network"
            raise CheckpointError(f"--init: {what} has two checkpoints, {folders[name]} and {folder}. Give one.")
        folders[name] = folder
    return folders


def _init(given: str) -> tuple[str, Path]:
    """The network and the folder of one `--init`; a folder may have = in its name."""
    name, equals, path = given.partition("=")
    return (name, Path(path)) if equals and path and not Path(given).is_dir() else ("", Path(given))


def require_networks(inits: Mapping[str, Path], recipe: Recipe) -> None:
    """Refuse a `--init NETWORK=DIR` for a network that is not in the recipe, or in its first stage, or that has a checkpoint."""
    first = recipe.stages[0].recipe if recipe.stages else recipe
    for name, folder in inits.items():
        if name and name not in first.networks:
            raise RecipeError(f"--init {name}={folder}: {recipe.name} has no network {name!r}. {propose(name, first.networks)}")
    if "" in inits and first.export in inits:
        raise CheckpointError(
            f"--init: the exported network {first.export!r} has two checkpoints, {inits['']} and {inits[first.export]}. Give one."
        )


def to_be_fitted(command_line: CommandLine, recipe: Recipe) -> bool:
    """Whether to fit the recipe: as the command says, or because it comes with cloze and its size or budget is not the published
    one.

    A recipe file of the user's own, and the recipe of a run, are trained as written unless the command says otherwise.
    """
    if command_line.fit is not None:
        return command_line.fit
    training = recipe.training
    published = [(training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")]
    same = {str(Budget.parse(f"{amount}{unit}")) for amount, unit in published if amount}
    budget = command_line.budget
    other = command_line.size is not None or (budget is not None and str(Budget.parse(budget)) not in same)
    return other and command_line.recipe in pretraining_recipe_names()


def the_budget(recipe: Recipe, given: str | None, out: Path, *, extend: bool = False) -> Budget:
    """The given budget, else that of the run in `out`, else the published one of the recipe."""
    if given is not None:
        return Budget.parse(given)
    old = None if extend else read_run_record(out)
    if old is not None:
        return Budget.parse(old["budget"])
    training = recipe.training
    for amount, unit in ((training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")):
        if amount:
            return Budget.parse(f"{amount}{unit}")
    raise BudgetError(f"{recipe.name}: has no budget of its own. Set one with --budget, such as 10m or 50Mtokens.")


def bound_to(stage: Stage, loaded: Recipe, request: Request) -> tuple[list[str], dict[str, Sequence[str]]]:
    """The paths and binds for the sources of a stage; `--corpus` is for the first source of the whole recipe."""
    first = next(iter(loaded.stages[0].recipe.sources))
    binds = {name: paths for name, paths in request.binds.items() if name in stage.recipe.sources}
    return (list(request.corpus) if first in stage.recipe.sources else []), binds


def begin_of(recipe: Recipe, request: Request, done: Mapping[str, Path]) -> dict[str, Path]:
    """The checkpoint that each network begins with, the exported network first; `done` are the folders of earlier stages.

    `--init` is for networks without `from`, by default for the exported one.
    """
    folders = origins_of(recipe, {**request.checkpoints, **done})
    init_folders = {} if done else {name or recipe.export: folder for name, folder in request.init.items()}
    for label, folder in init_folders.items():
        if label in folders:
            raise RecipeError(
                f"--init {folder}: the network {label!r} of {recipe.name} comes from {recipe.networks[label].origin!r} already. "
                "Omit --init."
            )
    started_networks = {*folders, *(name or recipe.export for name in request.init)}
    for label, network in recipe.networks.items():
        later = request.command_line.without_earlier  # its weights come from an earlier stage
        if label in started_networks or later:
            continue
        for change in network.change:
            if build_part(change).needs_checkpoint:
                raise RecipeError(
                    f"networks.{label}.change: {change.name} changes the weights of a checkpoint, but this network starts at "
                    "random.\n  Write `from:`, give a checkpoint with --init, or leave the change out."
                )
    folders = {**folders, **init_folders}
    return dict(sorted(folders.items(), key=lambda item: item[0] != recipe.export))


def tokenizer_for(recipe: Recipe, request: Request, begin: Mapping[str, Path]) -> Path | None:
    """The tokenizer for the text: the given one, else that of the checkpoint to start from.

    None if there is neither, or if a change maps the rows of one vocabulary to another: then a tokenizer is trained on the text.
    """
    if request.tokenizer is not None:
        return request.tokenizer
    is_store = len(request.corpus) == 1 and Store.is_store(request.corpus[0])
    by_word = "main" in recipe.texts and recipe.texts["main"].tokenizer.name == "words"
    for label, folder in begin.items():
        network = recipe.networks[label]
        own_tokenizer = network.origin is None and (by_word or is_store)  # --init, which takes rows over word by word
        if not own_tokenizer and not any(type_of(part.name).changes_vocabulary for part in network.change):
            return folder
    return None
