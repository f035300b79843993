"""Where networks come `from`: an earlier stage of the recipe, or a checkpoint that the command line binds to a name.

A recipe never holds a path. `--bind teacher=FOLDER` binds `from: teacher`, and `run.json` records the folder's weights.
A network from elsewhere that is never trained is *borrowed*: the run's checkpoints do not hold its weights, only a reference to
the folder that does, with the SHA-256 of its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cloze.document import Node, from_data, read_yaml
from cloze.errors import CheckpointError, RecipeError, did_you_mean, nearest
from cloze.hub import local_folder
from cloze.recipe.changes import (
    ChangeDescription,
    complete_among,
    inherited_by,
    parse_change,
    report_argument_changes,
    take_over,
    type_of,
    with_defaults,
)
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import NETWORK
from cloze.recipe.recipe import Recipe
from cloze.training.schedule.phases import sets_train
from cloze.training.schedule.untrained import require_trained

if TYPE_CHECKING:  # imports torch, which recipes without checkpoints do not need
    from cloze.interop import Imported

#: Orders of which a network that has learned one knows nothing of another.
_APART = ("open", "left_to_right", "right_to_left")


class CheckpointFolders(Protocol):
    """The folders that names of a recipe (`from: NAME`) are bound to, and what a recipe asks of them.
    `cloze.checkpoint.bound.BoundCheckpoints` answers."""

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str) -> Path: ...

    def described(self, name: str, label: str) -> Imported:
        """The network `label` of a checkpoint, else its exported one, with its part, its arguments and its changes."""

    def complete(self, root: Node, faults: Faults) -> None:
        """Complete `reading`, and other keys that the recipe omits, from the checkpoints."""


@dataclass(frozen=True)
class ResolvedTree:
    """The tree of a recipe or stage with every network written out; `fixed_networks` names the networks that have a
    checkpoint's size, because they write none of their own."""

    tree: Node
    fixed_networks: frozenset[str] = frozenset()


def resolve_networks(
    tree: Node, *, earlier: Mapping[str, ResolvedTree], checkpoints: CheckpointFolders | None, prefix: str, faults: Faults
) -> ResolvedTree:
    """Write out, in place, the networks of a recipe that have only a `from`.

    `earlier` holds the stages before this one, `checkpoints` the bound folders (None: not known yet, so a name that is not a
    stage is left unresolved). Any other name is a fault.
    """
    fixed_networks: set[str] = set()
    for label, network in networks_of(tree):
        origin = _origin(network)
        if origin is None:
            continue
        name, writes_no_part, path = str(origin.value), network.value.keys() <= NETWORK.keys(), f"{prefix}networks.{label}"
        if not writes_no_part:
            report_argument_changes(network, path, faults)
        if name in earlier:
            before = earlier[name]
            networks, export = dict(networks_of(before.tree)), before.tree.get("export")
            exported = next(iter(networks), "") if export is None else str(export.value)
            source_label = label if label in networks else exported
            fixed_networks |= {label} if source_label in before.fixed_networks else set()
            earlier_network = networks.get(source_label)
            if writes_no_part and earlier_network is not None:
                for key, node in earlier_network.items():
                    if key not in ("from", "change", "train", "start", *network.value):
                        network.put(key, node.copy())
                take_over(network, inherited_by(earlier_network), f"stage {name}", path, faults)
        elif checkpoints is not None and name not in checkpoints:
            hint = f"Earlier stages: {', '.join(earlier)}. " if earlier else ""
            close = f"{did_you_mean(nearest(name, [*earlier, *checkpoints]))} ".lstrip()
            faults.add(origin.where, f"{path}.from", f"there is no stage or checkpoint named {name!r}.",
                       f"{hint}{close}If it is a checkpoint, bind it: --bind {name}=FOLDER.")
        elif checkpoints is not None and writes_no_part:
            fixed_networks.add(label)
            described = checkpoints.described(name, label)
            _check_order(tree, label, described, path, faults)
            part = described.model.part
            network.put(part, from_data(dict(described.model.arguments), network.where))
            # The part comes first: `read_part` and value paths take the first mapping for it.
            network.value = {part: network.value.pop(part), **network.value}
            take_over(network, described.model.changes, str(checkpoints[name]), path, faults)
    complete_among(dict(networks_of(tree)))
    return ResolvedTree(tree, frozenset(fixed_networks))


def _check_order(tree: Node, label: str, checkpoint: Imported, path: str, faults: Faults) -> None:
    """Add a fault if the recipe reads its network `label`, which is never trained, in an order that the checkpoint has not seen.

    A recipe without `reading` takes the checkpoint's order, and one with a mixture may have several.
    """
    network = dict(tree.pairs_at("networks")).get(label)
    train = None if network is None else network.get("train")
    if train is None or train.value != "none" or "reading" not in tree.value or "mixture" in tree.value:
        return
    order, trained = _order(tree), checkpoint.model.order
    if order == trained or order not in _APART or trained not in _APART or order in checkpoint.reading.orders:
        return
    name = tree.get("name")
    faults.add(
        train.where, f"{path}.from",
        f"{checkpoint.folder} was trained to read in the order {trained}, and the recipe reads it in the order {order}.",
        f"Bind a checkpoint that reads in the order {order}{_recipes_for(trained, '' if name is None else str(name.value))}.",
    )


def _recipes_for(order: str, recipe: str) -> str:
    """The end of a hint, which names the recipes whose teacher reads in this order; empty if `recipe` has no teacher."""
    files = {file.name.removesuffix(".yaml"): file for file in (resources.files("cloze") / "recipes" / "distillation").iterdir()}
    if recipe not in files:
        return ""
    orders = {name: _order(read_yaml(file.read_text(encoding="utf-8"), name)) for name, file in files.items() if name != recipe}
    names = sorted(name for name, teacher_order in orders.items() if teacher_order == order)
    return f", or take a recipe for a teacher that reads in the order {order}: {', '.join(names)}" if names else ""


def _order(tree: Node) -> str:
    """The order of a recipe as written."""
    node = tree.value.get("order")
    return "open" if node is None else str(node.plain())


def add_changes(tree: Node, changes: Sequence[str], origin: str) -> None:
    """Add changes, as the command line has them, to every network of a recipe and its stages that comes `from` this origin."""
    stages = tree.get("stages")
    for recipe in [tree] if stages is None else [stage for _, stage in stages.items()]:
        for _, network in networks_of(recipe) if recipe.is_mapping else ():
            if not begins_with(network, origin):
                continue
            inner = next((node for _, node in network.items() if node.is_mapping and "from" in node.value), network)
            old_changes = inner.value.get("change", Node([], network.where))
            inner.put("change", Node([*old_changes.value, *map(parse_change, changes)], network.where))


def add_masks(tree: Node, inits: Mapping[str, Path]) -> None:
    """Put the masks of checkpoints that networks start from without `from:` (`--init`) in front of the changes of these networks,
    so that pruned weights stay zero; in place. `inits` has a folder for each network, under "" that of the exported one.

    Masks together with other changes, or of a network of another part, are a `CheckpointError`. Nothing is added to a network
    that has all changes of its checkpoint already, as that of the checkpoint's own recipe.
    """
    from cloze.interop.own import own_description  # imports torch, which recipes without checkpoints do not need

    stages = tree.get("stages")
    first = tree if stages is None else next((stage for _, stage in stages.items()), tree)
    if not first.is_mapping:
        return
    networks, export = dict(networks_of(first)), first.get("export")
    for name, folder in inits.items():
        network = networks.get(name or (next(iter(networks), "") if export is None else str(export.value)))
        if network is None or not network.is_mapping or _origin(network) is not None:
            continue  # what is wrong with that is said when the recipe is read
        description = own_description(folder) or {}
        changes = with_defaults(item for change in description.get("changes", ()) for item in change.items())
        masks = [(change, arguments) for change, arguments in changes if type_of(change).masks]
        if not masks or with_defaults(inherited_by(network))[: len(changes)] == changes:
            continue
        part = next((key for key in network.value if key not in NETWORK), None)
        if len(masks) < len(changes) or part != description["part"]:
            raise _lost_masks(folder, masks, changes, description["part"])
        described = [from_data({change: arguments}, network.where) for change, arguments in masks]
        network.put("change", Node([*described, *network.items_at("change")], network.where))


def _lost_masks(
    folder: Path, masks: Sequence[ChangeDescription], changes: Sequence[ChangeDescription], part: str
) -> CheckpointError:
    """The error for masks that a network of a recipe cannot take over from a folder."""
    others = [change for change, _ in changes if not type_of(change).masks]
    further = f" with the changes {', '.join(others)}" if others else ""
    return CheckpointError(
        f"--init {folder}: its masks ({', '.join(change for change, _ in masks)}), which keep pruned weights at zero, belong "
        f"to a network {part!r}{further}. The network of the recipe would lose them.\n"
        f"  To keep them: `networks: {{main: {{from: pruned}}}}` in a recipe of your own, and --bind pruned={folder}.\n"
        f"  To train without them: cloze export {folder} MERGED --to merged, then --init MERGED."
    )


def begins_with(network: Node, origin: str) -> bool:
    """Whether a network as written comes `from` this origin."""
    node = _origin(network) if network.is_mapping else None
    return node is not None and node.value == origin


def networks_of(tree: Node) -> list[tuple[str, Node]]:
    """The networks of a recipe as written, by name."""
    return [("main", tree.value["network"])] if "network" in tree.value else tree.pairs_at("networks")


def origins_in(tree: Node) -> set[str]:
    """The names that networks of a recipe as written, and of its stages, come `from`."""
    stages = tree.get("stages")
    recipes = [tree] if stages is None else [tree, *(stage for _, stage in stages.items())]
    nodes = [_origin(network) for recipe in recipes if recipe.is_mapping for _, network in networks_of(recipe)]
    return {str(origin.value) for origin in nodes if origin is not None}


def _origin(network: Node) -> Node | None:
    """The `from` of a network, next to its part or among the part's arguments."""
    inner = [node for key, node in network.items() if key not in NETWORK]
    return next((node.value["from"] for node in [network, *inner] if node.is_mapping and "from" in node.value), None)


def checkpoint_names(recipe: Recipe) -> list[str]:
    """The names of the checkpoints that a recipe and its stages need."""
    names: dict[str, None] = {}
    before: list[str] = []
    for stage, stage_recipe in [(stage.name, stage.recipe) for stage in recipe.stages] or [("", recipe)]:
        origins = [network.origin for network in stage_recipe.networks.values()]
        names.update(dict.fromkeys(origin for origin in origins if origin is not None and origin not in before))
        before.append(stage)
    return list(names)


def bound_checkpoints(recipe: Recipe, binds: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The folders of the checkpoints that a recipe needs.

    Raises:
        RecipeError: a checkpoint is not bound, is bound twice, or has the name of a source.
        CheckpointError: a path is not a folder.
    """
    sources = {name for stage_recipe in [stage.recipe for stage in recipe.stages] or [recipe] for name in stage_recipe.sources}
    folders: dict[str, Path] = {}
    for name in checkpoint_names(recipe):
        bound_paths = binds.get(name, ())
        if name in sources:
            raise RecipeError(
                f"{recipe.name}: `from: {name}` is bound with --bind {name}=FOLDER, but {name} is also a source.\n"
                "  Give the checkpoint another name in the recipe."
            )
        if len(bound_paths) != 1:
            problem = "is bound to no folder" if not bound_paths else f"is bound {len(bound_paths)} times"
            raise RecipeError(f"{recipe.name}: the checkpoint {name!r} {problem}. Bind it once: --bind {name}=FOLDER.")
        folders[name] = local_folder(bound_paths[0])
        if not folders[name].is_dir():
            raise CheckpointError(
                f"--bind {name}={bound_paths[0]}: there is no such folder. Expected a run folder or a Hugging Face folder."
            )
        require_trained(folders[name])
    return folders


# ---- borrowed networks -----------------------------------------------------------------------------------------------


def borrowed(recipe: Recipe) -> frozenset[str]:
    """The networks from elsewhere that are neither changed, tied nor ever trained.

    The exported network may have trained heads. Any other network with trained heads is not borrowed: its folder must hold them.
    """
    tied = {member.partition(".")[0] for group in (*recipe.tie, *recipe.tie_detached) for member in group}
    frozen = frozen_heads(recipe)
    taught = {
        pass_.network for entry in recipe.entries.values() for pass_, spec in entry.objectives()
        if pass_.network != recipe.export and recipe.head_name(pass_, spec) not in frozen
    }
    return frozenset(
        label for label, network in recipe.networks.items()
        if network.origin is not None and not network.change and label not in tied | taught and never_trained(recipe, label)
    )


def never_trained(recipe: Recipe, label: str) -> bool:
    """Whether no parameter of a network is ever trained: `train: none` in every phase, or no pass with a gradient."""
    runs = [pass_ for entry in recipe.entries.values() for pass_ in entry.passes if pass_.network == label]
    in_phases = [value for phase in recipe.schedule for path, value in phase.set.items() if sets_train(path, label)]
    frozen = all(train in ("none", (), []) for train in [recipe.networks[label].train, *in_phases])
    return frozen or not any(pass_.grad for pass_ in runs)


def frozen_heads(recipe: Recipe) -> frozenset[str]:
    """The names of the heads that are never trained: only passes without gradient use them."""
    used = [
        (recipe.head_name(pass_, objective), pass_.grad)
        for entry in recipe.entries.values() for pass_, objective in entry.objectives()
    ]
    return frozenset(name for name, _ in used) - {name for name, grad in used if grad}
