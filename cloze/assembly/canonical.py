"""The canonical form of a recipe: plain data that is itself a legal recipe; its identity; its YAML and JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cloze.assembly.document import read_yaml
from cloze.assembly.parts import builder_of
from cloze.assembly.recipe import (
    OWN,
    RECORD_ONLY,
    EntrySpec,
    NetworkSpec,
    ObjectiveSpec,
    PartSpec,
    PassSpec,
    Recipe,
    RewriterSpec,
    Stage,
    TextSpec,
)
from cloze.errors import RecipeError
from cloze.training.rates import listens

WIDTH = 120


def canonical(recipe: Recipe) -> dict[str, Any]:
    """The full form as plain data, keys in a fixed order; reading it gives the same recipe."""
    whole: dict[str, Any] = {"name": recipe.name, "paper": recipe.paper, "notes": recipe.notes}
    if recipe.stages:
        return whole | {"stages": {stage.name: _stage(stage, canonical(stage.recipe)) for stage in recipe.stages}}
    if recipe.texts:
        whole["texts"] = {name: _text(text) for name, text in recipe.texts.items()}
    whole["sources"] = {name: _part(source) for name, source in recipe.sources.items()}
    if recipe.tables:
        whole["tables"] = {name: _part(table) for name, table in recipe.tables.items()}
    whole["networks"] = {name: _network(network) for name, network in recipe.networks.items()}
    whole["tie"] = plain(recipe.tie)
    if recipe.reading.single != OWN:
        whole["reading"] = plain(dataclasses.asdict(recipe.reading))
    entries = {name: _entry(entry) for name, entry in recipe.entries.items()}
    if list(entries) == ["main"] and len(recipe.sources) == 1 and not recipe.tasks:
        alone = entries["main"]
        whole |= {key: alone[key] for key in ("order", "exercise", "passes")}
    else:
        whole |= {"mixture": entries, "mixing": recipe.mixing}
    if not recipe.bound and whole.get("order") == "open":
        del whole["order"]  # it is the checkpoint's
    whole["schedule"] = [_dropping_nulls(dataclasses.asdict(phase)) for phase in recipe.schedule]
    fields = dataclasses.fields(recipe.training)
    whole["training"] = {field.name: plain(getattr(recipe.training, field.name)) for field in fields}
    if recipe.task is not None:
        whole["task"] = plain(dataclasses.asdict(recipe.task))
    whole["export"] = recipe.export
    return whole


def identity(recipe: Recipe) -> dict[str, Any]:
    """What decides the result: the canonical form without name, paper, notes, budget and book-keeping.

    A warm-up in steps is a share of the published steps, so it enters as that share. When the held-out loss is taken counts only
    where the optimizer (`listens`) or the rate (`hear`) looks at it, and where it decides which checkpoint is kept (`task`).
    """
    if recipe.stages:
        return {"stages": {stage.name: _stage(stage, identity(stage.recipe)) for stage in recipe.stages}}
    whole = {key: value for key, value in canonical(recipe).items() if key not in ("name", "paper", "notes")}
    aside = RECORD_ONLY - {"evaluate_every"} if listening(recipe) or recipe.task is not None else RECORD_ONLY
    inner = [value.arguments for value in recipe.training.rate.arguments.values() if isinstance(value, PartSpec)]
    aside -= {"steps"} if any(arguments.get("warmup_steps") for arguments in inner) else set()
    training = {key: value for key, value in whole["training"].items() if key not in aside}
    name, arguments = next(iter(training["rate"].items()))
    if recipe.training.steps and arguments.get("warmup_steps"):
        arguments = {**arguments, "warmup_steps": None, "warmup": arguments["warmup_steps"] / recipe.training.steps}
        training["rate"] = {name: arguments}
    return {**whole, "training": training}


def listening(recipe: Recipe) -> bool:
    """Whether held-out losses change the training itself: an optimizer or a rate reads them."""
    optimizer, rate = (builder_of(part.kind, part.name) for part in (recipe.training.optimizer, recipe.training.rate))
    return bool(getattr(optimizer, "listens", False) or listens(rate))


def _stage(stage: Stage, form: dict[str, Any]) -> dict[str, Any]:
    return {"share": stage.share, **{key: value for key, value in form.items() if key not in ("name", "paper", "notes")}}


def _text(text: TextSpec) -> dict[str, Any]:
    made = {"normalise": plain(text.normalise), "tokenizer": _part(text.tokenizer)}
    if text.words is not None:
        made["words"] = _part(text.words)
    if text.annotate:
        made["annotate"] = {name: _part(layer) for name, layer in text.annotate.items()}
    return made


def _part(part: PartSpec, **reserved: Any) -> dict[str, Any]:
    return {part.name: {**plain(part.arguments), **reserved}}


def _network(network: NetworkSpec) -> dict[str, Any]:
    made: dict[str, Any] = {} if network.part is None else _part(network.part)
    if network.origin is not None:
        made["from"] = network.origin
    if network.change:
        made["change"] = [_part(change) for change in network.change]
    if network.architecture is not None:
        made["architecture"] = network.architecture
    return {**made, "train": plain(network.train)}


def _entry(entry: EntrySpec) -> dict[str, Any]:
    asked = {} if entry.task is None else {"task": dataclasses.asdict(entry.task)}
    return {
        "odds": plain(entry.odds),
        **asked,
        "source": entry.source,
        "order": plain(entry.order),
        "exercise": [_part(edit.part, **{"in": edit.view}) for edit in entry.exercise],
        "passes": [_pass(run) for run in entry.passes],
    }


def _pass(run: PassSpec) -> dict[str, Any]:
    take = {
        field: _part(origin.part, **{"from": _read(origin.read)})[origin.part.name]
        if isinstance(origin, RewriterSpec) else origin
        for field, origin in run.take.items()
    }
    objectives = [_objective(objective) for objective in run.objectives]
    return {
        "name": run.name,
        "network": run.network,
        "view": run.view,
        "take": take,
        "objectives": objectives,
        "grad": run.grad,
    }


def _objective(objective: ObjectiveSpec) -> dict[str, Any]:
    wiring = {"read": _read(objective.read), "head": objective.head, "weight": plain(objective.weight)}
    return _part(objective.part, **wiring)


def _read(bindings: Mapping[str, str]) -> str | dict[str, str] | None:
    return bindings[""] if set(bindings) == {""} else dict(bindings) or None


def plain(value: Any) -> Any:
    """A value of a recipe as plain data: mappings, lists, scalars."""
    if isinstance(value, PartSpec):
        return _part(value)
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise RecipeError(f"a default of type {type(value).__name__} cannot be written in a recipe; make it Given[…].")


def _dropping_nulls(phase: dict[str, Any]) -> dict[str, Any]:
    return {key: plain(value) for key, value in phase.items() if value is not None}


# ---- as text ---------------------------------------------------------------------------------------------------------


def to_json(data: Any) -> str:
    """Compact JSON for hashing: a whole number and the same float are equal; the order of keys counts.

    The order is that of the signatures everywhere but where it means something (ids of special tokens, networks as they
    are initialised, entries as they are dealt). A mapping with whole numbers as keys becomes a list of pairs.
    """
    return json.dumps(_pairs(data), separators=(",", ":"), ensure_ascii=False)


def _pairs(data: Any) -> Any:
    if isinstance(data, dict):
        if any(not isinstance(key, str) for key in data):
            return {"pairs": [[key, _pairs(value)] for key, value in data.items()]}
        return {key: _pairs(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_pairs(value) for value in data]
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data


def to_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML that reads back equal: one line where it fits, blocks where it does not."""
    return "\n".join(line for key, value in data.items() for line in _block(key, value, "")) + "\n"


def _block(key: Any, value: Any, indent: str) -> list[str]:
    head = f"{indent}{_scalar(key)}:"
    if isinstance(value, str) and _is_block(value):
        lines = [f"{indent}  {line}".rstrip() for line in value.splitlines()]
        return [f"{head} |" if value.endswith("\n") else f"{head} |-", *lines]
    line = f"{head} {flow(value)}"
    if len(line) <= WIDTH and not _deep(value, bool(indent)):
        return [line]
    if isinstance(value, dict) and value:
        return [head, *(line for k, v in value.items() for line in _block(k, v, indent + "  "))]
    if isinstance(value, list) and value:
        return [head, *(line for item in value for line in _item(item, indent + "  "))]
    return [line]


def _is_block(text: str) -> bool:
    """Whether a text of several lines can stand as a literal block and read back the same."""
    lines = text.removesuffix("\n").split("\n")
    sound = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and sound and bool(lines[0]) and not lines[0].startswith(" ") and bool(lines[-1])


def _item(item: Any, indent: str) -> list[str]:
    if isinstance(item, dict) and item and len(f"{indent}- {flow(item)}") > WIDTH:
        lines = [line for k, v in item.items() for line in _block(k, v, indent + "  ")]
        return [f"{indent}- {lines[0].lstrip()}", *lines[1:]]
    if isinstance(item, dict) and len(item) == 1:
        key, value = next(iter(item.items()))
        return [f"{indent}- {_scalar(key)}: {flow(value)}"]
    return [f"{indent}- {flow(item)}"]


def _deep(value: Any, nested: bool) -> bool:
    """Whether a value reads better as a block although it would fit: a section of sections, or a list of parts."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not nested and any(isinstance(v, dict) and v for v in inner)


def flow(value: Any) -> str:
    """Plain data as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(v) for v in value) + "]"
    return _scalar(value)


_bare = re.compile(r"[A-Za-z_][\w./-]*( [\w./-]+)*")


@lru_cache(maxsize=8192)
def _stays_itself(text: str) -> bool:
    """Whether a text reads back as itself without quotes; the same few hundred texts are asked for again and again."""
    return bool(_bare.fullmatch(text)) and read_yaml(f"x: {text}", "").plain() == {"x": text}


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        text = json.dumps(value)
        return {"Infinity": ".inf", "-Infinity": "-.inf", "NaN": ".nan"}.get(text, text)
    if _stays_itself(value):
        return str(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
