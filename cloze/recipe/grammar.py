"""Reads an expanded tree into a `Recipe`: checks every value and fills in every default.

Arguments of parts are read by `schema.read_part`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from cloze.bounds import Count, NonNegative, Positive, Share
from cloze.document import Node
from cloze.reading import OrderName, Reading
from cloze.recipe.expand import NEXT_TO_PART
from cloze.recipe.faults import Faults
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import (
    OWN,
    AverageSpec,
    EditSpec,
    EntrySpec,
    EntryTaskSpec,
    Mixing,
    NetworkSpec,
    ObjectiveSpec,
    PartSpec,
    PassSpec,
    Phase,
    Recipe,
    RewriterSpec,
    TaskSpec,
    TextSpec,
    TrainingSpec,
)
from cloze.recipe.schema import Argument, Arguments, arguments_of, read_arguments, read_part

_head: Arguments = {
    "name": Argument(str),
    "paper": Argument(str | None, None),
    "notes": Argument(str | None, None),
    "tie": Argument(list[list[str]], ()),
    "mixing": Argument(Mixing, "step"),
    "export": Argument(str | None, None),
}
_entry: Arguments = {
    "source": Argument(str | None, None),
    "odds": Argument(NonNegative | Literal["by_size"] | dict[Literal["by_size"], Positive], 1.0),
}
_line_ends: Arguments = {"line_ends": Argument(bool, False)}
_named_order: Arguments = {"order": Argument(OrderName, "open")}
_pass: Arguments = {
    "name": Argument(str | None, None),
    "network": Argument(str),
    "view": Argument(str, "main"),
    "grad": Argument(bool, True),
}
_network: Arguments = {
    "from": Argument(str | None, None),
    "train": Argument(str | list[str | int], "all"),
    "architecture": Argument(str | None, None),
}
_phase: Arguments = {
    "steps": Argument(Count | None, None),
    "share": Argument(Share | None, None),
    "epochs": Argument(Positive | None, None),
}
_examples = {
    "texts": "text: {tokenizer: {wordpiece: {size: 30522}}}",
    "sources": "corpus: {passages: {length: 128}}",
    "networks": "network: {transformer: {layers: 4, width: 256, heads: 4}}",
    "exercise": 'exercise: [frame: "[CLS] {A} [SEP]", mask: {}, corrupt: {}, predict: masked]',
    "training": "training: {optimizer: {adamw: {}}, rate: {linear: {peak: 1e-4}}, batch: 256}",
    "reading": 'reading: {single: "[CLS] {A} [SEP]", summary: first}',
    "passes": "objectives: [token_prediction: {tie: true}]",
}


def read(root: Node, faults: Faults) -> Recipe | None:
    """The recipe, or None and faults. `structure.py` then checks the names that refer to each other."""
    head = read_arguments("A recipe", _head, _only(root, _head), "", faults)
    begins = _begins_with_checkpoint(root)
    sources = read_sources(root, faults)
    written = _optional(root, "texts") if begins or _without_text(sources) else _section(root, "texts", faults)
    texts = {name: _text(node, f"texts.{name}", faults) for name, node in written}
    tables = {name: _part(node, f"tables.{name}", faults) for name, node in _optional(root, "tables")}
    networks = {
        name: _network_spec(name, node, f"networks.{name}", faults) for name, node in _section(root, "networks", faults)
    }
    networks = {name: _averaged(spec, networks) for name, spec in networks.items()}
    of_checkpoint = begins and "reading" not in root.value
    reading = Reading(OWN, OWN) if of_checkpoint else _read_section(Reading, root, "reading", faults)
    training = _read_section(TrainingSpec, root, "training", faults)
    context = (list(sources), list(networks))
    entries = {name: _read_entry(name, node, root, prefix, context, faults) for name, node, prefix in _entries(root)}
    several = any(entry is not None and entry.task is not None for entry in entries.values())
    task = _read_section(TaskSpec, root, "task", faults) if "task" in root.value else TaskSpec() if several else None
    schedule = _schedule(root, faults)
    everything = [head, reading, training]
    for section in (texts, sources, tables, networks, entries):
        everything += section.values()
    if len(faults) or head is None or ("task" in root.value and task is None) or any(spec is None for spec in everything):
        return None
    export = head["export"]
    if export is None:
        export = next(iter(networks))
        if len(networks) > 1:
            faults.add(root.where, "export", f"there are {len(networks)} networks: which is the result?",
                       f"Write `export:` with one of {', '.join(networks)}.")
    completed = {name: _with_widths(entry, networks) for name, entry in entries.items()}  # type: ignore[arg-type]
    return Recipe(
        name=head["name"], paper=head["paper"], notes=head["notes"], texts=texts, sources=sources, tables=tables,  # type: ignore[arg-type]
        networks=networks,  # type: ignore[arg-type]
        tie=tuple(tuple(group) for group in head["tie"]), reading=reading, entries=completed, mixing=head["mixing"],
        schedule=schedule, training=training, export=export, task=task,
    )


def read_sources(root: Node, faults: Faults) -> dict[str, PartSpec | None]:
    """The sources of an expanded recipe by name; None where there are faults."""
    return {name: _part(node, f"sources.{name}", faults) for name, node in _section(root, "sources", faults)}


def _only(node: Node, keys: Arguments) -> Node:
    """A mapping restricted to these keys."""
    return Node({key: value for key, value in node.items() if key in keys}, node.where, node.keys)


def _missing(root: Node, key: str, faults: Faults) -> None:
    name = {"texts": "text", "sources": "corpus", "networks": "network", "passes": "objectives"}.get(key, key)
    faults.add(root.where, name, "is missing.", f"For example `{_examples[key]}`.")


def _section(root: Node, key: str, faults: Faults) -> list[tuple[str, Node]]:
    node = root.value.get(key)
    if node is None or node.value is None:
        _missing(root, key, faults)
        return []
    return [(str(name), inner) for name, inner in node.items()]


def _begins_with_checkpoint(root: Node) -> bool:
    """Whether a network comes from a checkpoint or an earlier stage, which then supplies `text` and `reading`."""
    return any(node.is_mapping and "from" in node.value for _, node in _optional(root, "networks"))


def _without_text(sources: Mapping[str, PartSpec | None]) -> bool:
    """Whether no source reads text: each has a vocabulary of its own."""
    specs = [spec for spec in sources.values() if spec is not None]
    return bool(specs) and all(class_of("source", spec.name).own_vocabulary for spec in specs)


def _optional(root: Node, key: str) -> list[tuple[str, Node]]:
    node = root.value.get(key)
    return [(str(name), inner) for name, inner in node.items()] if node is not None and node.is_mapping else []


def _part(node: Node, path: str, faults: Faults) -> PartSpec | None:
    parsed = read_part(node, path, faults)
    return None if parsed is None else parsed[0]


def _text(node: Node, path: str, faults: Faults) -> TextSpec | None:
    from cloze.text.normalise import Normalise

    if not node.is_mapping or "tokenizer" not in node.value:
        return None
    switches = read_arguments("normalise", arguments_of(Normalise), node.value["normalise"], f"{path}.normalise", faults)
    tokenizer = _part(node.value["tokenizer"], f"{path}.tokenizer", faults)
    words = node.value.get("words")
    segmenter = None if words is None or words.value is None else _part(words, f"{path}.words", faults)
    layers = {name: _part(inner, f"{path}.annotate.{name}", faults) for name, inner in _optional(node, "annotate")}
    ends = read_arguments("text", _line_ends, _only(node, _line_ends), path, faults)
    if switches is None or ends is None or tokenizer is None or any(layer is None for layer in layers.values()):
        return None
    return TextSpec(switches, tokenizer, segmenter, layers, **ends)  # type: ignore[arg-type]


def _network_spec(name: str, node: Node, path: str, faults: Faults) -> NetworkSpec | None:
    _require_module_name(name, node, path, faults)
    if not node.is_mapping:
        return None
    if "average" in node.value:
        return _average(name, node, path, faults)
    way = node.value.get("train")
    unfreezing = _part(way, f"{path}.train", faults) if way is not None and way.part is not None else None
    plain = {key: argument for key, argument in _network.items() if unfreezing is None or key != "train"}
    reserved = read_arguments(name, plain, _only(node, plain), path, faults)
    part = _part(Node({k: v for k, v in node.items() if k not in NEXT_TO_PART}, node.where, node.keys, node.part), path, faults)
    changes = node.value["change"].value if "change" in node.value and node.value["change"].is_list else []
    change = [_part(item, f"{path}.change[{index}]", faults) for index, item in enumerate(changes)]
    start = _start(node, path, faults)
    if reserved is None or (part is None and (node.part is not None or reserved["from"] is None)):
        return None
    written: Any = reserved.get("train", unfreezing)
    train = tuple(written) if isinstance(written, list) else written
    changed = tuple(c for c in change if c is not None)
    return NetworkSpec(name, part, reserved["from"], changed, train, reserved["architecture"], start=start)


def _start(node: Node, path: str, faults: Faults) -> PartSpec | None:
    """What the token table of a network starts from, which is for a network that starts at random."""
    start = node.value.get("start")
    if start is None or start.value is None:
        return None
    if "from" in node.value:
        faults.add(node.place("start"), f"{path}.start", "the rows of its table come from a checkpoint or an earlier stage.",
                   "Leave out `start` or `from`.")
    return _part(start, f"{path}.start", faults)


def _average(name: str, node: Node, path: str, faults: Faults) -> NetworkSpec | None:
    """A network that averages another: nothing else is written of it."""
    for key in sorted(set(map(str, node.value)) - {"average"}):
        faults.add(node.place(key), f"{path}.{key}", "an average has the shape of the network that it averages.",
                   f"Leave {key} out.")
    arguments = read_arguments("average", arguments_of(AverageSpec), node.value["average"], f"{path}.average", faults)
    if arguments is None:
        return None
    if (arguments["decay"] is None) == (arguments["last"] is None):
        faults.add(node.place("average"), f"{path}.average", "needs either a decay or the number of the last updates.",
                   "For example `{of: student, decay: 0.999}` or `{of: student, last: 5}`.")
        return None
    return NetworkSpec(name, None, train="none", average=AverageSpec(**arguments))


def _averaged(spec: NetworkSpec | None, networks: Mapping[str, NetworkSpec | None]) -> NetworkSpec | None:
    """The network with the part and the changes of the one that it averages."""
    of = None if spec is None or spec.average is None else networks.get(spec.average.of)
    if spec is None or of is None or of.average is not None:  # structure.py reports an unknown name
        return spec
    return replace(spec, part=of.part, change=of.change, architecture=of.architecture)


def _read_section(cls: Any, root: Node, key: str, faults: Faults) -> Any:
    node = root.value.get(key)
    if node is None:
        _missing(root, key, faults)
        return None
    values = read_arguments(key, arguments_of(cls), node, key, faults)
    return None if values is None else cls(**values)


# ---- entries and passes ----------------------------------------------------------------------------------------------


def _entries(root: Node) -> list[tuple[str, Node, str]]:
    """(name, node, path prefix) of every entry; without a mixture the recipe itself is the entry `main`."""
    mixture = root.value.get("mixture")
    if mixture is None or not mixture.is_mapping:
        return [("main", root, "")]
    return [(str(name), node, f"mixture.{name}.") for name, node in mixture.items() if node.is_mapping]


def _read_entry(
    name: str, node: Node, root: Node, prefix: str, context: tuple[list[str], list[str]], faults: Faults
) -> EntrySpec | None:
    sources, networks = context
    values = read_arguments(name, _entry, _inherited(node, root, ("source", "odds")), prefix.rstrip("."), faults)
    order = _order(*_whose(node, root, prefix, "order"), faults)
    exercise = _exercise(*_whose(node, root, prefix, "exercise"), faults)
    earlier = len(faults)
    passes = _passes(node, root, prefix, networks, faults)
    sound = len(faults) == earlier
    task = _entry_task(node, f"{prefix}task", faults) if prefix and "task" in node.value else None
    if values is None or exercise is None or passes is None or order is None:
        return None
    source = values["source"]
    if source is None:
        if len(sources) > 1:
            faults.add(node.where, f"{prefix}source", f"there are {len(sources)} sources: which is read here?",
                       f"Write `source:` with one of {', '.join(sources)}.")
        source = sources[0] if sources else ""
    objectives = [objective for run in passes for objective in run.objectives]
    if sound and objectives and all(objective.weight == 0 for objective in objectives):
        faults.add(node.where, f"{prefix}objectives", "every objective has weight 0: these rows teach nothing.",
                   "Give one a weight above 0, or leave the entry out.")
    return EntrySpec(name, source, order, exercise, passes, values["odds"], task)


def _entry_task(node: Node, path: str, faults: Faults) -> EntryTaskSpec | None:
    values = read_arguments("task", arguments_of(EntryTaskSpec), node.value["task"], path, faults)
    return None if values is None else EntryTaskSpec(**values)


def _order(owner: Node, prefix: str, key: str, faults: Faults) -> str | PartSpec | None:
    """A name, or a part that makes the order row by row (`order: {permutation: {}}`); open if nothing is written."""
    node = owner.value.get(key)
    if node is None or node.value is None:
        return "open"
    if node.part is not None:
        return _part(node, f"{prefix}order", faults)
    values = read_arguments("order", _named_order, Node({key: node}, node.where, {key: node.where}), prefix.rstrip("."), faults)
    return None if values is None else str(values["order"])


def _inherited(node: Node, root: Node, keys: tuple[str, ...]) -> Node:
    """An entry's own keys, and from the top level those it does not write; `odds` is never inherited."""
    pairs = {key: root.value[key] for key in keys if key in root.value and key != "odds"}
    pairs |= {key: node.value[key] for key in keys if key in node.value}
    return Node(pairs, node.where, {**root.keys, **node.keys})


def _whose(node: Node, root: Node, prefix: str, key: str) -> tuple[Node, str, str]:
    return (node, prefix, key) if key in node.value else (root, "", key)


def _exercise(owner: Node, prefix: str, key: str, faults: Faults) -> tuple[EditSpec, ...] | None:
    node = owner.value.get(key)
    if node is None:
        _missing(owner, key, faults)
        return None
    edits = []
    for index, item in enumerate(node.value if node.is_list else ()):
        parsed = read_part(item, f"{prefix}exercise[{index}]", faults)
        if parsed is not None:
            edits.append(EditSpec(parsed[0], parsed[1]["in"]))
    return tuple(edits)


def _passes(
    node: Node, root: Node, prefix: str, networks: list[str], faults: Faults
) -> tuple[PassSpec, ...] | None:
    has_objectives = any(key in node.value for key in ("passes", "objectives"))
    owner, at = (node, prefix) if has_objectives else (root, "")
    if "passes" in owner.value:
        runs = owner.value["passes"]
        if not runs.is_list or not runs.value:
            faults.add(runs.where, f"{at}passes", "is empty.", f"For example `{_examples['passes']}`.")
            return None
        named: list[ObjectiveSpec] = []
        passes = [_pass_spec(run, f"{at}passes[{i}]", named, faults) for i, run in enumerate(runs.value)]
        return None if any(run is None for run in passes) else tuple(run for run in passes if run is not None)
    if "objectives" not in owner.value:
        _missing(owner, "passes", faults)
        return None
    if len(networks) != 1:
        faults.add(owner.place("objectives"), f"{at}objectives", f"there are {len(networks)} networks.",
                   "Write `passes:`, one for each network that runs.")
        return None
    objectives = _objectives(owner.value["objectives"], networks[0], f"{at}objectives", [], faults)
    return (PassSpec(networks[0], networks[0], objectives=objectives),)


def _pass_spec(node: Node, path: str, named: list[ObjectiveSpec], faults: Faults) -> PassSpec | None:
    if not node.is_mapping:
        return None
    values = read_arguments("a pass", _pass, _only(node, _pass), path, faults)
    if values is None:
        return None
    name = values["name"] or values["network"]
    objectives: tuple[ObjectiveSpec, ...] = ()
    if "objectives" in node.value:
        objectives = _objectives(node.value["objectives"], name, f"{path}.objectives", named, faults)
    take: dict[str, str | RewriterSpec] = {}
    for field, value in node.value["take"].items() if "take" in node.value else ():
        if value.part == "rewriter":
            parsed = read_part(value, f"{path}.take", faults)
            if parsed is not None:
                take[str(field)] = RewriterSpec(parsed[0], _bindings(parsed[1]["from"]))
        elif isinstance(value.value, str):
            take[str(field)] = value.value
        elif not value.is_mapping:
            faults.add(value.where, f"{path}.take.{field}",
                       f"expected `pass.state` or `view.field`, got {value.plain()!r}.")
    return PassSpec(name, values["network"], values["view"], take, objectives, values["grad"])


def _objectives(
    node: Node, run: str, path: str, named: list[ObjectiveSpec], faults: Faults
) -> tuple[ObjectiveSpec, ...]:
    """The objectives of one pass; each gets a name that no objective before it in the entry has."""
    specs = []
    for index, item in enumerate(node.value if node.is_list else ()):
        parsed = read_part(item, f"{path}[{index}]", faults)
        if parsed is None:
            continue
        part, reserved = parsed
        _require_module_name(reserved["head"] or part.name, item, f"{path}[{index}].{part.name}.head", faults)
        name = _unused(part, reserved["head"], run, [objective.name for objective in named])
        specs.append(ObjectiveSpec(part, name, _bindings(reserved["read"]), reserved["head"], reserved["weight"]))
        named.append(specs[-1])
    return tuple(specs)


def _require_module_name(name: str, node: Node, path: str, faults: Faults) -> None:
    """Add a fault if a network or a head has the name of an attribute of `ModuleDict`, which holds them in a `Step`."""
    from torch.nn import ModuleDict

    if name in dir(ModuleDict()):
        faults.add(node.where, path, f"{name!r} is reserved: torch.nn.ModuleDict has an attribute of this name.",
                   f"Choose another name, such as my_{name}.")


def _unused(part: PartSpec, head: str | None, run: str, taken: list[str]) -> str:
    plain = head or part.name
    chosen = part.arguments.get("set")
    candidates = [plain, f"{plain}/{chosen}", f"{run}.{plain}", f"{run}.{plain}/{chosen}"]
    return next((name for name in candidates if name not in taken and not name.endswith("/None")), f"{plain}#{len(taken)}")


def _with_widths(entry: EntrySpec, networks: Mapping[str, NetworkSpec]) -> EntrySpec:
    """The entry with numbers for arguments of objectives that name a reading and stand for the width of the network that it
    comes from: `project: teacher`. The width of a checkpoint is known once it is bound; until then the name stays."""
    parts = {run.name: networks[run.network].part for run in entry.passes if run.network in networks}
    widths = {name: part.arguments.get("width") for name, part in parts.items() if part is not None}
    passes = []
    for run in entry.passes:
        objectives = []
        for objective in run.objectives:
            part = objective.part
            for name in class_of(part.kind, part.name).width_arguments:
                state = objective.read.get(str(part.arguments.get(name)), "")
                width = widths.get(state.rpartition(".")[0])
                if isinstance(width, int):
                    part = replace(part, arguments={**part.arguments, name: width})
            objectives.append(replace(objective, part=part))
        passes.append(replace(run, objectives=tuple(objectives)))
    return replace(entry, passes=tuple(passes))


def _bindings(read: str | Mapping[str, str] | None) -> dict[str, str]:
    return {} if read is None else {"": read} if isinstance(read, str) else dict(read)


# ---- schedule --------------------------------------------------------------------------------------------------------


def _schedule(root: Node, faults: Faults) -> tuple[Phase, ...]:
    node = root.value.get("schedule")
    if node is None or node.value is None:
        return ()
    if not node.is_list:
        faults.add(node.where, "schedule", "expected a list of phases.",
                   "For example `- {share: 0.9, set: {length: 128}}`.")
        return ()
    phases = []
    for index, item in enumerate(node.value):
        path = f"schedule[{index}]"
        accepted = {**_phase, "set": Argument(dict[str, Any], {})}
        values = read_arguments("a phase", accepted, item, path, faults)
        if values is None:
            continue
        written = [key for key in _phase if values[key] is not None]
        if len(written) != 1:
            faults.add(item.where, path, f"a phase has one of steps, share, epochs; this one has {len(written)}.")
            continue
        phases.append(Phase(**values))
    units = {key for phase in phases for key in _phase if vars(phase)[key] is not None}
    if len(units) > 1:
        faults.add(node.where, "schedule", f"the phases mix {' and '.join(sorted(units))}; all of them use one unit.")
    shares = [phase.share for phase in phases if phase.share is not None]
    if shares and units == {"share"} and abs(sum(shares) - 1) > 1e-6:
        faults.add(node.where, "schedule", f"the shares add up to {sum(shares):g}, expected 1.")
    return tuple(phases)
