"""Reads an expanded tree into a `Recipe`: checks every value and fills in every default.

Arguments of parts are read by `schema.read_part`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.document import Node
from cloze.reading import FROM_CHECKPOINT, Reading
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import ENTRY, NETWORK, PASS, PHASE, TEXT, VALUES
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import (
    AverageSpec,
    EditSpec,
    EntrySpec,
    EntryTaskSpec,
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
from cloze.recipe.schema import WRONG, read_argument, read_arguments, read_part
from cloze.registry import Arguments, arguments_of

_units = ("steps", "share", "epochs")  # of the length of a phase
_examples = {
    "texts": "text: {tokenizer: {wordpiece: {size: 30522}}}",
    "sources": "corpus: {passages: {length: 128}}",
    "networks": "network: {transformer: {layers: 4, width: 256, heads: 4}}",
    "exercise": 'exercise: [frame: "[CLS] {A} [SEP]", mask: {}, corrupt: {}, predict: masked]',
    "training": "training: {optimizer: {adamw: {}}, rate: {linear: {peak: 1e-4}}, batch: 256}",
    "reading": 'reading: {single: "[CLS] {A} [SEP]", summary: first}',
    "passes": "objectives: [token_prediction: {tie: true}]",
}


def recipe_of(root: Node, faults: Faults) -> Recipe | None:
    """The recipe of an expanded tree, or None and faults. `references.py` then checks the names that refer to each other."""
    top = read_arguments("A recipe", VALUES, _only(root, VALUES), "", faults)
    # A checkpoint or an earlier stage supplies text and reading.
    from_checkpoint = any(node.get("from") is not None for _, node in root.pairs_at("networks"))
    sources = read_sources(root, faults)
    reads_text = not sources or any(
        source is None or not class_of("source", source.name).own_vocabulary for source in sources.values()
    )
    if reads_text and not from_checkpoint:
        _report_missing(root, "texts", faults)
    texts = {name: _text_spec(node, f"texts.{name}", faults) for name, node in root.pairs_at("texts")}
    tables = {name: read_part(node, f"tables.{name}", faults) for name, node in root.pairs_at("tables")}
    _report_missing(root, "networks", faults)
    networks = {name: _network_spec(name, node, f"networks.{name}", faults) for name, node in root.pairs_at("networks")}
    for name, network in networks.items():  # an average has the part and the changes of the network that it averages
        of = None if network is None or network.average is None else networks.get(network.average.of)
        if network is not None and of is not None and of.average is None:
            networks[name] = replace(network, part=of.part, change=of.change, architecture=of.architecture)
    if from_checkpoint and "reading" not in root.value:
        reading = Reading(single=FROM_CHECKPOINT, pair=FROM_CHECKPOINT)
    else:
        reading = _read_section(Reading, root, "reading", faults)
    training = _read_section(TrainingSpec, root, "training", faults)
    mixture = root.get("mixture")
    if mixture is None or not mixture.is_mapping:
        entries = {"main": _entry_spec("main", root, root, "", list(sources), list(networks), faults)}
    else:
        entries = {
            name: _entry_spec(name, node, root, f"mixture.{name}.", list(sources), list(networks), faults)
            for name, node in root.pairs_at("mixture") if node.is_mapping
        }
    entries_have_tasks = any(entry is not None and entry.task is not None for entry in entries.values())
    task = _read_section(TaskSpec, root, "task", faults) if "task" in root.value else TaskSpec() if entries_have_tasks else None
    schedule = _schedule(root, faults)
    everything = [top, reading, training]
    for section in (texts, sources, tables, networks, entries):
        everything += section.values()
    if len(faults) or top is None or ("task" in root.value and task is None) or any(spec is None for spec in everything):
        return None
    export = top["export"]
    if export is None:
        export = next(iter(networks))
        if len(networks) > 1:
            faults.add(root.where, "export", f"there are {len(networks)} networks: which is the result?",
                       f"Write `export:` with one of {', '.join(networks)}.")
    return Recipe(
        name=top["name"], paper=top["paper"], notes=top["notes"], texts=texts, sources=sources, tables=tables,  # type: ignore[arg-type]
        networks=networks, tie=tuple(tuple(group) for group in top["tie"]),  # type: ignore[arg-type]
        tie_detached=tuple(tuple(group) for group in top["tie_detached"]), reading=reading,
        entries={name: _with_widths(entry, networks) for name, entry in entries.items()},  # type: ignore[arg-type]
        mixing=top["mixing"], schedule=schedule, training=training, export=export, task=task,
    )


def read_sources(root: Node, faults: Faults) -> dict[str, PartSpec | None]:
    """The sources of an expanded recipe by name; None where there are faults."""
    _report_missing(root, "sources", faults)
    return {name: read_part(node, f"sources.{name}", faults) for name, node in root.pairs_at("sources")}


def _only(node: Node, keys: Arguments) -> Node:
    """A mapping restricted to these keys."""
    return Node({key: value for key, value in node.items() if key in keys}, node.where, node.key_places)


def _report_missing(root: Node, key: str, faults: Faults) -> None:
    """Add a fault, with an example, if nothing is written under a key."""
    node = root.get(key)
    if node is None or node.value is None:
        name = {"texts": "text", "sources": "corpus", "networks": "network", "passes": "objectives"}.get(key, key)
        faults.add(root.where, name, "is missing.", f"For example `{_examples[key]}`.")


def _read_section(cls: Any, root: Node, key: str, faults: Faults) -> Any:
    node = root.get(key)
    if node is None:
        _report_missing(root, key, faults)
        return None
    values = read_arguments(key, arguments_of(cls), node, key, faults)
    return None if values is None else cls(**values)


def _text_spec(node: Node, path: str, faults: Faults) -> TextSpec | None:
    values = read_arguments("text", TEXT, node, path, faults) if node.is_mapping else None
    return None if values is None else TextSpec(**values)


def _network_spec(name: str, node: Node, path: str, faults: Faults) -> NetworkSpec | None:
    _report_reserved_name(name, node, path, faults)
    if not node.is_mapping:
        return None
    if "average" in node.value:
        return _average(name, node, path, faults)
    values = read_arguments(name, NETWORK, _only(node, NETWORK), path, faults)
    arguments = {key: value for key, value in node.items() if key not in NETWORK}
    part_node = Node(arguments, node.where, node.key_places, node.part_kind)
    part = read_part(part_node, path, faults)
    start = node.get("start")
    if start is not None and start.value is not None and "from" in node.value:
        faults.add(node.place("start"), f"{path}.start", "the rows of its table come from a checkpoint or an earlier stage.",
                   "Leave out `start` or `from`.")
    if values is None or (part is None and (node.part_kind is not None or values["from"] is None)):
        return None
    train = tuple(values["train"]) if isinstance(values["train"], list) else values["train"]
    change = tuple(values["change"])
    return NetworkSpec(name, part, values["from"], change, train, values["architecture"], start=values["start"])


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


# ---- entries and passes ----------------------------------------------------------------------------------------------


def _entry_spec(
    name: str, node: Node, root: Node, prefix: str, sources: list[str], networks: list[str], faults: Faults
) -> EntrySpec | None:
    """An entry of the mixture, whose value paths begin with `prefix`; what it does not write, but `odds`, is that of the root.

    `sources` and `networks` are the names of those of the recipe.
    """

    def inherited(key: str) -> tuple[Node | None, str]:
        return (node.value[key], f"{prefix}{key}") if key in node.value else (root.value.get(key), key)

    pairs = {"source": inherited("source")[0], "odds": node.get("odds")}
    nodes = {key: value for key, value in pairs.items() if value is not None}
    entry_node = Node(nodes, node.where, {**root.key_places, **node.key_places})
    values = read_arguments(name, {key: ENTRY[key] for key in ("source", "odds")}, entry_node, prefix.rstrip("."), faults)
    order: Any = "open"
    order_node, path = inherited("order")
    if order_node is not None and order_node.value is not None:
        order = read_argument(ENTRY["order"], order_node, path, faults)
    exercise, path = inherited("exercise")
    if exercise is None:
        _report_missing(root, "exercise", faults)
    edits = WRONG if exercise is None else read_argument(ENTRY["exercise"], exercise, path, faults)
    source = "" if values is None else values["source"]
    if source is None:
        if len(sources) > 1:
            faults.add(node.where, f"{prefix}source", f"there are {len(sources)} sources: which is read here?",
                       f"Write `source:` with one of {', '.join(sources)}.")
        source = sources[0] if sources else ""
    faults_before = len(faults)
    passes = _passes(node, root, prefix, networks, faults)
    sound = len(faults) == faults_before
    task_values = None
    if prefix and "task" in node.value:
        task_values = read_arguments("task", arguments_of(EntryTaskSpec), node.value["task"], f"{prefix}task", faults)
    if values is None or passes is None or WRONG in (order, edits):
        return None
    objectives = [objective for pass_ in passes for objective in pass_.objectives]
    if sound and objectives and all(objective.weight == 0 for objective in objectives):
        faults.add(node.where, f"{prefix}objectives", "every objective has weight 0: these rows teach nothing.",
                   "Give one a weight above 0, or leave the entry out.")
    edit_specs = tuple(EditSpec(edit, edit.reserved["in"]) for edit in edits)
    task = None if task_values is None else EntryTaskSpec(**task_values)
    return EntrySpec(name, source, order, edit_specs, passes, values["odds"], task)


def _passes(
    node: Node, root: Node, prefix: str, networks: list[str], faults: Faults
) -> tuple[PassSpec, ...] | None:
    """The passes of an entry, those of the root if it writes none."""
    has_objectives = any(key in node.value for key in ("passes", "objectives"))
    owner, at = (node, prefix) if has_objectives else (root, "")
    if "passes" in owner.value:
        if not owner.items_at("passes"):
            faults.add(owner.value["passes"].where, f"{at}passes", "is empty.", f"For example `{_examples['passes']}`.")
            return None
        specs: list[ObjectiveSpec] = []
        passes = [_pass_spec(pass_, f"{at}passes[{i}]", specs, faults) for i, pass_ in enumerate(owner.items_at("passes"))]
        return None if any(pass_ is None for pass_ in passes) else tuple(pass_ for pass_ in passes if pass_ is not None)
    if "objectives" not in owner.value:
        _report_missing(owner, "passes", faults)
        return None
    if len(networks) != 1:
        faults.add(owner.place("objectives"), f"{at}objectives", f"there are {len(networks)} networks.",
                   "Write `passes:`, one for each network that runs.")
        return None
    objectives_node = owner.value["objectives"]
    parts = read_argument(PASS["objectives"], objectives_node, f"{at}objectives", faults)
    if parts is WRONG:
        return None
    objectives = _objectives(parts, objectives_node, networks[0], [], faults)
    return (PassSpec(networks[0], networks[0], objectives=objectives),)


def _pass_spec(node: Node, path: str, entry_objectives: list[ObjectiveSpec], faults: Faults) -> PassSpec | None:
    if not node.is_mapping:
        return None
    rest = Node({key: inner for key, inner in node.items() if key != "take"}, node.where, node.key_places)
    values = read_arguments("a pass", PASS, rest, path, faults)
    if values is None:
        return None
    name = values["name"] or values["network"]
    objectives = _objectives(values["objectives"], node.get("objectives"), name, entry_objectives, faults)
    take: dict[str, str | RewriterSpec] = {}
    for field, value in node.pairs_at("take"):
        if value.part_kind == "rewriter":
            rewriter = read_part(value, f"{path}.take", faults)
            if rewriter is not None:
                take[field] = RewriterSpec(rewriter, _bindings(rewriter.reserved["from"]))
        elif isinstance(value.value, str):
            take[field] = value.value
        elif not value.is_mapping:
            faults.add(value.where, f"{path}.take.{field}",
                       f"expected `pass.state` or `view.field`, got {value.plain()!r}.")
    return PassSpec(name, values["network"], values["view"], take, objectives, values["grad"])


def _objectives(
    parts: list[PartSpec], node: Node | None, pass_name: str, entry_objectives: list[ObjectiveSpec], faults: Faults
) -> tuple[ObjectiveSpec, ...]:
    """The objectives of one pass; each gets a name that no objective before it in the entry has.

    `entry_objectives` are those of earlier passes, to which these are appended.
    """
    specs = []
    for part, item in zip(parts, [] if node is None else node.value, strict=True):
        read, head, weight = (part.reserved[key] for key in ("read", "head", "weight"))
        _report_reserved_name(head or part.name, item, f"{part.path}.head", faults)
        name = _unused_name(part, head, pass_name, [objective.name for objective in entry_objectives])
        specs.append(ObjectiveSpec(part, name, _bindings(read), head, weight))
        entry_objectives.append(specs[-1])
    return tuple(specs)


def _report_reserved_name(name: str, node: Node, path: str, faults: Faults) -> None:
    """Add a fault if a network or a head has the name of an attribute of `ModuleDict`, which holds them in a `StepModule`."""
    from torch.nn import ModuleDict  # networks and objectives have imported torch by now

    if name in dir(ModuleDict()):
        faults.add(node.where, path, f"{name!r} is reserved: torch.nn.ModuleDict has an attribute of this name.",
                   f"Choose another name, such as my_{name}.")


def _unused_name(part: PartSpec, head: str | None, pass_name: str, names: list[str]) -> str:
    """A name for an objective that is not among `names`: its head or part, if need be with its set, with its pass, or both."""
    plain, target_set = head or part.name, part.arguments.get("set")
    suffixes = [""] if target_set is None else ["", f"/{target_set}"]
    candidates = [f"{prefix}{plain}{suffix}" for prefix in ("", f"{pass_name}.") for suffix in suffixes]
    return next((name for name in candidates if name not in names), f"{plain}#{len(names)}")


def _with_widths(entry: EntrySpec, networks: Mapping[str, NetworkSpec]) -> EntrySpec:
    """The entry with numbers for arguments of objectives that name a reading and stand for the width of the network whose state
    is read: `project: teacher`. The width of a checkpoint is known once it is bound; until then the name stays."""
    parts = {pass_.name: networks[pass_.network].part for pass_ in entry.passes if pass_.network in networks}
    widths = {name: part.arguments.get("width") for name, part in parts.items() if part is not None}
    passes = []
    for pass_ in entry.passes:
        objectives = []
        for objective in pass_.objectives:
            part = objective.part
            for name in class_of(part.kind, part.name).width_arguments:
                state = objective.read.get(str(part.arguments.get(name)), "")
                width = widths.get(state.rpartition(".")[0])
                if isinstance(width, int):
                    part = replace(part, arguments={**part.arguments, name: width})
            objectives.append(replace(objective, part=part))
        passes.append(replace(pass_, objectives=tuple(objectives)))
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
        values = read_arguments("a phase", PHASE, item, path, faults)
        if values is None:
            continue
        keys = [unit for unit in _units if values[unit] is not None]
        if len(keys) != 1:
            faults.add(item.where, path, f"a phase has one of steps, share, epochs; this one has {len(keys)}.")
            continue
        phases.append(Phase(**values))
    units = {unit for phase in phases for unit in _units if vars(phase)[unit] is not None}
    if len(units) > 1:
        faults.add(node.where, "schedule", f"the phases mix {' and '.join(sorted(units))}; all of them use one unit.")
    shares = [phase.share for phase in phases if phase.share is not None]
    if shares and units == {"share"} and abs(sum(shares) - 1) > 1e-6:
        faults.add(node.where, "schedule", f"the shares add up to {sum(shares):g}, expected 1.")
    return tuple(phases)
