"""Everything that assembly injects into builders: the closed table behind `Given[T]`. It is a list, not a container."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cloze.errors import RecipeError
from cloze.registry import GivenMark, mark_of, parameters

#: What a builder may ask for, and what it gets.
MEANINGS: Mapping[str, str] = {
    "vocab_size": "how many ids the tokenizer has",
    "tokenizer": "TokenFacts: ids of roles, the ordinary ids, a reader for literal text",
    "clock": "the run's clock: seed, step, first row, share of the budget spent",
    "width": "width of the state that an objective reads",
    "limit": "how many tokens may come out of an edit; known once the exercise has a length",
    "table": "the token table of the network that an objective reads, for tying",
}


def build(builder: Callable[..., Any], arguments: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    """Call a builder with a recipe's arguments and whatever of `available` its signature marks as given."""
    wanted = {name for name, p in parameters(builder).items() if isinstance(mark_of(p), GivenMark)}
    unknown = wanted - MEANINGS.keys()
    if unknown:
        raise RecipeError(
            f"{builder.__module__}.{builder.__qualname__} asks to be given {', '.join(sorted(unknown))}; "
            f"assembly gives: {', '.join(MEANINGS)}."
        )
    return builder(**arguments, **{name: available[name] for name in wanted if name in available})
