"""What the check of a recipe finds, and how it builds a part: shared by check.py and check_model.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloze.recipe import parts
from cloze.recipe.builders import build
from cloze.recipe.faults import Faults
from cloze.recipe.recipe import PartSpec, Recipe, as_plain_data

#: In place of the fields of an entry or the states of a pass that are not known, because of a fault or an unbound checkpoint.
#: What is read from these is not checked.
UNKNOWN = "?"


@dataclass(frozen=True)
class EditLine:
    """What one edit of an entry takes and gives, as full field names."""

    path: str
    takes: frozenset[str]
    gives: frozenset[str]


@dataclass
class Checked:
    """The results of the check: fields by entry, parameters by network and by head, and their sum, in which a table that networks
    share counts once."""

    recipe: Recipe
    edits: dict[str, list[EditLine]] = field(default_factory=dict)
    batch: dict[str, frozenset[str]] = field(default_factory=dict)
    networks: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    parameters: int = 0


def build_or_report(part: PartSpec, available: Mapping[str, Any], faults: Faults) -> Any:
    """Build a part; None, and a fault, if its builder refuses it."""
    try:
        with faults.catching(part.where, part.path):
            arguments = {
                name: build_or_report(value, available, faults) if isinstance(value, PartSpec) else value
                for name, value in part.arguments.items() if not is_schedule(value)
            }
            arguments |= {name: as_plain_data(value) for name, value in part.arguments.items() if is_schedule(value)}
            return build(parts.builder_of(part.kind, part.name), arguments, available)
    except (ValueError, TypeError) as error:
        faults.add(part.where, part.path, f"{error}.")
    return None


def is_schedule(value: Any) -> bool:
    """Whether an argument follows a schedule."""
    return isinstance(value, PartSpec) and value.kind == "schedule"
