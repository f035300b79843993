"""The recipe of a fine-tuning run: that of a task, put onto a checkpoint and fitted to it and to the labelled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from cloze.budget.fit_length import fit_lengths, fit_targets
from cloze.budget.fit_task import facts_of, fit_changes, fit_pools, fit_task, fit_texts
from cloze.budget.fitted import apply_unless_overridden, table_of
from cloze.budget.row_counts import RowCounts
from cloze.checkpoint.annotators import LayerAnnotators, add_annotators, parse_annotators, sources_that_take
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.complete import CheckpointFacts, depth_groups, put_onto
from cloze.checkpoint.new_heads import is_sentence_encoder
from cloze.checkpoint.several import START, LabelledFiles, recipe_of_tasks, similar_task, staged_recipe
from cloze.decoding.pictures import files_of, first_picture, require_items
from cloze.decoding.reader import Reader
from cloze.document import Node, from_data
from cloze.errors import Say, TaskError, propose
from cloze.recipe.load import (
    folders_of_recipes,
    load_recipe,
    overrides_of_heads,
    read_tree,
    scratch_task_recipe_names,
    task_recipe_names,
)
from cloze.recipe.origins import add_changes, origins_in
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import repeat_overrides, repeat_stages, repeats
from cloze.runs.binds import bound_tables, parse_binds
from cloze.runs.finetuning.auxiliary import add_language_model
from cloze.runs.options import FinetuneOptions, quiet

PICTURE = "image"  # the column with the key of a row's picture, unless the user names another
VECTORS = "vectors"  # the table that `--init` adds to a recipe
_WAYS_OUT = "published → fitted; --as-published keeps the recipe, --set overrides"
_OF_CHECKPOINT = ("text", "tables", "network", "order", "reading")  # keys of a recipe whose values the checkpoint gives


class RecipeMaker(Protocol):
    """Makes the recipe of a run, fitted to the `row_counts` of every source where they are given."""

    def __call__(self, *, row_counts: Mapping[str, RowCounts] | None = None, report: Say = ...) -> Recipe: ...


def recipe_onto(
    recipe: str | Path | Mapping[str, Any], loaded: Loaded, *, overrides: Sequence[str] = (), changes: Sequence[str] = (),
    auxiliary: str | None = None, annotate: LayerAnnotators | None = None, items: Sequence[str] = (), picture: str | None = None,
    with_files: Sequence[Path] = (), checkpoints: Mapping[str, Path] | None = None,
    teachers: Mapping[str, CheckpointFacts] | None = None, row_counts: Mapping[str, RowCounts] | None = None,
    from_scratch: bool = False, fit: bool | None = None, report: Say = quiet,
) -> Recipe:
    """A recipe that begins with a checkpoint, completed by the checkpoint's own description.

    A recipe of cloze's own, or any if `fit` is true and none if it is false, is fitted to the checkpoint (`fit_task.py`), and to
    the `row_counts` of every source where they are given; `report` gets the table of what was changed. `changes` are done to the
    checkpoint's network; `auxiliary` is the weight of its language model, which is trained along. `annotate` are annotators of
    its labelled text by layer, `items` the files with the pictures that its rows are about. `checkpoints` are further ones that
    it asks for, and `teachers` describes them. With `from_scratch` the network will start at random, so the fit makes no change
    of its weights. A stage that begins with an earlier one reads text as the checkpoint does, too.
    """
    tree = read_tree(recipe)
    if repeats(tree):
        overrides = repeat_overrides(tree, overrides, depth_groups(loaded))
        tree = repeat_stages(tree, depth_groups(loaded))
    add_changes(tree, changes, START)
    if auxiliary is not None:
        add_language_model(tree, auxiliary, START, loaded)
    add_annotators(tree, annotate or {})
    if items:
        add_items(tree, loaded, items, picture or PICTURE)
    stages = tree.value["stages"].value if tree.is_mapping and "stages" in tree.value else {}
    facts_by_name = {**dict.fromkeys([START, *map(str, stages or ())], CheckpointFacts.of(loaded)), **(teachers or {})}

    def load(values: Sequence[str], head_values: Sequence[str] = ()) -> Recipe:
        """The recipe with these values, unless `overrides` set them. `head_values` come first, since they are of objectives that
        the checkpoint's own replace."""
        return load_recipe(
            tree, overrides=[*head_values, *values, *overrides], with_files=with_files,
            checkpoints=BoundCheckpoints({**(checkpoints or {}), START: Path(loaded.folder)}),
            complete=lambda root, faults: put_onto(root, facts_by_name, faults),
        )

    comes_with_cloze = isinstance(recipe, Mapping) or str(recipe) in folders_of_recipes()
    if not (comes_with_cloze if fit is None else fit):
        return load([])
    as_written = load_recipe(tree, overrides=overrides_of_heads(tree, overrides))
    reader = Reader.of(loaded)
    max_length = min((limit for limit in (reader.max_length, reader.network.max_length) if limit is not None), default=None)
    source_lengths = {name: counts.lengths for name, counts in (row_counts or {}).items() if counts.lengths}
    # Lengths are fitted first: a recipe longer than the checkpoint's limit does not load.
    lengths = [*fit_lengths(as_written, {}, max_length), *fit_targets(as_written, source_lengths, max_length)]
    lengths += fit_lengths(load([change.override for change in lengths]), source_lengths, max_length)
    unfitted = load([change.override for change in lengths])
    width = int(loaded.network.width)  # type: ignore[arg-type]
    task_facts = facts_of(
        loaded.recipe, row_counts=row_counts, width=width, means=is_sentence_encoder(loaded), random=from_scratch
    )
    network_changes = [] if from_scratch else fit_changes(as_written, unfitted, task_facts)
    if network_changes:
        add_changes(tree, [str(change.fitted) for change in network_changes], START)
    head_changes = [] if from_scratch else fit_pools(as_written, unfitted, task_facts)
    load_fitted = partial(load, head_values=[change.override for change in head_changes])
    if head_changes:
        unfitted = load_fitted([change.override for change in lengths])
    proposals = [*lengths, *fit_task(unfitted, task_facts)]
    accepted, fitted_recipe = apply_unless_overridden(load_fitted, proposals)
    if user_paths := [change.path for change in proposals if change not in accepted]:  # fit the others to the user's values
        proposals = [*lengths, *fit_task(unfitted, task_facts, fixed_paths=user_paths)]
        accepted, fitted_recipe = apply_unless_overridden(load_fitted, proposals)
    accepted = [*head_changes, *accepted]
    if accepted or network_changes:
        counted = "" if row_counts is None else f"{sum(counts.rows for counts in row_counts.values()):,} rows and "
        title = f"{fitted_recipe.name} fitted to {counted}this checkpoint ({_WAYS_OUT}):"
        report(table_of(title, accepted, [change.override for change in accepted], of_network=network_changes))
    return fitted_recipe


def add_items(tree: Node, loaded: Loaded, files: Sequence[str], picture: str) -> None:
    """Give every source of labelled text of a recipe, and of its stages, the items of pictures: the arrays that the checkpoint's
    network reads, their `files` (`NAME=FILE` or `FILE`), and the column of the keys. Files that it cannot read are an error."""
    item_files = files_of(loaded, files)
    sets = {name: first_picture(name, path) for name, path in item_files.items()}
    require_items(loaded, sets, " ".join(item_files.values()))
    takes: frozenset[str] = loaded.network.takes  # type: ignore[assignment]
    items = {
        name: [array for array, kind in item_set.kinds.items() if kind.field(name, array) in takes]
        for name, item_set in sets.items()
    }
    for source, arguments in sources_that_take("item_files", tree):
        for key, value in {"items": items, "item_files": item_files, "picture": picture}.items():
            arguments.put(key, from_data(value, source.where))


def is_recipe_without_checkpoint(checkpoint: str | Path) -> bool:
    """Whether a recipe is named in place of a checkpoint: one of a task that begins at random."""
    return str(checkpoint) in scratch_task_recipe_names() and not Path(checkpoint).is_dir()


def recipe_maker(options: FinetuneOptions, loaded: Loaded | None) -> RecipeMaker:
    """What makes the recipe onto a checkpoint; of a task that begins at random (None), its recipe as it is written.

    Rows that belong to documents cannot be tuned: a `TaskError`.
    """
    if loaded is None:
        return _maker_without_checkpoint(options)
    if options.init is not None:
        raise TaskError(
            f"--init {options.init}: is for a recipe that starts without a checkpoint, such as fasttext-supervised; "
            f"{options.checkpoint} has weights. Leave --init out."
        )
    network: Any = loaded.network
    if network.of_documents:
        raise TaskError(
            f"{loaded.folder}: holds vectors of documents, and a task has no documents of that corpus to tune.\n"
            f"  Use vectors of the task's texts as features of a classifier: cloze embed {quote(str(loaded.folder))} "
            "--file TEXTS --out VECTORS.npy"
        )
    recipe: Any = recipe_for(options, loaded)
    recipe = continuing_recipe(str(recipe), loaded) if str(recipe) in scratch_task_recipe_names() else recipe
    origins, bound = origins_in(read_tree(recipe)), options.checkpoints
    make = partial(
        recipe_onto, recipe, loaded, checkpoints=bound,
        teachers={name: CheckpointFacts.of(load_checkpoint(folder)) for name, folder in bound.items() if name in origins},
        overrides=options.overrides, changes=options.changes, auxiliary=options.auxiliary,
        annotate=parse_annotators(options.annotate), items=options.items, picture=options.picture,
        with_files=options.with_files, from_scratch=options.from_scratch, fit=options.fit,
    )
    tables = bound_tables(make(), parse_binds(options.binds)) if options.binds else {}
    return partial(make, overrides=[*options.overrides, *tables.values()])


def _maker_without_checkpoint(options: FinetuneOptions) -> RecipeMaker:
    """What makes a recipe that begins without a checkpoint."""
    name = scratch_recipe_of(options)
    recipe = name if options.init is None else with_vectors(name, options.init)

    def load(values: Sequence[str]) -> Recipe:
        return load_recipe(recipe, overrides=[*values, *options.overrides], with_files=options.with_files)

    def make(*, row_counts: Mapping[str, RowCounts] | None = None, report: Say = quiet) -> Recipe:
        unfitted = load([])
        fits = options.recipe is None if options.fit is None else options.fit
        changes = fit_texts(unfitted, row_counts) if fits and row_counts is not None else []
        accepted, fitted_recipe = apply_unless_overridden(load, changes) if changes else ([], unfitted)
        if accepted and row_counts is not None:
            rows = sum(counts.rows for counts in row_counts.values())
            title = f"{fitted_recipe.name} fitted to {rows:,} rows ({_WAYS_OUT}):"
            report(table_of(title, accepted, [change.override for change in accepted]))
        return fitted_recipe

    return make


def recipe_for(options: FinetuneOptions, loaded: Loaded) -> str | Path | dict[str, Any]:
    """The recipe: the named one, a built-in one, or one that combines the recipes of several tasks.

    If the task has a recipe of its own for the checkpoint's recipe (ulmfit: ulmfit_classification), that one is used.
    """
    if options.recipe is not None:
        return options.recipe
    if options.first is not None:
        return staged_recipe(options.first, options.tasks or {"main": LabelledFiles(options.task_name, (), ())})
    if options.tasks:
        return recipe_of_tasks(options.tasks)
    if options.task_name not in task_recipe_names():
        raise TaskError(f"--task {options.task_name}: unknown task. {similar_task(options.task_name)}")
    recipe_of_system = f"{(loaded.recipe or {}).get('name')}_{options.task_name.removeprefix('sentence_')}"
    return recipe_of_system if recipe_of_system in task_recipe_names() else options.task_name


def scratch_recipe_of(options: FinetuneOptions) -> str | Path:
    """The task recipe of a system that needs no checkpoint, such as fasttext-supervised."""
    name = str(options.checkpoint)
    changed = {
        "--first": options.first, "--change": options.changes, "--auxiliary": options.auxiliary, "--task NAME=": options.tasks,
        "--items": options.items,
    }  # fmt: skip
    for option, argument in changed.items():
        if argument:
            raise TaskError(f"{name}: starts without a checkpoint, so {option} does not apply. Omit {option}.")
    if options.recipe is not None:
        return options.recipe
    recipes = [recipe for recipe in scratch_task_recipe_names() if recipe == name or recipe.startswith(f"{name}_")]
    by_task = {read_tree(recipe).plain()["task"]["type"]: recipe for recipe in recipes}
    if options.task is None:
        return name
    if options.task not in by_task:
        raise TaskError(f"{name}: has no recipe for --task {options.task}. {propose(options.task, by_task)}")
    return by_task[options.task]


def with_vectors(recipe: str | Path, init: Path) -> Node:
    """A recipe whose network begins with the vectors of a file or a run, and whose vocabulary also has their words.

    The network, which must have the argument `vectors`, is as wide as they are. Raises a `CheckpointError` if `init` holds no
    vectors.
    """
    from cloze.interop.vectors.opening import width_of

    width, tree = width_of(init), read_tree(recipe)
    network = tree.value.get("network")
    ((_, arguments),) = network.value.items() if network is not None and len(network.value) == 1 else ((None, None),)
    if arguments is None:
        raise TaskError(f"--init {init}: {recipe} has no single network. Name the table of vectors in the recipe itself.")
    table = from_data({"vectors": {"file": str(init), "words": "added"}}, tree.where)
    if "tables" not in tree.value:
        tree.put("tables", from_data({}, tree.where))
    tree.value["tables"].put(VECTORS, table)
    arguments.put("vectors", from_data(VECTORS, tree.where))
    arguments.put("width", from_data(width, tree.where))
    return tree


def continuing_recipe(recipe: str, loaded: Loaded) -> Node:
    """The recipe with the network, the words and the tables of a checkpoint, which must have the recipe's kind of network."""
    tree = read_tree(recipe)
    ((part, _),) = tree.value["network"].value.items()
    if loaded.imported.model.part != part:
        raise TaskError(
            f"--recipe {recipe}: trains a network {part} further, and {loaded.folder} is {loaded.imported.model.part}.\n"
            f"  To train such a classifier from the beginning: cloze finetune {recipe} --train FILE --dev FILE --out DIR"
        )
    values = {key: value for key, value in tree.value.items() if key not in _OF_CHECKPOINT}
    recipe_tree = Node(values, tree.where, tree.key_places)
    recipe_tree.put("network", from_data({"from": START, "train": "all"}, tree.where))
    return recipe_tree
