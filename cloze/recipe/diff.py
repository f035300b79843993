"""The differences between two recipes, as a list of value paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from cloze.recipe.canonical import flow
from cloze.recipe.recipe import (
    EditSpec,
    EntrySpec,
    NetworkSpec,
    ObjectiveSpec,
    PartSpec,
    PassSpec,
    Recipe,
    RewriterSpec,
    as_plain_data,
)
from cloze.recipe.schema import arguments_of_part

ABSENT = "—"


class ValueDifference(NamedTuple):
    """One difference. A side without a value is `ABSENT`."""

    path: str
    left: Any
    right: Any

    def shown(self) -> tuple[str, str, str]:
        """The three columns of a table."""
        return self.path, _shown(self.left), _shown(self.right)


def diff(left: Recipe, right: Recipe) -> list[ValueDifference]:
    """Every difference between two recipes but name, paper and notes, in the order of the canonical form.

    Edits, objectives and passes are matched by name, so an edit that only moved or was left out is one line.
    """
    changes: list[ValueDifference] = []
    for name in ("texts", "sources", "networks", "tie", "tie_detached", "reading"):
        changes += _compare(name, vars(left)[name], vars(right)[name])
    if list(left.entries) == list(right.entries) == ["main"]:
        changes += _entry("", left.entries["main"], right.entries["main"])
    else:
        changes += _compare("mixture", left.entries, right.entries)
    for name in ("mixing", "schedule", "training", "export"):
        changes += _compare(name, vars(left)[name], vars(right)[name])
    return changes


def _compare(path: str, left: Any, right: Any) -> Iterator[ValueDifference]:
    """The differences below one path."""
    if left == right:
        return
    if isinstance(left, PartSpec) and isinstance(right, PartSpec):
        yield from _parts(path, left, right)
    elif isinstance(left, EntrySpec) and isinstance(right, EntrySpec):
        yield from _entry(f"{path}.", left, right)
    elif isinstance(left, NetworkSpec) and isinstance(right, NetworkSpec):
        yield from _compare(path, left.part, right.part)
        for attribute in ("origin", "change", "train", "architecture", "start"):
            key = {"origin": "from"}.get(attribute, attribute)
            yield from _compare(f"{path}.{key}", vars(left)[attribute], vars(right)[attribute])
    elif isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in dict.fromkeys([*left, *right]):
            yield from _compare(f"{path}.{key}", left.get(key, ABSENT), right.get(key, ABSENT))
    elif _record(left) and type(left) is type(right):
        for key in (field.name for field in dataclasses.fields(left)):
            yield from _compare(f"{path}.{key}", vars(left)[key], vars(right)[key])
    else:
        yield ValueDifference(path, _bare(left), _bare(right))


def _record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, (PartSpec, ObjectiveSpec, EditSpec))


def _parts(path: str, left: PartSpec, right: PartSpec) -> Iterator[ValueDifference]:
    """Two parts under one key: their names if they differ, then the arguments. An argument that only one side has is listed
    unless it is a default."""
    if left.name != right.name:
        yield ValueDifference(path, left.name, right.name)
    for key in dict.fromkeys([*left.arguments, *right.arguments]):
        if key in left.arguments and key in right.arguments:
            yield from _compare(f"{path}.{key}", left.arguments[key], right.arguments[key])
            continue
        owner, sides = (left, 0) if key in left.arguments else (right, 1)
        if key in _chosen(owner):
            pair = [ABSENT, ABSENT]
            pair[sides] = _bare(owner.arguments[key])
            yield ValueDifference(f"{path}.{key}", *pair)


def _entry(prefix: str, left: EntrySpec, right: EntrySpec) -> Iterator[ValueDifference]:
    for name in ("odds", "source", "order", "task"):
        yield from _compare(f"{prefix}{name}", vars(left)[name], vars(right)[name])
    yield from _lists(f"{prefix}exercise", left.exercise, right.exercise)
    if len(left.passes) == len(right.passes) == 1:
        yield from _pass(prefix, left.passes[0], right.passes[0])
    else:
        yield from _lists(f"{prefix}passes", left.passes, right.passes)


def _pass(prefix: str, left: PassSpec, right: PassSpec) -> Iterator[ValueDifference]:
    for name in ("network", "view", "take", "grad"):
        yield from _compare(f"{prefix}{name}", vars(left)[name], vars(right)[name])
    yield from _lists(f"{prefix}objectives", left.objectives, right.objectives)


def _lists(path: str, left: Sequence[Any], right: Sequence[Any]) -> Iterator[ValueDifference]:
    """Two lists of named things, matched by name."""
    names = [[_name(item) for item in side] for side in (left, right)]
    for kind, a, b, c, d in SequenceMatcher(a=names[0], b=names[1], autojunk=False).get_opcodes():
        if kind == "equal":
            for i, j in zip(range(a, b), range(c, d), strict=True):
                yield from _item(_address(path, names[0], i), left[i], right[j])
            continue
        yield from (ValueDifference(_address(path, names[0], i), _bare(left[i]), ABSENT) for i in range(a, b))
        yield from (ValueDifference(_address(path, names[1], j), ABSENT, _bare(right[j])) for j in range(c, d))


def _item(path: str, left: Any, right: Any) -> Iterator[ValueDifference]:
    if isinstance(left, PassSpec):
        yield from _pass(f"{path}.", left, right)
        return
    yield from _compare(path, left.part, right.part)
    reserved = ("view",) if isinstance(left, EditSpec) else ("read", "head", "weight")
    for name in reserved:
        key = "in" if name == "view" else name
        yield from _compare(f"{path}.{key}", vars(left)[name], vars(right)[name])


def _name(item: Any) -> str:
    return str(item.name) if isinstance(item, PassSpec) else str(item.part.name)


def _address(path: str, names: list[str], index: int) -> str:
    return f"{path}.{names[index]}" if names.count(names[index]) == 1 else f"{path}[{index}]"


def _chosen(part: PartSpec) -> dict[str, Any]:
    """The arguments that are not the builder's defaults."""
    accepted = arguments_of_part(part.kind, part.name)
    return {
        k: v for k, v in part.arguments.items()
        if k not in accepted or accepted[k].required or accepted[k].default != as_plain_data(v)
    }


def _bare(value: Any) -> Any:
    """A value as plain data; parts without their default arguments."""
    if isinstance(value, PartSpec):
        return {value.name: _bare(_chosen(value))}
    if isinstance(value, EditSpec):
        return {value.part.name: {**_bare(_chosen(value.part)), **({} if value.view == "main" else {"in": value.view})}}
    if isinstance(value, ObjectiveSpec):
        extra = {"read": value.read or None, "head": value.head, "weight": None if value.weight == 1 else value.weight}
        return {value.part.name: {**_bare(_chosen(value.part)), **{k: _bare(v) for k, v in extra.items() if v is not None}}}
    if isinstance(value, RewriterSpec):
        return {**_bare(_chosen(value.part)), "from": value.read.get("", dict(value.read))}
    if isinstance(value, PassSpec):
        fields = {"view": value.view, "take": _bare(value.take), "objectives": [_bare(o) for o in value.objectives]}
        settings = {k: v for k, v in fields.items() if v and v != "main"}
        return {"network": value.network, **settings, **({} if value.grad else {"grad": False})}
    if isinstance(value, NetworkSpec):
        part = {} if value.part is None else _bare(value.part)
        fields = {"from": value.origin, "change": _bare(value.change) or None, "architecture": value.architecture}
        fields["start"] = None if value.start is None else _bare(value.start)
        fields["train"] = None if value.train == "all" else _bare(value.train)
        return {**part, **{key: value for key, value in fields.items() if value is not None}}
    if isinstance(value, EntrySpec):
        edits, runs = [_bare(edit) for edit in value.exercise], [_bare(pass_) for pass_ in value.passes]
        return {"order": value.order, "exercise": edits, "passes": runs}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        attributes = vars(value)
        return {key: _bare(inner) for key, inner in attributes.items() if inner is not None}
    if isinstance(value, Mapping):
        return {key: _bare(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bare(inner) for inner in value]
    return as_plain_data(value)


def _shown(value: Any) -> str:
    return value if value is ABSENT else flow(value)
