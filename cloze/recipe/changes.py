"""Changes of networks (`change: […]`) in a recipe: their effect on the arguments of networks that come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloze.document import Node, Where, from_data, parse_value
from cloze.errors import RecipeError, propose
from cloze.recipe.builders import build
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import NETWORK
from cloze.recipe.parts import builder_of, names
from cloze.recipe.recipe import as_plain_data
from cloze.recipe.schema import arguments_of_part, check_part, expand_arguments, expand_part, read_part

if TYPE_CHECKING:  # imports torch, which recipes without changes do not need
    from cloze.changes import Change
    from cloze.interop import PortableModel
    from cloze.recipe.recipe import Recipe

ChangeDescription = tuple[str, Mapping[str, Any]]  # as in `cloze/network.json`: the registered part and its arguments


def parse_change(argument: str, *, option: str = "--change") -> Node:
    """A change as the command line has it, `lora=8` or `lora={rank: 8, on: [query, value]}`, as a recipe has it.

    A single value is the first argument of the change. An unknown change is a `RecipeError`.
    """
    name, equals, text = argument.partition("=")
    where = Where(f"{option} {argument}")
    change_names = names("change")
    if name not in change_names:
        raise RecipeError(f"{where}: unknown change {name!r}. {propose(name, change_names)}\n  Expected NAME=VALUE: lora=8.")
    if equals and not text.strip():
        raise RecipeError(f"{where}: expected a value after =, such as lora=8, or the name alone.")
    value = parse_value(text, where, option=option, prefix=f"{name}=").plain() if equals else {}
    return from_data({name: value}, where)


def check_change(argument: str, *, option: str) -> None:
    """Raise a `RecipeError` if `argument`, a change as the command line has it, lacks an argument or has a wrong one."""
    check_part("change", parse_change(argument, option=option))


def type_of(name: str) -> type[Change]:
    """The class of a registered change, which declares what it does."""
    change_type: Any = builder_of("change", name)
    return change_type


def lasts(name: str) -> bool:
    """Whether a change adds something to the network, which opening a checkpoint has to add again."""
    return type_of(name).lasts


def read_by(model: PortableModel) -> set[str]:
    """The names of the networks whose states a model reads because of its changes."""
    return set(_read_by(model.changes))


def take_over(network: Node, inherited: Sequence[ChangeDescription], origin: str, path: str, faults: Faults) -> None:
    """Apply the changes of a network that is taken over whole from `origin`, a folder or a stage, to its written part, in place.

    The lasting changes of the origin are put in front of the recipe's own.
    """
    changes, items = network.get("change"), network.items_at("change")
    for index, item in enumerate(list(items)):
        change = change_of(item)
        part = next(key for key in network.value if key not in NETWORK)
        arguments = network.value[part]
        if change is None or not arguments.is_mapping:
            continue
        written_arguments = {str(key): node.plain() for key, node in arguments.items()}
        from cloze.changes import Shape  # imports torch, which listing recipes without changes does not need

        with faults.catching(item.where, f"{path}.change[{index}]"):
            for key, value in change.shape(Shape(origin, str(part), written_arguments)).items():
                if key not in written_arguments or written_arguments[key] != value:
                    arguments.put(key, from_data(value, item.where))
            expand_arguments(arguments_of_part("network", str(part)), arguments, f"{path}.{part}", faults)
        if change.only_arguments:
            items.remove(item)
    if inherited:
        first = [from_data({name: dict(arguments)}, network.where) for name, arguments in inherited]
        network.put("change", Node([*first, *items], network.where if changes is None else changes.where))


def read_by_export(recipe: Recipe) -> tuple[str, ...]:
    """The networks whose states the exported one reads because of a change: it needs them to read a text, too."""
    return _read_by((change.name, change.arguments) for change in recipe.exported.change)


def joins_vocabulary(recipe: Recipe, network: str) -> bool:
    """Whether a network reads the ids of the text's tokenizer and, behind them, those of its own."""
    return any(type_of(change.name).joins_vocabulary for change in recipe.networks[network].change)


def _read_by(changes: Iterable[ChangeDescription]) -> tuple[str, ...]:
    return tuple(name for part, arguments in changes for name in build(builder_of("change", part), arguments, {}).reads)


def complete_among(networks: Mapping[str, Node]) -> None:
    """Complete, in place, the changes of a recipe's networks by what follows from its other networks."""
    parts = {label: next((n for key, n in node.items() if key not in NETWORK), None) for label, node in networks.items()}
    plain_parts = {label: part.plain() for label, part in parts.items() if part is not None and part.is_mapping}
    for network in networks.values():
        for item in network.items_at("change"):
            change = change_of(item)
            for key, value in {} if change is None else change.among(plain_parts).items():
                next(iter(item.value.values())).put(key, from_data(value, item.where))


def inherited_by(network: Node) -> list[ChangeDescription]:
    """The lasting changes of a network in the tree of an earlier stage."""
    descriptions: list[ChangeDescription] = []
    for item in network.items_at("change"):
        if change_of(item) is not None:
            ((name, arguments),) = item.plain().items()
            descriptions += [(name, arguments)] if lasts(name) else []
    return descriptions


def report_argument_changes(network: Node, path: str, faults: Faults) -> None:
    """Add a fault for a change that only sets arguments if the network's arguments are written out."""
    for index, item in enumerate(network.items_at("change")):
        change = change_of(item)
        if change is not None and change.only_arguments:
            name = next(iter(item.value))
            faults.add(item.where, f"{path}.change[{index}]", f"{name}: this network's arguments are written out.",
                       "Write these values among them, and leave the change out.")


def with_defaults(changes: Iterable[ChangeDescription]) -> list[ChangeDescription]:
    """Changes with all of their arguments as plain data, those that are left out with their defaults; faulty ones as they are."""
    described: list[ChangeDescription] = []
    for name, arguments in changes:
        node, faults = from_data({name: dict(arguments)}, Where("cloze/network.json")), Faults()
        expand_part("change", node, "", faults)
        part = None if len(faults) else read_part(node, "", faults)
        described.append((name, dict(arguments) if part is None else as_plain_data(part.arguments)))
    return described


def change_of(item: Node) -> Change | None:
    """A change, expanded in place; None for a faulty one, which is reported when the recipe is read."""
    faults = Faults()
    expand_part("change", item, "", faults)
    part = None if len(faults) else read_part(item, "", faults)
    if part is None:
        return None
    try:
        change: Change = build(builder_of("change", part.name), as_plain_data(part.arguments), {})
    except (TypeError, ValueError):
        return None
    return change
