"""The figures of a recipe: every number that decides how a system is trained, with its source.

`docs/published.yaml` lists them by recipe and by source; the tests hold every recipe to it, and the site shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cloze.document import read_plain
from cloze.recipe.recipe import Recipe

#: What counts as a figure, by the end of a value's path in the canonical recipe.
FIGURES = re.compile(
    r"tokenizer\.\w+\.size"
    r"|(\w+\.)+(\w+_)?dropout(\.(hidden|attention|inner|output|weight|input|word))?"
    r"|\w+\.length|records\.(clips|most_items)|set\.\S+|schedule\.\d+\.(share|steps|epochs)"
    r"|mask\.rate(\.\S+)?|corrupt\.(mask|random|keep)|pair\.rate"
    r"|subsample\.threshold|windows\.radius|(?!functional)\w+\.(negatives|power|smoothing|z_loss|weight|limit)"
    r"|negatives\.either|margin\.by"
    r"|training\.(batch|group|steps|epochs|tokens|clip)"
    r"|training\.(rate|optimizer|batch_warmup|average)\..+"
)
#: The source of figures that the authors do not state, or that are not known: the choice is ours.
OURS = "ours"
_LEFT_OUT = frozenset({"main", "texts", "sources", "networks", "passes", "exercise", "mixture", "objectives", "stages"})
_NEUTRAL = {"smoothing": 0.0, "z_loss": 0.0, "weight": 1.0, "warmup": 0.0, "warmup_steps": 0, "floor": 0.0, "power": 0.0}


def figures(recipe: Recipe) -> dict[str, Any]:
    """The figures of a recipe by a short form of their path, in the recipe's order.

    A path leaves out `main`, the names of the recipe's keys, and the names of entries and stages that agree on the value:
    `transformer.dropout`, `mask.rate`, `training.rate.linear.peak`. Values that switch something off (no warm-up, no
    smoothing, a weight of 1) and absent ones (no clipping) are left out.
    """
    whole = recipe.canonical()
    groups = {*whole.get("mixture", ()), *whole.get("stages", ())}
    found: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
    for path, value in _leaves({key: whole[key] for key in whole if key not in _WORDS}, ()):
        names = [name for name in path if name not in _LEFT_OUT]
        owner = ".".join(name for name in names if name in groups)
        short = tuple(name for name in names if name not in groups)
        if any(FIGURES.fullmatch(".".join(short[start:])) for start in range(len(short))) and not _silent(short, value):
            found.setdefault(short, []).append((owner, value))
    made: dict[str, Any] = {}
    for short, values in found.items():
        same = all(value == values[0][1] for _, value in values)
        for number, (owner, value) in enumerate(values[:1] if same else values):
            name = ".".join(short) if same or not owner else f"{owner}.{'.'.join(short)}"
            made[name if name not in made else f"{name}.{number + 1}"] = value
    return made


_WORDS = ("name", "paper", "notes", "reading", "export", "tie", "order")


def _silent(short: tuple[str, ...], value: Any) -> bool:
    """Whether a value switches something off."""
    return value is None or _NEUTRAL.get(short[-1]) == value


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)) if path[-1] == "schedule" else path)
    else:
        yield path, value


@cache
def published() -> dict[str, dict[str, dict[str, Any]]]:
    """The table of docs/published.yaml: recipe → source → figure → value.

    The group `sources` says in words what each source of the recipe is; the group `ours` holds what the authors do not state. A
    recipe that trains the system of another recipe, at another size or on another text, may have `as: NAME` and list the
    differences.
    """
    path = Path(__file__).resolve().parents[1] / "published.yaml"
    table: dict[str, Any] = read_plain(path)
    return {name: _with_base(name, table) for name in table}


def _with_base(name: str, table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A recipe's groups; what it writes itself replaces a figure of the recipe that it is `as`, whatever source that has."""
    own = dict(table[name])
    base = own.pop("as", None)
    if base is None:
        return own
    written = {figure for group, values in own.items() if group != "sources" for figure in values}
    dropped = frozenset(own.pop("without", ()))
    groups = {
        group: {figure: value for figure, value in values.items() if group == "sources" or figure not in written | dropped}
        for group, values in _with_base(base, table).items()
    }
    for group, values in own.items():
        groups[group] = {**groups.get(group, {}), **values}
    return groups


def stated(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Any, str]]:
    """Figure → (value, source) of one recipe's groups."""
    return {
        figure: (value, source) for source, values in groups.items() if source != "sources" for figure, value in values.items()
    }
