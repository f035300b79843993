"""`load_recipe`: a name, a file, a run folder or plain data → a `Recipe` whose values and references are valid.

Importing this module imports no torch; reading a recipe imports the modules of the parts it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from cloze.arguments import check_arguments
from cloze.document import Node, Where, from_data, read_text, read_yaml
from cloze.errors import RecipeError, did_you_mean, nearest
from cloze.recipe import paths
from cloze.recipe.expand import expand
from cloze.recipe.faults import Faults
from cloze.recipe.origins import CheckpointFolders, ResolvedTree, networks_of, resolve_networks
from cloze.recipe.parts import class_of, names
from cloze.recipe.read_recipe import read_sources, recipe_of
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.recipe.references import check_length, check_references
from cloze.recipe.schema import arguments_of_part, expand_part
from cloze.recipe.stages import assemble_stages
from cloze.recipe.user_files import import_files
from cloze.training.schedule.phases import MAY_SET, may_set

IN_RUN = Path("cloze") / "recipe.yaml"
_SOURCE_PREFIXES = ("corpus.", "sources.", "length=")  # prefixes of overrides that set values of sources
Complete = Callable[[Node, Faults], None]


def recipe_names() -> list[str]:
    """The names of the recipes for pre-training from text alone that come with cloze."""
    return _named()


def distillation_recipe_names() -> list[str]:
    """The names of the recipes for pre-training with a teacher, whose networks come from the teacher's checkpoint."""
    return _named("distillation")


def sentence_recipe_names() -> list[str]:
    """The names of the recipes that make an encoder of sentences of a bound checkpoint, from text alone."""
    return _named("sentences")


def linking_recipe_names() -> list[str]:
    """The names of the recipes that make an entity linker of a bound checkpoint, from text with links."""
    return _named("linking")


def pretraining_recipe_names() -> list[str]:
    """The names of all recipes for pre-training: from text alone, with a teacher, of sentences, and of links. In alphabetical
    order."""
    return sorted([*recipe_names(), *distillation_recipe_names(), *sentence_recipe_names(), *linking_recipe_names()])


def task_recipe_names() -> list[str]:
    """The names of the recipes for fine-tuning that come with cloze."""
    return _named("tasks")


def taught_task_recipe_names() -> list[str]:
    """The names of the recipes for fine-tuning with a bound teacher."""
    return _named("taught_tasks")


def tuning_recipe_names() -> list[str]:
    """The names of the recipes for fine-tuning a checkpoint, with or without a teacher."""
    return [*task_recipe_names(), *taught_task_recipe_names()]


def scratch_task_recipe_names() -> list[str]:
    """The names of the recipes for tasks that begin at random, without a checkpoint."""
    return _named("own_tasks")


@cache
def folders_of_recipes() -> dict[str, tuple[str, ...]]:
    """The folder of every recipe that comes with cloze, by its name; the empty tuple is the main folder."""
    folders = [(), ("distillation",), ("sentences",), ("linking",), ("tasks",), ("taught_tasks",), ("own_tasks",)]
    return {name: folder for folder in folders for name in _named(*folder)}


def _named(*folder: str) -> list[str]:
    files = resources.files("cloze").joinpath("recipes", *folder).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


@check_arguments
def load_recipe(
    name_or_path: str | Path | Mapping[str, Any] | Node,
    *,
    size: str | None = None,
    overrides: Sequence[str] = (),
    with_files: Iterable[str | Path] = (),
    checkpoints: CheckpointFolders | None = None,
    complete: Complete | None = None,
) -> Recipe:
    """Load a recipe and fill in every default.

    Args:
        name_or_path: A name (`bert`), a file (`mine.yaml`), a run folder, or the recipe as plain data or as a tree.
        size: tiny, mini, small, medium, base or large: rescales the networks (`--size`).
        overrides: Values to set, `["training.batch=64"]` (`--set`).
        with_files: Python files that register parts (`--with`).
        checkpoints: The folders that names of checkpoints (`from: NAME`) are bound to, `BoundCheckpoints`. None: not known yet.
        complete: Fills in `reading` and other omitted keys from the checkpoints. Default: `checkpoints.complete`.

    Raises:
        RecipeError: Holds every fault of the recipe, each with file, line and value path.
    """
    import_files(with_files)
    if complete is None and checkpoints is not None:
        complete = checkpoints.complete
    return _resolve_and_check(read_tree(name_or_path), size, overrides, checkpoints, complete)


def load_sources(name_or_path: str | Path, *, overrides: Sequence[str] = ()) -> Mapping[str, PartSpec]:
    """The sources of a recipe alone, without reading its networks and objectives, whose modules import torch.

    If the recipe has stages, or `overrides` set values of other sections, the whole recipe is read. Raises a `RecipeError` with
    every fault, as `load_recipe` does.
    """
    tree, elsewhere = read_tree(name_or_path), [option for option in overrides if not option.startswith(_SOURCE_PREFIXES)]
    if not tree.is_mapping or "stages" in tree.value or elsewhere:
        return load_recipe(name_or_path, overrides=overrides).sources
    sections = {key: tree.value[key] for key in ("corpus", "sources") if key in tree.value}
    root, faults = Node(sections, tree.where, tree.key_places), Faults()
    expand(root, faults)
    faults.raise_if_any()
    for override in overrides:
        paths.apply_override(root, override, faults)
    sources = read_sources(root, faults)
    faults.raise_if_any()
    return {name: source for name, source in sources.items() if source is not None}


def recipe_from_data(
    data: Mapping[str, Any], *, title: str = "<data>", size: str | None = None, overrides: Sequence[str] = ()
) -> Recipe:
    """A recipe from plain data, such as the canonical form that a checkpoint holds."""
    return _resolve_and_check(from_data(dict(data), Where(title)), size, overrides)


def phase_recipes(recipe: Recipe) -> list[Recipe]:
    """The recipe with the values of each phase set; a recipe without a schedule has one phase."""
    if not recipe.schedule:
        return [recipe]
    recipes = []
    for index, phase in enumerate(recipe.schedule):
        root = from_data(replace(recipe, stages=()).canonical(), Where(recipe.name))
        faults = Faults()
        expand(root, faults)
        paths.apply_phase(root, phase.set, Where(recipe.name), f"schedule[{index}].set", faults)
        recipes.append(_recipe_or_raise(root, faults))
    return recipes


def read_tree(name_or_path: str | Path | Mapping[str, Any] | Node) -> Node:
    """The tree of a recipe file as written, or of plain data; a copy of a tree."""
    if isinstance(name_or_path, Node):
        return name_or_path.copy()
    if isinstance(name_or_path, Mapping):
        return from_data(dict(name_or_path), Where(str(name_or_path.get("name", "<data>"))))
    text, title, numbered = _locate(name_or_path)
    return read_yaml(text, title, numbered=numbered)


def read_builtin(name: str) -> str:
    """The file of a recipe that comes with cloze."""
    return resources.files("cloze").joinpath("recipes", *folders_of_recipes()[name], f"{name}.yaml").read_text(encoding="utf-8")


def _locate(name_or_path: str | Path) -> tuple[str, str, bool]:
    """Find a recipe by its name or path: its text, its title in messages, and whether it is a user's own file."""
    name = str(name_or_path)
    path = Path(name_or_path)
    if path.is_dir() and (path / IN_RUN).is_file():
        path = path / IN_RUN
    if path.is_file():
        return read_text(path), str(path), True
    if name in folders_of_recipes():
        return read_builtin(name), name, False
    if path.is_dir():
        raise RecipeError(f"{name}: this folder holds no {IN_RUN.as_posix()}, so it is not a run of cloze.")
    raise unknown_recipe(name)


def unknown_recipe(recipe: str) -> RecipeError:
    """The error about a file that does not exist, or a name that no recipe has."""
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") or path.parent != Path("."):
        return RecipeError(
            f"{recipe}: there is no such file. {_similar_recipe(path.stem)}\n"
            "  `cloze list` shows the recipes that come with cloze; their names have no .yaml."
        )
    return RecipeError(
        f"unknown recipe {recipe!r}. {_similar_recipe(recipe)}\n  `cloze list` shows all recipes; a recipe file ends in .yaml."
    )


def _similar_recipe(name: str) -> str:
    """A sentence on the recipe that comes with cloze whose name is this or is similar."""
    recipes = list(folders_of_recipes())
    if name in recipes:
        return f"cloze has a recipe of this name: write {name}."
    return did_you_mean(nearest(name, recipes)) or "No recipe of cloze has a similar name."


def _resolve_and_check(
    root: Node, size: str | None, overrides: Sequence[str], checkpoints: CheckpointFolders | None = None,
    complete: Complete | None = None,
) -> Recipe:
    """The recipe of a tree as written, whose networks may come `from` a checkpoint or an earlier stage."""
    if not root.is_mapping:
        return _checked_recipe(ResolvedTree(root), size, overrides)
    if "stages" in root.value:
        return assemble_stages(root, size, overrides, checkpoints, partial(_checked_recipe, complete=complete))
    faults = Faults()
    of_changes = [override for override in overrides if ".change." in override.partition("=")[0]]
    if of_changes and checkpoints is not None:
        # A change may alter the shape that a checkpoint supplies, so its arguments are set first.
        _override_changes(root, of_changes, faults)
        overrides = [override for override in overrides if override not in of_changes]
    resolved = resolve_networks(root, earlier={}, checkpoints=checkpoints, prefix="", faults=faults)
    faults.raise_if_any()
    return _checked_recipe(resolved, size, overrides, complete)


def _override_changes(root: Node, overrides: Sequence[str], faults: Faults) -> None:
    """Apply the overrides of changes of networks to the tree as written."""
    for label, network in networks_of(root):
        for index, item in enumerate(network.items_at("change")):
            expand_part("change", item, f"networks.{label}.change[{index}]", faults)
    for override in overrides:
        paths.apply_override(root, override, faults)


def _checked_recipe(
    resolved: ResolvedTree, size: str | None, overrides: Sequence[str], complete: Complete | None = None
) -> Recipe:
    """The recipe of a tree whose networks are written out.

    1. Short forms and defaults are written out.
    2. The overrides that decide what a checkpoint adds are applied, and the checkpoint completes the tree.
    3. `--size` rescales the networks. This needs the finished recipe, so it is read a first time.
    4. The other overrides are applied: they may set what step 2 added and what step 3 computed.
    5. Short forms and defaults are written out again, for the values that step 4 put where there was nothing.
    6. The recipe is read, and its references, its phases and its lengths are checked.
    """
    root, faults = resolved.tree, Faults()
    expand(root, faults)
    if not len(faults):
        overrides = _apply_before_completion(root, overrides, faults)
        if complete is not None:
            complete(root, faults)
    if len(faults) and root.is_mapping:
        _collect_more_faults(root, faults)
    faults.raise_if_any()
    if size is not None:
        from cloze.recipe.size import rescale

        rescale(root, _recipe_or_raise(root, faults), size, fixed_networks=resolved.fixed_networks)
    for override in overrides:
        paths.apply_override(root, override, faults)
    if overrides and not len(faults):
        expand(root, faults)
    faults.raise_if_any()
    recipe = _recipe_or_raise(root, faults)
    check_references(recipe, lambda path: _line_of(root, path), faults)
    if recipe.schedule:
        _check_phases(root, recipe, faults)
    else:
        check_length(recipe, faults)
    faults.raise_if_any()
    return recipe


def _collect_more_faults(root: Node, faults: Faults) -> None:
    """Read a tree that already has faults, for those that only reading finds: all of them are reported at once."""
    recipe_of(root, faults)


def _apply_before_completion(root: Node, overrides: Sequence[str], faults: Faults) -> list[str]:
    """Apply the overrides that decide how a checkpoint completes the recipe: those of `reading`, whether records have a second
    text, and arguments of objectives that the checkpoint replaces.

    Afterwards it is too late: an objective that was replaced no longer has these arguments. Returns the overrides that are
    applied to the completed recipe; those of `reading` and of second texts are applied again, over what the checkpoint added.
    """
    of_reading = [override for override in overrides if override.startswith("reading.")]
    of_second_texts = [override for override in overrides if override.partition("=")[0].endswith(".text_b")]
    of_heads = [override for override in overrides if _sets_replaced_head(root, override.partition("=")[0].strip())]
    if of_reading and "reading" not in root.value:
        root.put("reading", from_data({}, root.where))
    for override in [*of_reading, *of_second_texts, *of_heads]:
        paths.apply_override(root, override, faults)
    return [override for override in overrides if override not in of_heads]


def overrides_of_heads(tree: Node, overrides: Sequence[str]) -> list[str]:
    """The overrides that set arguments of objectives that a checkpoint replaces, such as what their heads read of a text."""
    root = tree.copy()
    expand(root, Faults())
    return [override for override in overrides if _sets_replaced_head(root, override.partition("=")[0].strip())]


def _sets_replaced_head(root: Node, path: str) -> bool:
    """Whether a value path names an argument of an objective that a checkpoint replaces, such as `text_classification`."""
    try:
        location = paths.locate(root, path)
    except RecipeError:
        return False  # it is reported when it is applied to the completed recipe
    owner = location.path.split(".")[-2:-1]
    if "objectives[" not in location.path or not owner or owner[0] not in names("objective"):
        return False
    from cloze.objectives.labels.head_from_checkpoint import HeadFromCheckpoint  # torch, as every objective

    replaced = issubclass(class_of("objective", owner[0]), HeadFromCheckpoint)
    return replaced and location.key in arguments_of_part("objective", owner[0])


def _line_of(root: Node, path: str) -> Where:
    """The line of a value path; the beginning of the file if the value is a default."""
    try:
        location = paths.locate(root, path)
    except RecipeError:
        return root.where
    node = location.node
    return root.where if node is None else node.where if location.container.is_list else location.container.place(location.key)


def _recipe_or_raise(root: Node, faults: Faults) -> Recipe:
    """The recipe of an expanded tree. Raises all faults, those of its reading and those before."""
    recipe = recipe_of(root, faults)
    faults.raise_if_any()
    assert recipe is not None  # no faults
    return recipe


def _check_phases(root: Node, recipe: Recipe, faults: Faults) -> None:
    """Read the recipe as each phase sets it, so that a wrong value is found now and not after days of training."""
    schedule = root.value["schedule"]
    for index, phase in enumerate(recipe.schedule):
        where = schedule.value[index].where
        tree = root.copy()
        phase_faults = Faults()
        paths.apply_phase(tree, phase.set, where, f"schedule[{index}].set", phase_faults)
        phase_recipe = recipe_of(tree, phase_faults) if not len(phase_faults) else None
        if phase_recipe is not None:
            for path in phase.set:
                if not may_set(path):
                    phase_faults.add(where, f"schedule[{index}].set.{path}", "a phase cannot set this value.",
                                     f"It may set: {MAY_SET}.")
            check_references(phase_recipe, lambda path, where=where: where, phase_faults)  # type: ignore[misc]
            check_length(phase_recipe, phase_faults, index)
        faults.add_all(phase_faults)
