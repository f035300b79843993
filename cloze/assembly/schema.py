"""A builder's signature as the schema of its arguments: short forms, types, defaults, nearest names.

`arguments_of` reads a signature. `expand_part` writes out the short forms of a part in the tree, with the defaults of its nested
parts and sections. `read_part` then checks every value and returns a `PartSpec`, in whose arguments a nested part is a `PartSpec`
and a section a mapping. An unknown argument is refused with the nearest name, an old one with its new name (`cloze.renamed`).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union

from annotated_types import Ge, Gt, Le, Lt

from cloze.assembly import parts
from cloze.assembly.faults import Faults
from cloze.assembly.recipe import PartSpec
from cloze.assembly.user_files import file_to_give
from cloze.bounds import Duration, NonNegative
from cloze.document import Node, from_data
from cloze.errors import RecipeError, UnknownPart, did_you_mean, nearest, propose
from cloze.registry import (
    GivenMark,
    LiveMark,
    PartMark,
    as_data,
    choices,
    is_live,
    is_whole,
    kind_of_parts,
    marks,
    parameters,
    section_of,
    takes_numbers,
)
from cloze.renamed import advice

_REQUIRED: Any = inspect.Parameter.empty


class Argument(NamedTuple):
    """One argument that a recipe may write: its annotation and its default, a nested part or a section as plain data."""

    annotation: Any
    default: Any = _REQUIRED

    @property
    def required(self) -> bool:
        """Whether the recipe must write it."""
        return self.default is _REQUIRED

    @property
    def part(self) -> str | None:
        """The kind of part it holds, if it is a `Part[kind]`."""
        return next((mark.kind for mark in self._marks() if isinstance(mark, PartMark)), None)

    @property
    def parts(self) -> str | None:
        """The kind of the parts that it holds by name, if it is a mapping of them."""
        return kind_of_parts(self.annotation)

    @property
    def section(self) -> Arguments | None:
        """The fields of the section that it holds; None if it holds none."""
        cls = section_of(self.annotation)
        return None if cls is None else arguments_of(cls)

    @property
    def choices(self) -> list[str] | None:
        """The names of the parts that it may hold; None: all of the kind."""
        assert self.part is not None
        if typing.get_args(self.annotation)[0] is Any:
            return None
        parts.load_kind(self.part)
        return choices(self.part, self.annotation)

    @property
    def live(self) -> bool:
        """Whether a recipe may write a schedule part instead of the number."""
        return any(isinstance(mark, LiveMark) for mark in self._marks())

    @property
    def given(self) -> bool:
        """Whether cloze supplies it, so that a recipe may not."""
        return any(isinstance(mark, GivenMark) for mark in self._marks())

    def _marks(self) -> tuple[Any, ...]:
        return marks(self.annotation)


Arguments = Mapping[str, Argument]

# Arguments that assembly reads itself and does not pass to the builder.
RESERVED: Mapping[str, Arguments] = {
    "edit": {"in": Argument(str, "main")},
    "objective": {
        "read": Argument(str | dict[str, str] | None, None),
        "head": Argument(str | None, None),
        "weight": Argument(Annotated[NonNegative, LiveMark()], 1.0),
    },
    "rewriter": {"from": Argument(str | dict[str, str])},
}


def arguments_of(builder: Callable[..., Any]) -> dict[str, Argument]:
    """What a recipe may write for a builder: its parameters that are neither given by assembly nor private."""
    try:
        return dict(_arguments_of(builder))
    except NameError as error:
        name = f"{builder.__module__}.{builder.__qualname__}"
        raise RecipeError(f"the signature of {name} cannot be read: {error}.") from None


@cache
def _arguments_of(builder: Callable[..., Any]) -> Arguments:
    found = parameters(builder)
    made = {
        name: Argument(_annotation(builder, name, p), as_data(p.default, _kind(p.annotation))) for name, p in found.items()
        if not name.startswith("_") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    return {name: argument for name, argument in made.items() if not argument.given}


def _annotation(builder: Callable[..., Any], name: str, parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter, with the mark of a schedule if it may follow one."""
    plain = parameter.annotation
    marked = any(isinstance(mark, LiveMark) for mark in marks(plain))
    return Annotated[plain, LiveMark()] if not marked and is_live(builder, name) else plain


def _kind(annotation: Any) -> str | None:
    return next((mark.kind for mark in marks(annotation) if isinstance(mark, PartMark)), None)


def arguments_of_part(kind: str, name: str) -> dict[str, Argument]:
    """The arguments of a part, then those that assembly reads for its kind."""
    return {**arguments_of(parts.builder_of(kind, name)), **RESERVED.get(kind, {})}


# ---- expanding short forms ------------------------------------------------------------------------------------------


def expand_part(
    kind: str, node: Node, path: str, faults: Faults, reserved: frozenset[str] = frozenset(), known: Sequence[str] | None = None,
    default: Any = None,
) -> None:
    """Rewrite a part in place as `{name: {argument: node}}`, and set `Node.part` to its kind.

    Keys in `reserved` belong to assembly, not to the part (a network's `from`); they remain next to the name. `known` are the
    legal names, by default all of the kind. What the part leaves out comes from `default` if that is the same part.
    """
    if isinstance(node.value, str):
        name, inner = node.value, Node({}, node.where)
        node.value, node.keys = {}, {}
    elif node.is_mapping and len(named := [key for key in node.value if key not in reserved]) == 1:
        name, inner = str(named[0]), node.value[named[0]]
    else:
        found = f"the keys {', '.join(map(repr, node.value))}" if node.is_mapping and node.value else _shown(node)
        faults.add(node.where, path, f"expected one {kind}, got {found}.", "Write `name`, or `name: {argument: value}`.")
        return
    try:
        if known is not None and name not in known and len(known) < len(parts.names(kind)):
            raise RecipeError(f"{kind} cannot be {name!r} here. {propose(name, known)}")
        accepted = arguments_of_part(kind, name)
    except RecipeError as error:
        place = node.place(name)
        faults.add(place, path, str(error), file_to_give(Path(place.file)) if isinstance(error, UnknownPart) else "")
        return
    if inner.value is None:
        inner = Node({}, inner.where)
    elif not inner.is_mapping:
        first = next((p for p in accepted if p not in RESERVED.get(kind, {})), None)
        if first is None:
            faults.add(inner.where, f"{path}.{name}", f"{name} takes no arguments, got {_shown(inner)}.")
            return
        inner = Node({first: inner}, inner.where, {first: inner.where})
    node.put(name, inner)
    node.part = kind
    _inherit(inner, default.get(name) if isinstance(default, Mapping) else None)
    expand_arguments(accepted, inner, f"{path}.{name}", faults)


def expand_arguments(accepted: Arguments, node: Node, path: str, faults: Faults) -> None:
    """Expand the nested parts and sections among the arguments of a part or section; those left out get their defaults."""
    for key, argument in accepted.items():
        nested = bool(argument.part or argument.section)
        if key not in node.value and nested and not argument.required and argument.default is not None:
            node.put(key, from_data(argument.default, node.where))
        if key in node.value and argument.section and takes_numbers(argument.annotation):
            node.value[key].first = next(iter(argument.section))  # one number may stand for it
    for given, value in node.items():
        p = accepted.get(str(given))
        if p is not None and p.part and not (value.value is None and p.default is None):
            expand_part(p.part, value, f"{path}.{given}", faults, known=p.choices, default=p.default)
        elif p is not None and p.parts and value.is_mapping:
            for name, inner in value.items():
                expand_part(p.parts, inner, f"{path}.{given}.{name}", faults)
        elif p is not None and p.section and value.is_mapping:
            _inherit(value, p.default)
            expand_arguments(p.section, value, f"{path}.{given}", faults)
        elif p is not None and p.live and value.is_mapping:
            expand_part("schedule", value, f"{path}.{given}", faults)


def _inherit(node: Node, default: Any) -> None:
    """Put the arguments of `default` that a part or section leaves out."""
    for key, value in default.items() if isinstance(default, Mapping) else ():
        if key not in node.value:
            node.put(key, from_data(value, node.where))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_part(node: Node, path: str, faults: Faults) -> tuple[PartSpec, dict[str, Any]] | None:
    """An expanded part as a `PartSpec`, and separately its reserved arguments; None if there are faults."""
    if node.part is None:
        return None
    kind = node.part
    name = next(str(key) for key, inner in node.items() if inner.is_mapping)
    inner = node.value[name]
    values = read_arguments(name, arguments_of_part(kind, name), inner, f"{path}.{name}", faults, kind)
    if values is None:
        return None
    apart = {key: values.pop(key) for key in RESERVED.get(kind, {})}
    return PartSpec(kind, name, values, node.place(name), f"{path}.{name}"), apart


def check_part(kind: str, node: Node) -> None:
    """Raise a `RecipeError` with every fault of a part, which is expanded in place."""
    faults = Faults()
    expand_part(kind, node, kind, faults)
    if not len(faults):
        read_part(node, kind, faults)
    faults.raise_if_any()


def read_arguments(
    owner: str, accepted: Arguments, node: Node, path: str, faults: Faults, kind: str = ""
) -> dict[str, Any] | None:
    """Every parameter's value: checked where written, its default elsewhere. None, and faults, if any is wrong.

    `owner` is the name of the part or section in messages; `kind` is the kind of the part.
    """
    if not node.is_mapping:
        faults.add(node.where, path, f"expected a mapping, got {_shown(node)}.", f"{owner} accepts: {_listed(accepted)}.")
        return None
    sound = True
    for key in node.value:
        if key not in accepted:
            sound = False
            hint = did_you_mean(nearest(str(key), map(str, accepted)))
            way_out = advice(kind, owner, str(key)) or f"{owner} accepts: {_listed(accepted)}. {hint}".rstrip()
            faults.add(node.place(key), f"{path}.{key}".lstrip("."), f'unknown argument "{key}".', way_out)
    values: dict[str, Any] = {}
    for name, p in accepted.items():
        if name in node.value:
            good, values[name] = _read_value(p, node.value[name], f"{path}.{name}".lstrip("."), faults)
            sound &= good
        elif p.required:
            sound = False
            faults.add(node.where, path, f'{owner} needs "{name}" ({describe(p.annotation)}).', f"Add `{name}: …` here.")
        else:
            values[name] = p.default
    return values if sound else None


def _read_value(p: Argument, node: Node, path: str, faults: Faults) -> tuple[bool, Any]:
    if p.part is not None and node.part is None and node.value is not None:  # what `--set` put where there was no part
        expand_part(p.part, node, path, faults, known=p.choices, default=p.default)
    if node.part is not None:
        read = read_part(node, path, faults)
        if read is None:
            return False, None
        return _within(p, read[0], node, path, faults), read[0]
    if p.parts is not None and node.is_mapping:
        named = {str(name): _read_named(p.parts, inner, f"{path}.{name}", faults) for name, inner in node.items()}
        return all(one is not None for one in named.values()), named
    if p.section is not None and node.is_mapping:
        found = read_arguments(path.rpartition(".")[2], p.section, node, path, faults)
        return found is not None, found
    if p.part is not None:  # a part that could not be expanded has been reported already
        return node.value is None and p.default is None, None
    if p.live and node.is_mapping:
        return False, None
    try:
        return True, check_value(p.annotation, node.plain())
    except ValueError as error:
        faults.add(node.where, path, *_why(error, p, node))
        return False, None


def _read_named(kind: str, node: Node, path: str, faults: Faults) -> PartSpec | None:
    """One of several parts by name; a part that could not be expanded has been reported already."""
    if node.part is None and isinstance(node.value, str):
        expand_part(kind, node, path, faults)
    found = read_part(node, path, faults)
    return None if found is None else found[0]


def _within(p: Argument, schedule: PartSpec, node: Node, path: str, faults: Faults) -> bool:
    """Whether both ends of a schedule are values that the number itself could have."""
    sound = True
    for end in ("start", "end") if p.live and schedule.kind == "schedule" else ():
        if end not in schedule.arguments:
            continue
        try:
            check_value(p.annotation, _as_whole(p.annotation, schedule.arguments[end]))
        except ValueError:
            sound = False
            given = f"got {schedule.arguments[end]}, expected {describe(p.annotation)}."
            faults.add(node.where, f"{path}.{schedule.name}.{end}", given)
    return sound


def _as_whole(annotation: Any, value: float) -> float:
    """The end of a schedule as a whole number, if it is one and the argument takes only these."""
    return int(value) if is_whole(annotation) and value == int(value) else value


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


def _why(error: ValueError, p: Argument, node: Node) -> tuple[str, str]:
    from pydantic import ValidationError

    choices = [c for c in _choices(p.annotation) if isinstance(c, str)]
    hint = did_you_mean(nearest(node.value, choices)) if isinstance(node.value, str) else ""
    inner = ""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if details and details[0]["loc"] and (node.is_list or node.is_mapping):
        inner = f" ({'.'.join(str(part) for part in details[0]['loc'])}: {details[0]['msg'].lower()})"
    return f"got {_shown(node)}, expected {describe(p.annotation)}{inner}.", hint


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
    if origin is typing.Annotated:
        mark = next((m for m in arguments[1:] if isinstance(m, (PartMark, LiveMark))), None)
        if isinstance(mark, PartMark):
            named = Argument(annotation).choices
            return f"a part: {mark.kind}" + (f" ({', '.join(named)})" if named else "")
        return describe(arguments[0]) + bounds(annotation)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(str(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(option) for option in arguments)
    if origin in (list, tuple, set, frozenset):
        inner = [a for a in arguments if a is not Ellipsis]
        if origin is tuple and Ellipsis not in arguments:
            return f"a list of {len(inner)} values: {', '.join(describe(a) for a in inner)}"
        return f"a list of {_several(inner[0])}" if inner else "a list"
    if origin is dict:
        return f"a mapping from {_several(arguments[0])} to {_several(arguments[1])}"
    if (section := section_of(annotation)) is not None:
        return f"a mapping of {', '.join(arguments_of(section))}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def bounds(annotation: Any) -> str:
    """The bounds of a number in words: ` from 0 to 1`, ` above 0`; nothing where there are none."""
    found: dict[str, Any] = {}
    for mark in marks(annotation):
        found |= dataclasses.asdict(mark) if isinstance(mark, (Ge, Gt, Le, Lt)) else {}
    low = f"{found['ge']:,}" if "ge" in found else None
    if low is not None and "le" in found and found["le"] < _ANY:
        return f" from {low} to {found['le']:,}"
    if low is not None and "lt" in found:
        return f" from {low} to below {found['lt']:,}"
    if low is not None:
        return f" of {low} or more"
    return f" above {found['gt']:,}" if "gt" in found else ""


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


def unknown_keys(node: Node, known: tuple[str, ...], path: str, faults: Faults) -> None:
    """Report keys of a section that the language does not have."""
    for key in node.value:
        if key not in known:
            hint = did_you_mean(nearest(str(key), known))
            way_out = f"{path or 'A recipe'} has the keys: {', '.join(known)}. {hint}".rstrip()
            faults.add(node.place(key), f"{path}.{key}".lstrip("."), f'unknown key "{key}".', way_out)
