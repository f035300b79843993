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
    r"|mask\.(rate(\.\S+)?|most)|corrupt\.(mask|random|keep)|pair\.rate"
    r"|subsample\.threshold|windows\.radius|(?!functional)\w+\.(negatives|power|smoothing|z_loss|weight|limit)"
    r"|negatives\.either|margin\.by"
    r"|training\.(batch|group|steps|epochs|tokens|clip)"
    r"|training\.(rate|optimizer|batch_warmup|average)\..+"
)
#: The source of figures that the authors do not state, or that are not known: the choice is ours.
OURS = "ours"
#: What a recipe's text says if the authors left something out. Who says so must have searched, and lists where.
ABSENCE = re.compile(
    r"\bour(?: own)? choices?\b|\b(?:is|are) ours\b|\bunpublished\b|\b(?:never|not) (?:published|released|known|stated)\b"
    r"|\b(?:published|released) no (?:[\w-]+ )?code\b|\bno (?:[\w-]+ )?code (?:was|were|has)\b|\bno (?:pre-)?training code\b"
    r"|\bdo(?:es)? not (?:say|state|publish)\b|\bdid not (?:publish|release|state)\b", re.IGNORECASE
)
#: A line of `searched`: the date; where it was looked, a repository at a commit, or that there is none; what was not found.
SEARCHED = re.compile(r"\d{4}-\d\d-\d\d (?=[^:]*(?:\w[\w.-]*/[\w.-]+@[\w./-]+|no repository))[^:]{20,}: \S.{3,}")
_NO_FIGURES = frozenset({"sources", "searched"})
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
    return {name: value for name, value in made.items() if not _decays_nothing(name, made)}


def _decays_nothing(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a figure names the parameters of a weight decay of 0."""
    optimizer, _, last = name.rpartition(".")
    return last == "decay" and values.get(f"{optimizer}.weight_decay") == 0


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
def published() -> dict[str, dict[str, Any]]:
    """The table of docs/published.yaml: recipe → source → figure → value; its first lines say what it holds."""
    return {name: groups for name, groups in _table().items() if "sources" in groups}


def searched() -> dict[str, list[str]]:
    """Recipe → where it was searched, in vain, for what the recipe calls ours or not published."""
    return {name: groups.get("searched", []) for name, groups in _table().items()}


def absences(text: str) -> list[str]:
    """What a text says to be missing from what the authors published, or to be a choice of this project."""
    words = " ".join(line.strip().lstrip("#").strip() for line in text.splitlines())
    return [match.group() for match in ABSENCE.finditer(" ".join(words.split()))]


def _table() -> dict[str, dict[str, Any]]:
    """Every entry of docs/published.yaml, with what it takes from the recipe that it is `as`."""
    table: dict[str, Any] = read_plain(Path(__file__).resolve().parents[1] / "published.yaml")
    return {name: _with_base(name, table) for name in table}


def _with_base(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's groups; what it writes itself replaces a figure of the recipe that it is `as`, whatever source that has."""
    own = dict(table[name])
    base = own.pop("as", None)
    if base is None:
        return own
    whole = _with_base(base, table)
    written = {*stated(own), *own.pop("without", ())}
    for group, values in whole.items():
        if group == "searched":
            own[group] = list(dict.fromkeys([*values, *own.get(group, ())]))
        else:
            left = values if group == "sources" else {figure: v for figure, v in values.items() if figure not in written}
            own[group] = {**left, **own.get(group, {})}
    return {group: own[group] for group in dict.fromkeys([*whole, *own])}


def stated(groups: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Figure → (value, source) of one recipe's groups."""
    return {
        figure: (value, source)
        for source, values in groups.items()
        if source not in _NO_FIGURES and isinstance(values, Mapping)
        for figure, value in values.items()
    }
