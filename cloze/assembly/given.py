"""Everything that assembly injects into builders: the closed table behind `Given[T]`. It is a list, not a container."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cloze.assembly.parts import builder_of
from cloze.errors import RecipeError
from cloze.registry import GivenMark, LiveMark, PartMark, lookup, mark_of, parameters, section_of

#: What a builder may ask for, and what it gets.
MEANINGS: Mapping[str, str] = {
    "vocab_size": "how many ids the tokenizer has",
    "tokenizer": "TokenFacts: ids of roles, the ordinary ids, a reader for literal text",
    "clock": "the run's clock: seed, step, first row, share of the budget spent",
    "width": "width of the state that an objective reads",
    "limit": "how many tokens may come out of an edit; known once the exercise has a length",
    "table": "the token table of the network that an objective reads, for tying",
    "counts": "how often each id occurs in the corpus of the entry, for networks and objectives of the first source (V,); None "
    "while a recipe is only checked, and when a checkpoint is loaded",
    "spellings": "how the tokenizer spells each id (V); None while a recipe is only checked",
    "tables": "the look-up tables of the recipe by name",
    "keeps_empty": "whether a text without tokens keeps what the template puts around it: one of a record does",
}


def wanted(builder: Callable[..., Any]) -> set[str]:
    """What a builder asks to be given."""
    return {name for name, p in parameters(builder).items() if isinstance(mark_of(p), GivenMark)}


def build(builder: Callable[..., Any], arguments: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    """Call a builder with a recipe's arguments and whatever of `available` its signature marks as given.

    A nested part stands among the arguments as data, `{name: {argument: value}}` or its name alone, a section as a mapping of its
    fields; both are built in the same way.
    """
    asked = wanted(builder)
    unknown = asked - MEANINGS.keys()
    if unknown:
        raise RecipeError(
            f"{builder.__module__}.{builder.__qualname__} asks to be given {', '.join(sorted(unknown))}; "
            f"assembly gives: {', '.join(MEANINGS)}."
        )
    slots = parameters(builder)
    made = {name: _made(slots[name], value, available) if name in slots else value for name, value in arguments.items()}
    return builder(**made, **{name: available[name] for name in asked if name in available})


def _made(parameter: inspect.Parameter, value: Any, available: Mapping[str, Any]) -> Any:
    """A value of a recipe, or the part or section that it describes where the parameter holds one."""
    mark, section = mark_of(parameter), section_of(parameter.annotation)
    if section is not None and isinstance(value, Mapping):
        return build(section, value, available)
    kind = mark.kind if isinstance(mark, PartMark) else "schedule" if isinstance(mark, LiveMark) else None
    if isinstance(mark, PartMark) and isinstance(value, str):
        value = {value: {}}
    if kind is None or not isinstance(value, Mapping):
        return value
    ((name, arguments),) = value.items()
    return build(builder_of(kind, name), arguments or {}, available)


class StandIn(NamedTuple):
    """A look-up table of which only the size matters: to build a network before its corpus is known."""

    size: int = 1000


def stand_ins(tables: Iterable[str]) -> dict[str, Any]:
    """One stand-in for each of these tables."""
    return {name: StandIn() for name in tables}


def tables_for(origin: str | None, tables: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The look-up tables that a network is given; None where it has an `origin`, which brings the rows, and there are none."""
    return tables if tables or origin is None else None


def restored(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The look-up tables of a checkpoint, made again."""
    parts: dict[str, Any] = {name: lookup("table", table.part) for name, table in tables.items()}
    return {
        name: parts[name].restored({key: array.numpy() for key, array in table.arrays.items()}) for name, table in tables.items()
    }
