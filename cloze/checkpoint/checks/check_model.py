"""Do the networks and objectives of a recipe fit? States pass by pass, after check.py has found the fields of every entry.

Networks and heads are built on torch's meta device, where a tensor has a shape and no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze import fields
from cloze.checkpoint.checks.checked import UNKNOWN, Checked, build_or_report
from cloze.document import Where
from cloze.errors import ClozeError, counted, propose
from cloze.recipe import parts
from cloze.recipe.builders import build, stand_ins, tables_for
from cloze.recipe.faults import Faults
from cloze.recipe.recipe import EntrySpec, NetworkSpec, ObjectiveSpec, PartSpec, PassSpec, Recipe, RewriterSpec
from cloze.recipe.references import reading_twins
from cloze.recipe.schema import arguments_of_part

#: Fields that batching makes for a view where its rows need them, so that no edit has to give them. A part may use one that is
#: there, but not require it.
BATCHING = frozenset({"position_ids", "order", "block", "summaries"})


def check_model(recipe: Recipe, available_fields: Mapping[str, frozenset[str]], checked: Checked, faults: Faults) -> None:
    """Report every network, objective and reading that does not fit, and count the parameters; `available_fields`: by entry."""
    import torch

    from cloze.networks.blocks.dropout import dropouts
    from cloze.networks.blocks.initial import SkipInit
    from cloze.networks.clock import Clock
    from cloze.training.tie import tie, tie_detached

    size = next((text.tokenizer.arguments.get("size") for text in recipe.texts.values()), None)
    inputs: dict[str, Any] = {
        "vocab_size": size if isinstance(size, int) and size > 0 else 1000, "clock": Clock(), "tables": stand_ins(recipe.tables),
    }
    with torch.device("meta"), SkipInit():
        networks: dict[str, Any] = {}
        for name, spec in recipe.networks.items():
            networks[name] = None
            if spec.part is not None:
                network_inputs = {**inputs, "tables": tables_for(spec.part.arguments, spec.origin, inputs["tables"])}
                networks[name] = _sound(build_or_report(spec.part, network_inputs, faults), spec.part, faults)
            if spec.start is not None and networks[name] is not None and "tokens" not in networks[name].token_tables:
                faults.add(spec.start.where, f"networks.{name}.start", "this network has no table with a row for each token.",
                           "Leave out `start`.")
            for change in spec.change if networks[name] is not None else ():
                built_change = build_or_report(change, {}, faults)
                if built_change is not None:
                    with faults.catching(change.where, change.path):
                        built_change.apply(networks[name])
        if all(network is not None for network in networks.values()):
            with faults.catching(Where(recipe.name), ""):
                tie(networks, recipe.tie)
                tie_detached(networks, recipe.tie_detached)
        seen: set[int] = set()
        for name, network in networks.items():
            tensors = [] if network is None else list(network.parameters())
            checked.networks[name] = sum(p.numel() for p in tensors)
            checked.parameters += sum(p.numel() for p in tensors if id(p) not in seen)
            seen |= {id(p) for p in tensors}
        for name, entry in recipe.step_entries.items():
            # Entries that share batches share their objectives: one entry with the targets is enough.
            fields_of = available_fields.get(name) or frozenset().union(*available_fields.values())
            _check_entry(recipe, entry, networks, inputs, fields_of, checked, seen, faults)
        checked.parameters += sum(checked.heads.values())
        for name in sorted(reading_twins(recipe)):
            network, spec = networks[name], recipe.networks[name]
            if network is not None and not any(dropouts(network).values()):
                faults.add(Where(recipe.name) if spec.part is None else spec.part.where, f"networks.{name}",
                           "it reads each text and an unchanged copy of it, and has no dropout: both readings are the same, so "
                           "nothing would be learned.", _way_to_dropout(spec))
    _check_architectures(recipe, networks, faults)


def _sound(network: Any, part: PartSpec, faults: Faults) -> Any:
    """The network if its members are what they must be, else None and a fault for each that is not."""
    from cloze.checkpoint.checks.members import network_faults

    wrong = [] if network is None else list(network_faults(network))
    for fault in wrong:
        faults.add(part.where, part.path, fault, "See `A network of your own` in docs/language.md.")
    return None if wrong else network


def _way_to_dropout(spec: NetworkSpec) -> str:
    if spec.part is not None and "dropout" in spec.part.arguments:
        return f"Give it dropout: --set networks.{spec.name}.dropout=0.1"
    return "This kind of network has none. Start from one that has, such as a Transformer."


def _check_architectures(recipe: Recipe, networks: Mapping[str, Any], faults: Faults) -> None:
    """The type that a recipe names for a network's folder must be able to express the network: another is never written."""
    from cloze.checkpoint.build import plain_arguments
    from cloze.checkpoint.publish import usual_order
    from cloze.interop.architecture import ARCHITECTURES
    from cloze.interop.arguments import derived, flat
    from cloze.interop.embeddings import with_plain_table

    for name, spec in recipe.networks.items():
        if spec.architecture is None or spec.part is None or networks[name] is None:
            continue
        orders = [entry.order for entry in recipe.entries.values() for pass_ in entry.passes if pass_.network == name]
        arguments = derived(flat(with_plain_table(plain_arguments(spec.part.arguments)), spec.part.name))
        usual = recipe.reading.orders[0] if recipe.reading.orders and name == recipe.export else usual_order(orders)
        architecture = ARCHITECTURES[spec.architecture]
        pad = next(iter(architecture.paddings), architecture.pad_of(arguments))  # the tokenizer is unknown
        reasons = architecture.objections(arguments, usual, pad=pad)
        if reasons:
            same_order = usual in architecture.orders  # a network of another order would not read text as it was trained
            message = f"{spec.architecture} does not fit: {'; '.join(reasons)}."
            faults.add(spec.part.where, f"networks.{name}.architecture", message, (
                "Leave `architecture` out: cloze chooses one that fits the network's shape." if spec.origin is None else
                f"The network begins with {spec.origin!r}: bind a checkpoint that the recipe can read as it was trained."
                + (f" Or keep the checkpoint's own architecture: --set networks.{name}.architecture=null." if same_order else "")
            ))


def _check_entry(
    recipe: Recipe, entry: EntrySpec, networks: Mapping[str, Any], inputs: Mapping[str, Any], available_fields: frozenset[str],
    checked: Checked, seen: set[int], faults: Faults,
) -> None:
    from cloze.networks.network import PARAMETERS

    states: dict[str, frozenset[str]] = {}  # by pass
    for pass_ in entry.passes:
        network = networks[pass_.network]
        if network is None:  # from a checkpoint, or reported already
            states[pass_.name] = frozenset({UNKNOWN})
            continue
        part = pass_.objectives[0].part if pass_.objectives else recipe.networks[pass_.network].part
        where = Where(recipe.name) if part is None else part.where
        present = _present(pass_, network, available_fields, where, faults)
        _check_taken(recipe, pass_, network, present, faults)
        _check_segments(recipe, entry, pass_, faults)
        present |= _taken(pass_, states, inputs, present, faults)
        sound = UNKNOWN not in available_fields
        for name in sorted(network.needs - present if sound else ()):
            faults.add(where, f"passes.{pass_.name}", f'network "{pass_.network}" takes "{name}", which no edit gives.')
        made_by_edits = _fields_of(pass_.view, available_fields)
        for name in sorted(network.needs & BATCHING - made_by_edits if sound else ()):
            faults.add(where, f"passes.{pass_.name}", f'network "{pass_.network}" needs "{name}", {_sometimes(name)}',
                       f"Take it out of `needs`, and give `forward` a default for it: {name}=None.")
        heads = set()
        for objective in pass_.objectives:
            built = _objective(recipe, pass_, objective, network, inputs, checked, seen, faults)
            if built is None:
                heads.add(objective.state)
                continue
            _check_scope(recipe, objective, built, faults)
            if sound:
                _check_targets(objective, built, present, available_fields, faults)
                for name in sorted(built.takes & BATCHING - made_by_edits):
                    faults.add(objective.part.where, objective.part.path,
                               f'{objective.part.name} takes "{name}", {_sometimes(name)}',
                               "Declare it in `optional` in place of `takes`, and use it only if the batch has it.")
            known_states = {**states, pass_.name: frozenset({*network.gives, PARAMETERS, *heads})}
            _check_readings(recipe, pass_, objective, built.reads, known_states, faults)
            heads.add(objective.state)
        states[pass_.name] = frozenset({*network.gives, PARAMETERS, *heads})


def _sometimes(name: str) -> str:
    """The end of a sentence about a field of `BATCHING`, in the words of docs/fields.md."""
    return f"which not every batch has (docs/fields.md: {fields.find(name).meaning})."


def _present(
    pass_: PassSpec, network: Any, available_fields: frozenset[str], where: Where, faults: Faults
) -> set[str]:
    """The fields that a pass reads of a batch, as `seen_by` in cloze/networks/routing.py gives them."""
    present = set(BATCHING) | _fields_of(pass_.view, available_fields)
    targets = {name for name in present if fields.split(name).field in ("targets", "values")}
    for view in sorted({fields.split(name).view for name in network.takes} - {"main"}):
        view_fields = _fields_of(fields.join(pass_.view, view), available_fields)
        present |= {f"{view}.{name}" for name in view_fields}
        if network.writes is None:
            continue
        second_targets = {name for name in view_fields if fields.split(name).field in ("targets", "values")}
        for name in sorted(second_targets & targets):
            path = f"passes.{pass_.name}"
            faults.add(where, path, f'there are "{name}" and "{view}.{name}"; an objective learns from one set.',
                       "Give one of the edits that make them another `set:`.")
        targets |= second_targets
    for name in sorted(name for name in pass_.take if "." in name and name not in network.takes):
        second = sorted(other for other in network.takes if "." in other)
        faults.add(where, f"passes.{pass_.name}.take", f'network "{pass_.network}" does not take "{name}".',
                   propose(name, second) if second else "It reads one sequence.")
    return present | targets | {f"positions/{fields.split(name).set}" for name in targets}


def _check_taken(recipe: Recipe, pass_: PassSpec, network: Any, present: set[str], faults: Faults) -> None:
    """A network must take the fields without which it would read another text."""
    for name in sorted(present - network.takes - {UNKNOWN}):
        if fields.find(name).binding:
            spec = recipe.networks[pass_.network].part
            kind = pass_.network if spec is None else spec.name
            takers = [candidate for candidate in parts.names("network") if name in _usual_fields(candidate)]
            without = "with these arguments " if kind in takers else ""
            ways = [f"Networks that take {name}: {', '.join(taker for taker in takers if taker != kind)}."]
            ways += [f"Or leave it out: --set exercise.{edit}.{name}=false" for edit in _switches(recipe, name)]
            faults.add(Where(recipe.name) if spec is None else spec.where, f"networks.{pass_.network}.{kind}",
                       f'{without}does not take "{name}", which an edit gives.', "\n  ".join(ways))


def _check_segments(recipe: Recipe, entry: EntrySpec, pass_: PassSpec, faults: Faults) -> None:
    """The segments that edits number must be rows of the network's table."""
    part = recipe.networks[pass_.network].part
    count = part.arguments.get("segments") if part is not None else None
    for spec in entry.exercise:
        numbers = spec.part.arguments.get("segments")
        if count and spec.view == pass_.view and numbers and max(numbers) >= count:
            message = f'network "{pass_.network}" has {count} segments, counted from 0, and no segment {max(numbers)}.'
            faults.add(spec.part.where, f"{spec.part.path}.segments", message,
                       f"Write numbers below {count}, or give the network more segments.")


def _switches(recipe: Recipe, name: str) -> list[str]:
    """The edits of a recipe that have an argument of the name of this field, which turns it off."""
    edits = {edit.part.name for entry in recipe.entries.values() for edit in entry.exercise}
    return sorted(edit for edit in edits if name in arguments_of_part("edit", edit))


def _fields_of(view: str, available_fields: frozenset[str]) -> set[str]:
    """The fields of a view without its prefix."""
    return {fields.join("main", *fields.split(name)[1:]) for name in available_fields if fields.split(name).view == view}


def _taken(
    pass_: PassSpec, states: Mapping[str, frozenset[str]], inputs: Mapping[str, Any], present: set[str], faults: Faults
) -> set[str]:
    """The fields that `take` supplies."""
    supplied: set[str] = set()
    for name, taken in pass_.take.items():
        if isinstance(taken, str):
            supplied.add(name)
            continue
        rewriter = build_or_report(taken.part, inputs, faults)
        if rewriter is None:
            continue
        for missing in sorted(rewriter.takes - present):
            faults.add(taken.part.where, taken.part.path, f'{taken.part.name} takes "{missing}", which no edit gives.',
                       _sets_given(present))
        _check_states(taken, rewriter.reads, states, faults)
        supplied |= set(rewriter.gives)
    return supplied


def _check_states(
    rewriter: RewriterSpec, reads: tuple[str, ...], states: Mapping[str, frozenset[str]], faults: Faults
) -> None:
    for reading, path in rewriter.read.items():
        if reading and reading not in reads:
            faults.add(rewriter.part.where, f"{rewriter.part.path}.from", f"{rewriter.part.name} has no reading {reading!r}.",
                       propose(reading, reads))
        owner, _, state = path.rpartition(".")
        pass_states = states.get(owner, frozenset({UNKNOWN}))
        if state not in pass_states and UNKNOWN not in pass_states:
            faults.add(rewriter.part.where, f"{rewriter.part.path}.from",
                       f'pass "{owner}" has no state "{state}"; it has: {", ".join(sorted(pass_states))}.')


def _objective(
    recipe: Recipe, pass_: PassSpec, spec: ObjectiveSpec, network: Any, inputs: Mapping[str, Any], checked: Checked,
    seen: set[int], faults: Faults,
) -> Any:
    from cloze.checkpoint.build import facts_of_network

    built = build_or_report(spec.part, {**inputs, **facts_of_network(network, spec.read)}, faults)
    name = recipe.head_name(pass_, spec)
    if built is not None and name not in checked.heads:
        parameters = [p for p in built.parameters() if id(p) not in seen]
        checked.heads[name] = sum(p.numel() for p in parameters)
    return built


def _check_targets(
    spec: ObjectiveSpec, built: Any, present: set[str], available_fields: frozenset[str], faults: Faults
) -> None:
    for name in sorted(built.takes - present):
        faults.add(spec.part.where, spec.part.path, f'{spec.part.name} takes "{name}", which no edit gives.',
                   _sets_given(present, available_fields))


def _check_scope(recipe: Recipe, spec: ObjectiveSpec, built: Any, faults: Faults) -> None:
    """An objective that compares the rows of a step needs several of them, and some need all in one micro-batch."""
    batches = [recipe.training.batch, *(phase.set["batch"] for phase in recipe.schedule if "batch" in phase.set)]
    largest, group = max(batches), recipe.training.group
    fewest = min(batches) if group is None else min(*batches, group)
    if fewest < built.least_rows:
        whole, key = ("step", "batch") if group is None or group > fewest else ("group", "group")
        faults.add(spec.part.where, spec.part.path,
                   f"{spec.part.name} compares each row with the others of its {whole}, and a {whole} has "
                   f"{counted(fewest, 'row')}, so nothing would be learned.",
                   f"Set training.{key} to {built.least_rows} or more, such as 64.")
    at_once = recipe.training.micro_batch or largest
    if built.scope == "batch" and at_once < largest:
        faults.add(spec.part.where, spec.part.path,
                   f"{spec.part.name} compares all rows of a step with each other, and training.micro_batch splits {largest} "
                   f"rows into parts of {at_once}.",
                   "Omit micro_batch, or use a smaller training.batch. To compare only the rows of each part with each other, "
                   f"set training.group to {at_once} and omit micro_batch.")


def _sets_given(present: set[str], available_fields: frozenset[str] = frozenset()) -> str:
    """The sets of targets that a pass has; if it has none, those of other views among all `available_fields`."""
    sets = sorted({fields.split(name).set for name in present if fields.split(name).field == "targets"})
    names = sorted(name for name in available_fields if fields.split(name).field == "targets")
    if names and not sets:
        return f"Targets in other views: {', '.join(names)}. A pass reads those of its own view; a decoder, those of `decoder`."
    if not sets:
        return "There are no targets yet; the edit `predict` makes targets of tokens."
    return f"Sets of targets: {', '.join(sets)}. Write `set:` with one of them."


def _check_readings(
    recipe: Recipe, pass_: PassSpec, spec: ObjectiveSpec, reads: tuple[str, ...], states: Mapping[str, frozenset[str]],
    faults: Faults,
) -> None:
    """Every reading of an objective must be a state of its pass or of an earlier one."""
    bound = {name: name for name in reads}
    for reading, path in spec.read.items():
        if reading and reading not in reads:
            faults.add(spec.part.where, f"{spec.part.path}.read", f"{spec.part.name} has no reading {reading!r}.",
                       propose(reading, reads))
        else:
            bound[reading or reads[0]] = path
    for path in bound.values():
        owner, _, state = path.rpartition(".")
        owner = owner or pass_.name
        pass_states = states.get(owner, frozenset({UNKNOWN}))
        if state in pass_states or UNKNOWN in pass_states:
            continue
        owners = [other.network for entry in recipe.entries.values() for other in entry.passes if other.name == owner]
        network = recipe.networks[owners[0]]
        kind = network.part.name if network.part is not None else network.origin
        givers = [name for name in parts.names("network") if state in _usual_states(name)]
        faults.add(spec.part.where, spec.part.path,
                   f'{spec.part.name} reads "{state}", but network "{network.name}" ({kind}) gives: '
                   f'{", ".join(sorted(pass_states))}.',
                   f'Networks that give "{state}": {", ".join(givers) or "none"}.')


def _usual_states(name: str) -> frozenset[str]:
    """The states of a registered network at its smallest size; nothing for one that states no size."""
    network = _smallest(name)
    return frozenset() if network is None else frozenset(network.gives)


def _usual_fields(name: str) -> frozenset[str]:
    """The fields that a registered network takes at its smallest size; nothing for one that states no size."""
    network = _smallest(name)
    return frozenset() if network is None else frozenset(network.takes)


def _smallest(name: str) -> Any:
    """A registered network at its smallest size; None if it states no size."""
    from cloze.networks.clock import Clock

    builder = parts.builder_of("network", name)
    sizes = parts.class_of("network", name).sizes
    try:
        return build(builder, dict(next(iter(sizes.values()), {})), {"vocab_size": 8, "clock": Clock()})
    except (ClozeError, TypeError, ValueError):
        return None
