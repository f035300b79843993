"""A JSON schema of the recipe language, with which editors complete and check recipes.

It is made from the grammar and the signatures of all registered parts, those of `--with` files too. It is draft 7, which
yaml-language-server reads. It allows a little more than `cloze check`: references between sections, what parts ask of each other
and keys that a checkpoint or a stage supplies are left to that.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from cloze.bounds import Duration
from cloze.recipe import grammar, parts
from cloze.recipe.explain import summary
from cloze.recipe.recipe import as_plain_data
from cloze.recipe.schema import arguments_of_part, describe
from cloze.registry import Argument, Arguments

Schema = dict[str, Any]

#: The first line of a recipe that editors check against a schema in its folder.
HEADER = "# yaml-language-server: $schema=cloze.schema.json"
_PREFIX = "#/definitions/"
_BOUNDS: Mapping[type, str] = {Ge: "minimum", Gt: "exclusiveMinimum", Le: "maximum", Lt: "exclusiveMaximum"}
_TYPES: Mapping[Any, Schema] = {
    Any: {}, str: {"type": "string"}, bool: {"type": "boolean"}, int: {"type": "integer"}, float: {"type": "number"},
    type(None): {"type": "null"},
}


def recipe_schema() -> Schema:
    """The JSON schema of a recipe file, draft 7; `definitions` has one entry per kind, part and section that it refers to."""
    recipe = _recipe()
    definitions: Schema = {}
    pending = _references(recipe)
    while pending:
        name = pending.pop()
        if name not in definitions:
            definitions[name] = _definition(name)
            pending |= _references(definitions[name])
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "cloze recipe",
        **recipe,
        "required": ["name"],  # a checkpoint, a stage or a short form may supply the other keys
        "definitions": dict(sorted(definitions.items())),
    }


def _definition(name: str) -> Schema:
    """The schema of a section, of a part as `kind.name`, or of a kind."""
    if name in _SECTIONS:
        return _SECTIONS[name]()
    kind, _, part = name.partition(".")
    return _part(kind, part) if part else _kind(kind)


def _references(schema: Any) -> set[str]:
    """The definitions that a schema refers to."""
    if isinstance(schema, list):
        return {name for item in schema for name in _references(item)}
    if not isinstance(schema, dict):
        return set()
    reference = {schema["$ref"].removeprefix(_PREFIX)} if isinstance(schema.get("$ref"), str) else set()
    return reference.union(*(_references(inner) for inner in schema.values()))


# ---- parts and sections ----------------------------------------------------------------------------------------------


def _kind(kind: str) -> Schema:
    """A part of a kind: its name, or its name over its arguments."""
    names = parts.names(kind)
    return _either(*_parts(kind, names)) | {"description": f"A part of kind {kind}."}


def _parts(kind: str, names: list[str]) -> tuple[Schema, Schema]:
    """The names of parts, and a mapping with one of them as its only key."""
    name = {"enum": names, "enumDescriptions": [summary(kind, name) for name in names]}
    properties = {name: _reference(f"{kind}.{name}") for name in names}
    return name, {
        "type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1, "maxProperties": 1,
    }


def _part(kind: str, name: str) -> Schema:
    """What stands under the name of a part: a mapping of its arguments, its first argument alone, or nothing."""
    accepted = arguments_of_part(kind, name)
    inner = accepted | {key: Argument(Any, None) for key in grammar.NETWORK} if kind == "network" else accepted
    sentence = summary(kind, name)
    first = next((argument for key, argument in accepted.items() if key not in grammar.RESERVED.get(kind, {})), None)
    forms = [_section(inner, sentence)]
    forms += [] if first is None else [_value(first)]
    forms += [] if any(argument.required for argument in accepted.values()) else [{"type": "null"}]
    return _either(*forms) | {"description": sentence}


def _section(accepted: Arguments, description: str, **properties: Schema) -> Schema:
    """A mapping with these keys, of which some have `properties` of their own."""
    schemas = {key: properties.get(key) or _documented(argument) for key, argument in accepted.items()}
    section: Schema = {
        "type": "object", "description": description, "properties": schemas, "additionalProperties": False,
    }
    required = [key for key, argument in accepted.items() if argument.required]
    return section | ({"required": required} if required else {})


def _recipe() -> Schema:
    """All keys of a recipe."""
    sections = {
        "texts": _named(_reference("section.text")),
        "networks": _named(_reference("section.network")),
        "passes": {"type": "array", "items": _reference("section.pass")},
        "mixture": _named(_either(_reference("section.entry"), {"type": "null"})),
        "schedule": {"type": "array", "items": _reference("section.phase")},
        "stages": _named(_either(_reference("section.stage"), {"type": "null"})),
    }
    recipe = _section(grammar.RECIPE, "A recipe of cloze.", **sections)
    properties = recipe["properties"]
    properties |= {short: properties[plural]["additionalProperties"] for short, plural in grammar.SINGULAR.items()}
    return recipe


def _stage() -> Schema:
    """What a stage may write: keys of a recipe, its share of the budget, and which source it keeps."""
    keys = {"share": {"type": "number", "exclusiveMinimum": 0}, "each": {"const": "depth_group"}, "source": {"type": "string"}}
    return {"type": "object", "properties": _recipe()["properties"] | keys, "additionalProperties": False}


def _network() -> Schema:
    """A network: its part, and next to it the keys of networks; or only where it comes from."""
    names = parts.names("network")
    keys = {key: _documented(argument) for key, argument in grammar.NETWORK.items()}
    properties = {name: _reference(f"network.{name}") for name in names} | keys
    mapping = {"type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1}
    return _either(_parts("network", names)[0], mapping)


def _entry() -> Schema:
    passes = {"type": "array", "items": _reference("section.pass")}
    return _section(grammar.ENTRY, "One entry of a mixture.", passes=passes)


def _take() -> Schema:
    """The fields that a pass takes from earlier passes, or rewriters by their names."""
    rewriters = {name: _reference(f"rewriter.{name}") for name in parts.names("rewriter")}
    return {"type": "object", "properties": rewriters, "additionalProperties": {"type": "string"}}


_SECTIONS: Mapping[str, Callable[[], Schema]] = {
    "section.text": lambda: _section(grammar.TEXT, "How strings become tokens."),
    "section.network": _network,
    "section.pass": lambda: _section(grammar.PASS, "One network that runs on one view, and its objectives.", take=_take()),
    "section.entry": _entry,
    "section.phase": lambda: _section(grammar.PHASE, "A stretch of training, and the value paths that it sets."),
    "section.stage": _stage,
}


# ---- values ----------------------------------------------------------------------------------------------------------


def _documented(argument: Argument) -> Schema:
    """The schema of an argument, described in words, with its default."""
    schema = _value(argument) | {"description": describe(argument.annotation)}
    return schema if argument.required else schema | {"default": as_plain_data(argument.default)}


def _value(argument: Argument) -> Schema:
    """What an argument may hold."""
    if argument.part_kind is not None:
        names = argument.choices or []
        allowed = _either(*_parts(argument.part_kind, names)) if names else _reference(argument.part_kind)
        return _either(allowed, {"type": "null"}) if argument.default is None else allowed
    schema = _annotation(argument.annotation)
    if isinstance(argument.default, Mapping):  # it fills in what a section leaves out
        for form in schema.get("anyOf", [schema]):
            form.pop("required", None)
    return schema if argument.instead_kind is None else _either(schema, _reference(argument.instead_kind))


def _annotation(annotation: Any) -> Schema:
    """The schema of a type; of a type that the recipe language does not know, anything."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    argument = Argument(annotation)
    if argument.part_kind is not None:
        return _reference(argument.part_kind)
    if annotation == Duration:
        return {"type": "string"}
    if origin is Annotated:
        return _annotation(arguments[0]) | _bounds(arguments[1:])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _either(*(_annotation(option) for option in arguments))
    if origin in (list, tuple, set, frozenset):
        return _sequence(origin, arguments)
    if origin is dict:
        keys = {"propertyNames": _annotation(arguments[0])} if get_origin(arguments[0]) is Literal else {}
        return _named(_annotation(arguments[1])) | keys
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _section(argument.fields, describe(annotation))
    return dict(_TYPES.get(annotation, {}))


def _sequence(origin: Any, arguments: tuple[Any, ...]) -> Schema:
    if origin is tuple and Ellipsis not in arguments:
        size = len(arguments)
        return {"type": "array", "items": [_annotation(a) for a in arguments], "minItems": size, "maxItems": size}
    return {"type": "array", "items": _annotation(arguments[0])}


def _bounds(marks: tuple[Any, ...]) -> Schema:
    """The bounds of a number, or of the length of a list."""
    bounds: Schema = {}
    for mark in marks:
        bounds |= {_BOUNDS[type(mark)]: value for value in dataclasses.asdict(mark).values()} if type(mark) in _BOUNDS else {}
        bounds |= {"minItems": mark.min_length} if isinstance(mark, MinLen) else {}
        bounds |= {"maxItems": mark.max_length} if isinstance(mark, MaxLen) else {}
    return bounds


def _named(schema: Schema) -> Schema:
    """A mapping from any name to values of this schema."""
    return {"type": "object", "additionalProperties": schema}


def _either(*schemas: Schema) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _reference(definition: str) -> Schema:
    return {"$ref": _PREFIX + definition}
