"""What the check of a recipe finds, and how it makes a part: shared by check.py and check_model.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloze.recipe import parts
from cloze.recipe.builders import build
from cloze.recipe.faults import Faults
from cloze.recipe.recipe import PartSpec, Recipe, as_plain_data


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


def made_of(part: PartSpec, available: Mapping[str, Any], faults: Faults) -> Any:
    """A part as its builder makes it, or None and a fault."""
    try:
        with faults.catching(part.where, part.path):
            arguments = {
                name: made_of(value, available, faults) if isinstance(value, PartSpec) else value
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
