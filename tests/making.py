"""Networks from arguments by their paths, `{"norm": "pre", "norm.epsilon": 1e-5}`, which tests can merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop.arguments import derived, flat, nested
from cloze.recipe.builders import build
from cloze.registry import lookup

_GIVEN = ("vocab_size", "clock", "tables", "counts", "spellings")


def network_of(part: str, **arguments: Any) -> Any:
    """The network `part` with these arguments, by their paths, and what a recipe would give it."""
    return build(lookup("network", part), data(part, **arguments), {k: v for k, v in arguments.items() if k in _GIVEN})


def data(part: str, **arguments: Any) -> Mapping[str, Any]:
    """Arguments by their paths as a recipe has them; those of parts that the network does not have are left out."""
    given = {name: value for name, value in arguments.items() if name not in _GIVEN}
    if "dropout" in given and any(name.startswith("dropout.") for name in given):
        given["dropout.hidden"] = given.pop("dropout")
    return nested(given, part)


def completed(arguments: Mapping[str, Any], part: str = "transformer") -> dict[str, Any]:
    """Arguments by their paths, with those that were left out."""
    return derived(flat(data(part, **arguments), part))
