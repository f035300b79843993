"""The parts that a recipe consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from cloze.recipe.recipe import PartSpec


def parts_in(value: Any) -> Iterator[PartSpec]:
    """Every part inside a recipe, nested ones too."""
    if isinstance(value, PartSpec):
        yield value
        yield from parts_in(value.arguments)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from parts_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from parts_in(inner)
    elif dataclasses.is_dataclass(value):
        yield from parts_in(vars(value))
