"""A user's request: what the options of `cloze pretrain` mean. `cloze finetune` makes the request of its run itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cloze.checkpoint.borrowed import origins_of
from cloze.checkpoint.build import build_part
from cloze.checkpoint.checks.check import check_recipe
from cloze.corpus import Store
from cloze.corpus.readers.formats import with_column
from cloze.corpus.readers.hub_datasets import is_dataset
from cloze.corpus.shards.place import is_address
from cloze.corpus.shards.remote import ShardCache, local_store
from cloze.errors import BudgetError, CheckpointError, CorpusError, RecipeError, Say, propose
from cloze.recipe.load import pretraining_recipe_names, tuning_recipe_names
from cloze.recipe.origins import bound_checkpoints, checkpoint_names
from cloze.recipe.recipe import Recipe, Stage
from cloze.runs.binds import bound_tables, check_binds, parse_binds, parse_inits
from cloze.runs.held_texts import parse_measured
from cloze.runs.options import PretrainOptions, say_of
from cloze.text import Tokenizer
from cloze.training.run import read_run_record
from cloze.training.schedule.budget import Budget
from cloze.training.trackers import require_trackers


@dataclass(frozen=True)
class Request:
    """What a run is asked for: the `options` as the user gave them, and what is derived from them. For `cloze finetune` they are
    the `PretrainOptions` that say the same, which the rest of `runs` reads.

    `corpus` are the paths of this run, which may be a stage. `binds` are paths of sources by name, `checkpoints` the folders of
    the checkpoints that networks come `from`. `fit`: fit the recipe to the budget; otherwise it is trained as written. `dev` are
    the files of the dev set of each source of labelled text, `init` the folders that networks start from by name ("" is the
    exported one), `measure` texts by name that the run is measured on before and after. `command` is the command that started the
    run, as words. `starts_from_stage`: of a stage, whether its exported network starts from the weights of an earlier one.
    `closed`: the run has finished and keeps no checkpoints; what it was started with is compared, and nothing is trained.
    """

    options: PretrainOptions
    corpus: Sequence[str]
    binds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    dev: Mapping[str, Sequence[str]] = field(default_factory=dict)
    init: Mapping[str, Path] = field(default_factory=dict)
    measure: Mapping[str, str] = field(default_factory=dict)
    fit: bool = False
    command: tuple[str, ...] = ()
    starts_from_stage: bool = False
    closed: bool = False

    def replaced(self, **options: Any) -> Request:
        """The request with other options."""
        return replace(self, options=replace(self.options, **options))

    def continues(self, recipe: Recipe) -> bool:
        """Whether the exported network of a recipe starts from a checkpoint that the user gave."""
        origin = recipe.exported.origin
        return bool({"", recipe.export} & self.init.keys()) if origin is None else origin in self.checkpoints

    @property
    def say(self) -> Say:
        """Where messages before and after training go (`say_of`)."""
        return say_of(self.options.report)


def load_request(options: PretrainOptions) -> tuple[Recipe, Request]:
    """The checked recipe of a `cloze pretrain`, and the request. Raises a `ClozeError` before any text is read.

    The options of the request are in their final form: `text_format` also says the encoding and the column
    (`jsonl@iso8859-1:body`), and `init` has local folders.
    """
    if (name := str(options.recipe)) in tuning_recipe_names() and not Path(name).exists():
        raise RecipeError(
            f"{name}: this recipe is for fine-tuning, on labelled text.\n"
            f"  cloze finetune CHECKPOINT --recipe {name} --train FILE --dev FILE --out DIR"
        )
    require_trackers(options.track, model=options.track_model)
    bound, inits = parse_binds(options.binds), parse_inits(options.init)
    cache = ShardCache.parse(options.cache)
    paths = [options.corpus] if isinstance(options.corpus, (str, Path)) else options.corpus
    options = replace(
        options, corpus=[_local_path(_checked_path(path), cache) for path in paths],
        held_out=None if options.held_out is None else [_local_path(path, cache) for path in options.held_out],
        text_format=with_column(options.text_format, options.column, options.encoding), column=None, encoding=None,
        init=[f"{name}={folder}" if name else str(folder) for name, folder in inits.items()],
    )
    recipe = options.load()
    if tables := bound_tables(recipe, bound):
        bound = {name: bind_paths for name, bind_paths in bound.items() if name not in tables}
        options = replace(options, overrides=(*options.overrides, *tables.values()))
        recipe = options.load()
    check_recipe(recipe)
    checkpoints = bound_checkpoints(recipe, bound)
    check_binds(recipe, bound, checkpoint_names(recipe))
    require_networks(inits, recipe)
    return recipe, Request(
        options, options.paths, {name: bind_paths for name, bind_paths in bound.items() if name not in checkpoints},
        checkpoints, init=inits, measure=parse_measured(options.measure), command=options.words(),
        fit=to_be_fitted(options, recipe) or (options.fit is None and _was_fitted(options.folder)),
    )


def _was_fitted(out: Path) -> bool:
    """Whether there is a run that was fitted, or a stage of it: the command that resumes it need not say so."""
    records = map(read_run_record, (out, *out.glob("cloze/stages/*")))
    return any(record.get("fitted") for record in records if record is not None)


def _local_path(path: str, cache: ShardCache) -> str:
    """The path itself; for a remote store, the local folder through which it is read."""
    return str(local_store(path, cache)) if is_address(path) and not is_dataset(path) else path


def _checked_path(value: Any) -> str:
    """A path as text. Raises `CorpusError` if it is no path but the text itself."""
    text = value if isinstance(value, str) else ""
    is_text = len(text) > 1000 or "\n" in text or (" " in text and not re.search(r"[/*\\]|\.\w{1,7}$", text))
    if not isinstance(value, (str, Path)) or (is_text and not os.path.exists(text)):
        start = repr(text[:40] + ("…" if len(text) > 40 else ""))
        problem = f"{start} names no file and looks like text" if text else f"a {type(value).__name__} is no path"
        raise CorpusError(
            f"corpus: {problem}; expected files, folders, patterns such as 'texts/*.txt', or a token store.\n"
            "  From Python, pass texts in memory as a list: cloze.pretrain(recipe, corpus=[text, …], …)."
        )
    return str(value)


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


def to_be_fitted(options: PretrainOptions, recipe: Recipe) -> bool:
    """Whether to fit the recipe: as the command says, or because it comes with cloze and its size or budget is not the published
    one.

    A recipe file of the user's own, and the recipe of a run, are trained as written unless the command says otherwise.
    """
    if options.fit is not None:
        return options.fit
    training = recipe.training
    published = [(training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")]
    published_budgets = {str(Budget.parse(f"{amount}{unit}")) for amount, unit in published if amount}
    budget = options.budget
    differs = options.size is not None or (budget is not None and str(Budget.parse(budget)) not in published_budgets)
    return differs and str(options.recipe) in pretraining_recipe_names()


def choose_budget(recipe: Recipe, option: str | None, out: Path, *, extend: bool = False) -> Budget:
    """The given budget, else that of the run in `out`, else the published one of the recipe."""
    if option is not None:
        return Budget.parse(option)
    old = None if extend else read_run_record(out)
    if old is not None:
        return Budget.parse(old["budget"])
    training = recipe.training
    for amount, unit in ((training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")):
        if amount:
            return Budget.parse(f"{amount}{unit}")
    raise BudgetError(f"{recipe.name}: has no budget of its own. Set one with --budget, such as 10m or 50Mtokens.")


def bound_to(stage: Stage, recipe: Recipe, request: Request) -> tuple[list[str], dict[str, Sequence[str]]]:
    """The paths of the corpus and the binds for the sources of a stage; the corpus is for the first source of the whole
    recipe."""
    first = next(iter(recipe.stages[0].recipe.sources))
    binds = {name: paths for name, paths in request.binds.items() if name in stage.recipe.sources}
    return (list(request.corpus) if first in stage.recipe.sources else []), binds


def run_origins(recipe: Recipe, request: Request, done: Mapping[str, Path]) -> dict[str, Path]:
    """The checkpoint that each network begins with, the exported network first; `done` are the folders of finished stages.

    `--init` is for networks without `from`, by default for the exported one.
    """
    folders = origins_of(recipe, {**request.checkpoints, **done})
    init_folders = {} if done else {name or recipe.export: folder for name, folder in request.init.items()}
    for name, folder in init_folders.items():
        if name in folders:
            raise RecipeError(
                f"--init {folder}: the network {name!r} of {recipe.name} comes from {recipe.networks[name].origin!r} already. "
                "Omit --init."
            )
    started_networks = {*folders, *(name or recipe.export for name in request.init)}
    for name, network in recipe.networks.items():
        if name in started_networks or request.options.drop_stage_origins:  # its weights may come from an earlier stage
            continue
        for change in network.change:
            if build_part(change).needs_checkpoint:
                raise RecipeError(
                    f"networks.{name}.change: {change.name} changes the weights of a checkpoint, but this network starts at "
                    "random.\n  Write `from:`, give a checkpoint with --init, or leave the change out."
                )
    folders = {**folders, **init_folders}
    return dict(sorted(folders.items(), key=lambda item: item[0] != recipe.export))


def tokenizer_for(recipe: Recipe, request: Request, origins: Mapping[str, Path]) -> Path | Tokenizer | None:
    """The tokenizer for the text: that of `--tokenizer`, else that of a checkpoint, with the special tokens that changes add.

    Of the checkpoints in `origins`, it is the first one whose network keeps its ids: not one whose rows are mapped to another
    vocabulary, by `--init` or by a change. None if there is none: a tokenizer is then trained on the text.
    """
    if request.options.tokenizer is not None:
        return request.options.tokenizer
    is_store = len(request.corpus) == 1 and Store.is_store(request.corpus[0])
    by_word = "main" in recipe.texts and recipe.texts["main"].tokenizer.name == "words"
    for name, folder in origins.items():
        network = recipe.networks[name]
        maps_words = network.origin is None and (by_word or is_store)  # --init, which takes rows over word by word
        changes = [build_part(part) for part in network.change]
        marks = {role: token for change in changes for role, token in change.marks.items()}
        if marks:
            return Tokenizer.load(folder).with_marks(marks)
        if not maps_words and not any(change.changes_vocabulary for change in changes):
            return folder
    return None
