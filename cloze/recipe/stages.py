"""Stages: runs that follow one another in one recipe. Each stage is a recipe that inherits whole keys from the top level.

A stage with `each: depth_group` stands for one stage per depth group of the checkpoint's network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from cloze.document import Key, Node, Where, from_data, parse_value
from cloze.errors import Parameter, RecipeError, propose
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import SINGULAR
from cloze.recipe.origins import CheckpointFolders, ResolvedTree, resolve_networks
from cloze.recipe.recipe import Recipe, Stage

#: Pairs of keys: a stage that writes one does not inherit the other.
_INSTEAD = (*SINGULAR.items(), ("objectives", "passes"), ("mixture", "exercise"), ("mixture", "objectives"))
EACH, GROUP, PREVIOUS = "each", "depth_group", "previous"
_ABOVE = ("name", "paper", "notes", "stages")  # belong to the whole recipe

#: The recipe of a stage from its tree, a size and overrides. A parameter, since load.py, which has it, imports this module.
ReadStage = Callable[[ResolvedTree, str | None, Sequence[str]], Recipe]


def stage_recipes(recipe: Recipe) -> list[Recipe]:
    """The recipes of all stages; the recipe itself if it has no stages."""
    return [stage.recipe for stage in recipe.stages] or [recipe]


def stages_with_prefix(recipe: Recipe) -> list[tuple[str, Recipe]]:
    """The recipe of every stage with the prefix of its paths; of a recipe without stages, its own."""
    return [(f"stages.{stage.name}.", stage.recipe) for stage in recipe.stages] or [("", recipe)]


def assemble_stages(
    root: Node, size: str | None, overrides: Sequence[str], checkpoints: CheckpointFolders | None, read_stage: ReadStage
) -> Recipe:
    """The recipe of the last stage, which holds all stages.

    An override sets a value in every stage (`training.batch=64`) or in one (`stages.domain.training.batch=64`,
    `stages.domain.share=3`).
    """
    faults = Faults()
    overrides = repeat_overrides(root, overrides)
    root = repeat_stages(root).copy()
    overrides = _set_shares(root, overrides)
    trees = stage_trees(root, checkpoints, faults)
    faults.raise_if_any()
    stages: list[Stage] = []
    for name, (tree, share) in trees.items():
        try:
            stages.append(Stage(name, read_stage(tree, size, _overrides_of(name, trees, overrides)), share))
        except RecipeError as error:
            raise RecipeError(f"stage {name!r}: ", *error.args) from None
    return replace(stages[-1].recipe, stages=tuple(stages))


def _set_shares(root: Node, overrides: Sequence[str]) -> list[str]:
    """Set the shares of stages, which are values of the whole and not of a stage; returns the other overrides."""
    rest = []
    for override in overrides:
        path, equals, text = override.partition("=")
        owner, _, key = path.strip().rpartition(".")
        _, is_stage, name = owner.partition("stages.")
        stages = root.value["stages"]
        if key != "share" or not equals or not is_stage or not stages.is_mapping or name not in stages.value:
            rest.append(override)
            continue
        where = Where.of_override(override)
        if stages.value[name].value is None:
            stages.put(name, Node({}, stages.value[name].where))
        stages.value[name].put("share", from_data(parse_value(text, where, option="--set", prefix=f"{path}=").plain(), where))
    return rest


def _overrides_of(name: str, stages: Mapping[str, object], overrides: Sequence[str]) -> list[str]:
    """The overrides of a stage: those of every stage, and its own without `stages.NAME.`"""
    stage_overrides = []
    for override in overrides:
        if not override.startswith("stages."):
            stage_overrides.append(override)
            continue
        stage, _, assignment = override.removeprefix("stages.").partition(".")
        if stage not in stages:
            raise RecipeError(Parameter.of_override(override), f": there is no stage {stage!r}. {propose(stage, stages)}")
        if stage == name:
            stage_overrides.append(assignment)
    return stage_overrides


def stage_trees(
    root: Node, checkpoints: CheckpointFolders | None, faults: Faults
) -> dict[str, tuple[ResolvedTree, float]]:
    """The tree and the share of the budget of every stage, by name; an omitted share is 1, before normalisation."""
    stages = root.value["stages"]
    if not stages.is_mapping or not stages.value:
        faults.add(root.place("stages"), "stages", "expected a mapping of stages.",
                   "For example `stages: {general: {}, domain: {…}}`.")
        return {}
    trees: dict[str, tuple[ResolvedTree, float]] = {}
    for name, node in stages.items():
        path = f"stages.{name}"
        if node.value is None:
            node = Node({}, node.where)
        if not node.is_mapping:
            faults.add(node.where, path, "expected a mapping of keys of a recipe.")
            continue
        for key in [key for key in _ABOVE if key in node.value]:
            faults.add(node.place(key), f"{path}.{key}", f"{key} belongs to the whole recipe.", "Write it at the top level.")
        share = node.get("share")
        amount = 1.0 if share is None else share.value
        if not isinstance(amount, (int, float)) or isinstance(amount, bool) or not amount > 0:
            where = node.where if share is None else share.where
            faults.add(where, f"{path}.share", f"got {amount!r}, expected a share of the budget above 0.")
            amount = 1.0  # further stages may begin with this one
        earlier = {before: tree for before, (tree, _) in trees.items()}
        tree = _tree_of_stage(str(name), node, root, faults)
        resolved = resolve_networks(tree, earlier=earlier, checkpoints=checkpoints, prefix=f"{path}.", faults=faults)
        trees[str(name)] = (resolved, float(amount))
    total = sum(share for _, share in trees.values())
    return {name: (tree, share / total) for name, (tree, share) in trees.items()}


def _tree_of_stage(name: str, stage: Node, root: Node, faults: Faults) -> Node:
    """The keys of a stage, and those of the top level that it neither writes nor replaces (`_INSTEAD`). Its `source` keeps one of
    the sources of the top level."""
    nodes = {key: node for key, node in stage.items() if key not in ("share", "source")}
    dropped = {other for pair in _INSTEAD for key, other in (pair, pair[::-1]) if key in nodes and other not in nodes}
    keys = [key for key in root.value if key != "stages" and key not in dropped and key not in nodes]
    tree = Node({key: root.value[key].copy() for key in keys}, root.where, {key: root.place(key) for key in keys})
    for key, node in nodes.items():
        tree.put(key, node.copy())
        tree.key_places[key] = stage.place(key)
    chosen = stage.get("source")
    if chosen is None:
        return tree
    names = [name for name, _ in tree.pairs_at("sources")]
    if str(chosen.value) in names:
        sources, source = tree.value["sources"], str(chosen.value)
        tree.put("sources", Node({source: sources.value[source]}, sources.where, {source: sources.place(source)}))
    else:
        way_out = propose(str(chosen.value), names) if names else "Write `sources:`."
        faults.add(chosen.where, f"stages.{name}.source", f"there is no source {str(chosen.value)!r}.", way_out)
    return tree


# ---- repeated stages ------------------------------------------------------------------------------------------------


def repeats(root: Node) -> bool:
    """Whether a recipe has a stage that is repeated."""
    return any(stage.get(EACH) is not None for _, stage in root.pairs_at("stages"))


def repeat_stages(root: Node, groups: Sequence[str | int] = ("embeddings",)) -> Node:
    """The recipe with a stage for each of the depth `groups` in place of every stage with `each: depth_group`.

    In such a stage the value `depth_group` stands for the group. In every stage `from: previous` stands for the stage before it.
    A recipe whose checkpoint is not known yet has one such stage, for the embeddings. A `RecipeError` for any other `each`, and
    for a first stage that comes from the previous one.
    """
    stages = root.get("stages")
    if stages is None or not stages.is_mapping:
        return root
    new_stages: dict[Key, Node] = {}
    for name, stage in stages.items():
        repetition = stage.get(EACH)
        if repetition is not None and repetition.value != GROUP:
            raise RecipeError(f"{repetition.where}: stages.{name}.each: got {repetition.value!r}, expected {GROUP}.")
        for group in [None] if repetition is None else groups:
            before = next(reversed(new_stages), None)
            origins = {} if before is None else {PREVIOUS: before}
            repeated = _with_scalars_replaced(stage, "from", origins)
            if group is not None:
                del repeated.value[EACH]
                repeated = _with_scalars_replaced(repeated, None, {GROUP: group})
            if before is None and any((above, scalar.value) == ("from", PREVIOUS) for above, scalar in _scalars(stage)):
                raise RecipeError(
                    f"{stage.where}: stages.{name}: is the first stage, so `from: {PREVIOUS}` has no stage to begin with. "
                    "Name a checkpoint."
                )
            new_stages[name if group is None else f"{name}_{group}"] = repeated
    tree = root.copy()
    tree.value["stages"] = Node(new_stages, stages.where, dict.fromkeys(new_stages, stages.where))
    return tree


def repeat_overrides(root: Node, overrides: Sequence[str], groups: Sequence[str | int] = ("embeddings",)) -> list[str]:
    """Overrides of the stages that `repeat_stages` makes: a value of a repeated stage, by the name that it is written with
    (`stages.layers.training.batch=8`), is one of each repetition."""
    repeated = {f"stages.{name}.": name for name, stage in root.pairs_at("stages") if stage.get(EACH) is not None}
    new_overrides: list[str] = []
    for override in overrides:
        lead = next((lead for lead in repeated if override.startswith(lead)), None)
        if lead is None:
            new_overrides.append(override)
        else:
            new_overrides += [f"stages.{repeated[lead]}_{group}.{override.removeprefix(lead)}" for group in groups]
    return new_overrides


def _with_scalars_replaced(node: Node, key: str | None, values: Mapping[str, Key]) -> Node:
    """A copy in which the values of `key`, or of any key if it is None, that are among `values` are replaced."""
    copy = node.copy()
    for above, scalar in _scalars(copy):
        if key in (None, above) and isinstance(scalar.value, str) and scalar.value in values:
            scalar.value = values[scalar.value]
    return copy


def _scalars(node: Node, above: Key | None = None) -> Iterator[tuple[Key | None, Node]]:
    """Every scalar of a tree with the key that it stands under."""
    if node.is_mapping or node.is_list:
        pairs = node.items() if node.is_mapping else [(above, child) for child in node.value]
        for key, inner in pairs:
            yield from _scalars(inner, key)
    else:
        yield above, node
