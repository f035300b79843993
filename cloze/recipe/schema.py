"""A builder's signature as the schema of its arguments: short forms, types, defaults, nearest names.

`registry.arguments_of` reads a signature. `expand_part` writes out the short forms of a part in the tree, with the defaults of
its nested parts and sections. `read_part` then checks every value and returns a `PartSpec`, in whose arguments a nested part is a
`PartSpec` and a section a mapping. An unknown argument is refused with the nearest name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from annotated_types import Ge, Gt, Le, Lt

from cloze.bounds import Duration
from cloze.document import Node, from_data
from cloze.errors import RecipeError, UnknownPart, did_you_mean, nearest, propose
from cloze.recipe import parts
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import RESERVED
from cloze.recipe.recipe import PartSpec
from cloze.recipe.user_files import file_to_give
from cloze.registry import Argument, Arguments, arguments_of, is_whole, marks, takes_numbers

#: In place of a value that an argument does not take.
WRONG: Any = object()


def arguments_of_part(kind: str, name: str) -> dict[str, Argument]:
    """The arguments of a part, then those that a recipe reads for its kind."""
    return {**arguments_of(parts.builder_of(kind, name)), **RESERVED.get(kind, {})}


# ---- expanding short forms ------------------------------------------------------------------------------------------


def expand_part(
    kind: str, node: Node, path: str, faults: Faults, argument: Argument | None = None, sibling_keys: Collection[str] = ()
) -> None:
    """Rewrite a part in place as `{name: {argument: node}}`, and set `Node.part_kind` to its kind.

    As the value of an `argument` it must be among the argument's choices, and what it leaves out comes from the argument's
    default if that is the same part. The
    `sibling_keys` next to the name belong to the recipe, not to the part (a network's `from`), and stay.
    """
    if isinstance(node.value, str):
        name, inner = node.value, Node({}, node.where)
    elif node.is_mapping and len(keys := [key for key in node.value if key not in sibling_keys]) == 1:
        name, inner = str(keys[0]), node.value[keys[0]]
    else:
        got = f"the keys {', '.join(map(repr, node.value))}" if node.is_mapping and node.value else _shown(node)
        faults.add(node.where, path, f"expected one {kind}, got {got}.", "Write `name`, or `name: {argument: value}`.")
        return
    try:
        choices = None if argument is None else argument.choices
        if choices is not None and name not in choices and len(choices) < len(parts.names(kind)):
            raise RecipeError(f"{kind} cannot be {name!r} here. {propose(name, choices)}")
        accepted = arguments_of_part(kind, name)
    except RecipeError as error:
        where = node.place(name)
        faults.add(where, path, str(error), file_to_give(Path(where.file)) if isinstance(error, UnknownPart) else "")
        return
    if inner.value is None:
        inner = Node({}, inner.where)
    elif not inner.is_mapping:
        first = next((key for key in accepted if key not in RESERVED.get(kind, {})), None)
        if first is None:
            faults.add(inner.where, f"{path}.{name}", f"{name} takes no arguments, got {_shown(inner)}.")
            return
        inner = Node({first: inner}, inner.where, {first: inner.where})
    if not node.is_mapping:
        node.value, node.key_places = {}, {}
    node.put(name, inner)
    node.part_kind = kind
    if argument is not None and isinstance(argument.default, Mapping):
        _put_defaults(inner, argument.default.get(name))
    expand_arguments(accepted, inner, f"{path}.{name}", faults)


def expand_arguments(accepted: Arguments, node: Node, path: str, faults: Faults) -> None:
    """Expand the nested parts and sections among the arguments of a part or section; those left out get their defaults."""
    prefix = f"{path}." if path else ""
    for key, argument in accepted.items():
        nested = bool(argument.part_kind or argument.section)
        if key not in node.value and nested and not argument.required and argument.default is not None:
            node.put(key, from_data(argument.default, node.where))
        if key in node.value and argument.section and takes_numbers(argument.annotation):
            node.value[key].shorthand_field = next(iter(argument.fields))  # one number may stand for it
    for written_key, value in node.items():
        expected, place = accepted.get(str(written_key)), f"{prefix}{written_key}"
        if expected is None:
            continue
        if expected.part_kind and not (value.value is None and expected.default is None):
            expand_part(expected.part_kind, value, place, faults, expected)
        elif expected.parts_kind and value.is_mapping:
            for name, inner in value.items():
                expand_part(expected.parts_kind, inner, f"{place}.{name}", faults)
        elif expected.list_kind and value.is_list:
            for index, item in enumerate(value.value):
                expand_part(expected.list_kind, item, f"{place}[{index}]", faults)
        elif expected.sections and value.is_mapping:
            for name, inner in value.items():
                expand_arguments(expected.fields, inner, f"{place}.{name}", faults)
        elif expected.section and value.is_mapping:
            _put_defaults(value, expected.default)
            expand_arguments(expected.fields, value, place, faults)
        elif expected.instead_kind and value.is_mapping:
            expand_part(expected.instead_kind, value, place, faults)


def _put_defaults(node: Node, default: Any) -> None:
    """Put the arguments of `default` that a part or section leaves out into its tree (in data: `Argument.with_defaults`)."""
    for key, value in default.items() if isinstance(default, Mapping) else ():
        if key not in node.value:
            node.put(key, from_data(value, node.where))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_part(node: Node, path: str, faults: Faults) -> PartSpec | None:
    """An expanded part; None if there are faults."""
    if node.part_kind is None:
        return None
    kind = node.part_kind
    name = next(str(key) for key, inner in node.items() if inner.is_mapping)
    inner = node.value[name]
    values = read_arguments(name, arguments_of_part(kind, name), inner, f"{path}.{name}", faults)
    if values is None:
        return None
    reserved = {key: values.pop(key) for key in RESERVED.get(kind, {})}
    return PartSpec(kind, name, values, node.place(name), f"{path}.{name}", reserved)


def check_part(kind: str, node: Node) -> None:
    """Raise a `RecipeError` with every fault of a part, which is expanded in place."""
    faults = Faults()
    expand_part(kind, node, kind, faults)
    if not len(faults):
        read_part(node, kind, faults)
    faults.raise_if_any()


def read_arguments(owner: str, accepted: Arguments, node: Node, path: str, faults: Faults) -> dict[str, Any] | None:
    """Every parameter's value: checked where written, its default elsewhere. None, and faults, if any is wrong.

    `owner` is the name of the part or section in messages.
    """
    if not node.is_mapping:
        faults.add(node.where, path, f"expected a mapping, got {_shown(node)}.", f"{owner} accepts: {_listed(accepted)}.")
        return None
    sound = True
    for key in node.value:
        if key not in accepted:
            sound = False
            hint = did_you_mean(nearest(str(key), map(str, accepted)))
            way_out = f"{owner} accepts: {_listed(accepted)}. {hint}".rstrip()
            faults.add(node.place(key), f"{path}.{key}".lstrip("."), f'unknown argument "{key}".', way_out)
    values: dict[str, Any] = {}
    for name, argument in accepted.items():
        if name in node.value:
            values[name] = read_argument(argument, node.value[name], f"{path}.{name}".lstrip("."), faults)
            sound &= values[name] is not WRONG
        elif argument.required:
            sound = False
            faults.add(node.where, path, f'{owner} needs "{name}" ({describe(argument.annotation)}).', f"Add `{name}: …` here.")
        else:
            values[name] = argument.default
    return values if sound else None


def read_argument(argument: Argument, node: Node, path: str, faults: Faults) -> Any:
    """The value of one argument, a part as a `PartSpec`. `WRONG`, and faults, if it is none that the argument takes."""
    # `apply_phase` sets values after `expand`, so this part may not be expanded yet.
    if node.part_kind is None and argument.part_kind is not None and node.value is not None:
        expand_part(argument.part_kind, node, path, faults, argument)
    if node.part_kind is not None:
        part = read_part(node, path, faults)
        return WRONG if part is None or not _schedule_stays_in_bounds(argument, part, node, path, faults) else part
    if argument.parts_kind is not None and node.is_mapping:
        member = Argument.of_part(argument.parts_kind)
        members = {str(name): read_argument(member, inner, f"{path}.{name}", faults) for name, inner in node.items()}
        return WRONG if WRONG in members.values() else members
    if argument.list_kind is not None:
        if not node.is_list:
            faults.add(node.where, path, f"expected a list of parts of kind {argument.list_kind}.", "Begin each with `- `.")
            return WRONG
        item = Argument.of_part(argument.list_kind)
        items = [read_argument(item, inner, f"{path}[{index}]", faults) for index, inner in enumerate(node.value)]
        return WRONG if WRONG in items else items
    if argument.sections is not None and node.is_mapping:
        sections = {
            str(name): read_arguments(str(name), argument.fields, inner, f"{path}.{name}", faults) for name, inner in node.items()
        }
        return WRONG if None in sections.values() else sections
    if argument.section is not None and node.is_mapping:
        values = read_arguments(path.rpartition(".")[2], argument.fields, node, path, faults)
        return WRONG if values is None else values
    if argument.part_kind is not None:  # a part that could not be expanded has been reported already
        return None if node.value is None and argument.default is None else WRONG
    if argument.instead_kind is not None and node.is_mapping:
        return WRONG
    try:
        return check_value(argument.annotation, node.plain())
    except ValueError as error:
        faults.add(node.where, path, *_why(error, argument, node))
        return WRONG


def _schedule_stays_in_bounds(argument: Argument, schedule: PartSpec, node: Node, path: str, faults: Faults) -> bool:
    """Whether both ends of a schedule are values that the number itself could have."""
    ends = {end: schedule.arguments[end] for end in ("start", "end") if end in schedule.arguments}
    sound = True
    for end, value in ends.items() if argument.live and schedule.kind == "schedule" else ():
        try:
            check_value(argument.annotation, int(value) if is_whole(argument.annotation) and value == int(value) else value)
        except ValueError:
            sound = False
            faults.add(node.where, f"{path}.{schedule.name}.{end}", f"got {value}, expected {describe(argument.annotation)}.")
    return sound


def check_value(annotation: Any, value: Any) -> Any:
    """The value, checked against its annotation as strictly as JSON allows: an integer passes for a float, a list for a tuple.

    Raises `ValueError` (pydantic's) if it does not fit.
    """
    if annotation in (inspect.Parameter.empty, Any):
        return value
    return _adapter(annotation).validate_json(json.dumps(value, allow_nan=False), strict=True)


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    from pydantic import PydanticSchemaGenerationError, TypeAdapter

    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        raise RecipeError(
            f"a parameter is annotated {describe(annotation)}, which no recipe can write; "
            "annotate it Given[…] or as plain data."
        ) from None


def _why(error: ValueError, argument: Argument, node: Node) -> tuple[str, str]:
    from pydantic import ValidationError

    choices = [c for c in _choices(argument.annotation) if isinstance(c, str)]
    hint = did_you_mean(nearest(node.value, choices)) if isinstance(node.value, str) else ""
    inner = ""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if details and details[0]["loc"] and (node.is_list or node.is_mapping):
        inner = f" ({'.'.join(str(part) for part in details[0]['loc'])}: {details[0]['msg'].lower()})"
    return f"got {_shown(node)}, expected {describe(argument.annotation)}{inner}.", hint


# ---- words -----------------------------------------------------------------------------------------------------------

_ANY = 1 << 40  # an upper bound that messages do not mention
_words: dict[Any, str] = {
    Any: "any value", int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null",
    Duration: "a duration such as 20m",
}
_plurals: dict[Any, str] = {Any: "values", int: "whole numbers", float: "numbers", str: "texts", bool: "truth values"}


def describe(annotation: Any) -> str:
    """An annotation in words: `a whole number or null`, `one of post, pre`, `a list of numbers`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _words:
        return _words[annotation]
    argument = Argument(annotation)
    if argument.part_kind is not None:
        return f"a part: {argument.part_kind}" + (f" ({', '.join(argument.choices)})" if argument.choices else "")
    if origin is Annotated:
        return describe(arguments[0]) + bounds(annotation)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(str(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return _either(arguments)
    if origin in (list, tuple, set, frozenset):
        inner = [a for a in arguments if a is not Ellipsis]
        if origin is tuple and Ellipsis not in arguments:
            return f"a list of {len(inner)} values: {', '.join(describe(a) for a in inner)}"
        return f"a list of {_several(inner[0])}" if inner else "a list"
    if origin is dict:
        return f"a mapping from {_several(arguments[0])} to {_several(arguments[1])}"
    if argument.section is not None:
        return f"a mapping of {', '.join(argument.fields)}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _either(options: Sequence[Any]) -> str:
    """Alternatives in words; a list of all values if one of them is true or false."""
    if bool not in options:
        return " or ".join(map(describe, options))
    *first, last = [word for option in options for word in (("true", "false") if option is bool else (describe(option),))]
    return f"{', '.join(first)} or {last}"


def bounds(annotation: Any) -> str:
    """The bounds of a number in words: ` from 0 to 1`, ` above 0`; nothing where there are none."""
    limits: dict[str, Any] = {}
    for mark in marks(annotation):
        limits |= dataclasses.asdict(mark) if isinstance(mark, (Ge, Gt, Le, Lt)) else {}
    low = f"{limits['ge']:,}" if "ge" in limits else None
    if low is not None and "le" in limits and limits["le"] < _ANY:
        return f" from {low} to {limits['le']:,}"
    if low is not None and "lt" in limits:
        return f" of {low} or more and below {limits['lt']:,}"
    if low is not None:
        return f" of {low} or more"
    return f" above {limits['gt']:,}" if "gt" in limits else ""


def _several(annotation: Any) -> str:
    return _plurals.get(annotation) or describe(annotation).replace("a list of", "lists of", 1)


def _choices(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    return [choice for option in typing.get_args(annotation) for choice in _choices(option)]


def _listed(accepted: Arguments) -> str:
    return ", ".join(accepted) or "nothing"


def _shown(node: Node) -> str:
    if node.value is None:
        return "nothing"
    text = json.dumps(node.plain(), ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
