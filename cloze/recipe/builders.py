"""Calls builders with arguments from a recipe or a checkpoint, and with what cloze supplies for `Given[…]` parameters.

`GIVEN` is the complete list of what a builder may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cloze.errors import RecipeError
from cloze.exercises.exercise import PlacedEdit
from cloze.recipe.parts import builder_of
from cloze.recipe.recipe import EditSpec, PartSpec, as_plain_data
from cloze.registry import Argument, Schedulable, is_whole, lookup, signature

#: The legal names of `Given` parameters, and what each receives. Which of them a part gets depends on its kind: edits get the
#: tokenizer, tables, counts and `keeps_empty` (`checkpoint.feeds.edits_of`), networks and objectives what `checkpoint.build_step`
#: knows, sources the tables. A parameter that its kind is not given keeps its default.
GIVEN: Mapping[str, str] = {
    "vocab_size": "how many ids the tokenizer has",
    "tokenizer": "TokenFacts: ids of roles, the ordinary ids, a reader for literal text",
    "clock": "the run's clock: seed, step, first row, share of the budget spent",
    "width": "width of the state that an objective reads",
    "order": "the order in which an objective's network reads, `open` where it is not the same for all rows",
    "limit": "the most tokens that an edit may return; known once the exercise has a length",
    "table": "the token table of the network that an objective reads, for tying",
    "maps": "the linear maps of that network that read numbers, such as features of regions, by the name of what they read",
    "vector_tables": "all tables of vectors of that network by name: tokens, further inputs, senses",
    "counts": "how often each id occurs (V,): for an edit in the corpus of its entry, else in that of the first source; None "
    "while a recipe is only checked, and when a checkpoint is loaded",
    "entity_count": "how many entities the graph of the first source has; None while a recipe is only checked, and when a "
    "checkpoint is loaded",
    "documents": "how many documents the store of the first source has; None while a recipe is only checked, and when a "
    "checkpoint is loaded",
    "spellings": "how the tokenizer spells each id (V); None while a recipe is only checked",
    "tables": "the look-up tables of the recipe by name; also how each network with a tokenizer of its own reads a text, by the "
    "name of the network (`OtherReading`)",
    "keeps_empty": "whether a text without tokens keeps the tokens of its template, as the texts of records do",
}


def given_names(builder: Callable[..., Any]) -> set[str]:
    """The names of a builder's `Given` parameters."""
    return {name for name, argument in signature(builder).items() if argument.given}


def build(builder: Callable[..., Any], arguments: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    """Call a builder with a recipe's arguments and with the `available` values that its `Given` parameters name.

    `arguments` are plain data, or values that are built already. A nested part is `{name: {argument: value}}` or its name alone,
    a section is a mapping of its fields. Both are built first, by the same function: `positions: {rotary: {base: 160000}}`
    becomes `Rotary(base=160000.0)`.
    """
    needed = given_names(builder)
    unknown = needed - GIVEN.keys()
    if unknown:
        raise RecipeError(
            f"{builder.__module__}.{builder.__qualname__} asks to be given {', '.join(sorted(unknown))}; "
            f"cloze gives: {', '.join(GIVEN)}."
        )
    accepted = signature(builder)
    # 1.0: the value at the end of training.
    values = {name: schedule(1.0) for name, schedule in schedules(builder, arguments).items()}
    for name, value in arguments.items():
        if name not in values:  # a name that is not accepted is refused by the call
            values[name] = _build_value(accepted[name], value, available) if name in accepted else value
    return builder(**values, **{name: available[name] for name in needed if name in available})


def schedules(builder: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Callable[[float], float]]:
    """The arguments of a builder of a `Schedulable` kind that follow a schedule, each as a function of the share spent.

    A part that is built outside of training, for example to read a text, gets the values that the schedules end with.
    """
    accepted, functions = signature(builder), dict[str, Callable[[float], float]]()
    if not (isinstance(builder, type) and issubclass(builder, Schedulable)):
        return functions
    for name, value in arguments.items():
        if name in accepted and isinstance(value, Mapping) and accepted[name].live:
            schedule = _build_nested("schedule", value, {})
            functions[name] = RoundedSchedule(schedule) if is_whole(accepted[name].annotation) else schedule
    return functions


def place_edit(spec: EditSpec, available: Mapping[str, Any]) -> PlacedEdit:
    """Build an edit of a recipe for its view; numbers that follow a schedule have their values at the start of training.

    If the edit refuses its tokenizer or tables, the `RecipeError` says where in the recipe it is.
    """
    builder, arguments = lookup(spec.part.kind, spec.part.name), as_plain_data(spec.part.arguments)
    try:
        return PlacedEdit(build(builder, arguments, available), spec.view, schedules(builder, arguments)).when(0.0)
    except RecipeError as error:
        raise RecipeError(f"{spec.part.where}: {spec.part.path}: {error}") from None


class RoundedSchedule:
    """A schedule of whole numbers: each value of another schedule, rounded."""

    def __init__(self, schedule: Callable[[float], float]) -> None:
        self.schedule = schedule

    def __call__(self, share: float) -> int:
        return round(self.schedule(share))


def _build_value(argument: Argument, value: Any, available: Mapping[str, Any]) -> Any:
    """An argument as its builder takes it: parts, sections and schedules are built, any other value is unchanged."""
    value = argument.with_defaults(value)
    if not isinstance(value, Mapping):
        return value
    if argument.section is not None:
        return build(argument.section, value, available)
    if argument.sections is not None:
        return {name: build(argument.sections, section, available) for name, section in value.items()}
    if argument.parts_kind is not None:
        return {name: _build_nested(argument.parts_kind, part, available) for name, part in value.items()}
    kind = argument.part_kind or ("schedule" if argument.live else None)
    return value if kind is None else _build_nested(kind, value, available)


def _build_nested(kind: str, part: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    ((name, arguments),) = as_plain_data(part).items()
    return build(builder_of(kind, name), arguments or {}, available)


class StandIn(NamedTuple):
    """Takes the place of a look-up table when a network is built before its corpus is known; it has a size and no contents.

    A table of senses also has `allowed` and `mixed`.
    """

    size: int
    allowed: None = None
    mixed: None = None


def stand_ins(tables: Mapping[str, PartSpec]) -> dict[str, Any]:
    """One stand-in for each of these tables, of its usual size."""
    parts: dict[str, Any] = {name: builder_of(spec.kind, spec.name) for name, spec in tables.items()}
    return {name: StandIn(part.usual_size) for name, part in parts.items()}


def tables_for(arguments: Mapping[str, Any], origin: object, tables: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The look-up tables that a network of these arguments is given; None if its rows come from the checkpoint `origin` and it
    names none of the tables."""
    return tables if origin is None or _names_table(arguments, tables) else None


def _names_table(value: Any, tables: Mapping[str, Any]) -> bool:
    """Whether an argument, or one inside it, is the name of a table."""
    if isinstance(value, PartSpec):
        return _names_table(value.arguments, tables)
    if isinstance(value, Mapping):
        return any(_names_table(inner, tables) for inner in value.values())
    return isinstance(value, str) and value in tables


def restored(tables: Mapping[str, Any], labels: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """The look-up tables of a checkpoint, rebuilt from their arrays; for layers whose labels have the names `labels`."""
    parts: dict[str, Any] = {name: lookup("table", table.part) for name, table in tables.items()}
    restored_tables = {
        name: parts[name].restored({key: array.numpy() for key, array in table.arrays.items()}) for name, table in tables.items()
    }
    return {name: parts[name].naming(table, labels) for name, table in restored_tables.items()} if labels else restored_tables


def with_label_names(
    table_parts: Mapping[str, PartSpec], tables: Mapping[str, Any], labels: Mapping[str, Sequence[str]]
) -> Mapping[str, Any]:
    """The look-up tables of a run, for layers whose labels have the names `labels`; `table_parts` are the recipe's tables."""
    if not labels:
        return tables
    parts: dict[str, Any] = {name: builder_of(spec.kind, spec.name) for name, spec in table_parts.items()}
    return {name: parts[name].naming(table, labels) if name in parts else table for name, table in tables.items()}
