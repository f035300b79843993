"""Do the parts of a recipe fit? Fields edit by edit, then states pass by pass, before any tensor holds a number.

Networks and heads are built on torch's meta device, where a tensor has a shape and no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloze import fields
from cloze.assembly import parts
from cloze.assembly.check_templates import check_templates
from cloze.assembly.document import Where
from cloze.assembly.faults import Faults
from cloze.assembly.given import build, courses, stand_ins, tables_for
from cloze.assembly.load import phase_recipes
from cloze.assembly.recipe import EditSpec, EntrySpec, ObjectiveSpec, PartSpec, PassSpec, Recipe, RewriterSpec, plain
from cloze.assembly.schema import arguments_of_part
from cloze.assembly.structure import views
from cloze.errors import ClozeError, nearest
from cloze.exercises.exercise import Placed
from cloze.training.phases import sets_dropout

#: Fields that batching makes for every view, so that no edit has to give them.
BATCHING = frozenset({"position_ids", "order", "block", "summaries"})


@dataclass(frozen=True)
class EditLine:
    """What one edit of an entry takes and gives, as full field names."""

    path: str
    takes: frozenset[str]
    gives: frozenset[str]


@dataclass
class Checked:
    """The results of the check: fields by entry, parameters by network and by head."""

    recipe: Recipe
    edits: dict[str, list[EditLine]] = field(default_factory=dict)
    batch: dict[str, frozenset[str]] = field(default_factory=dict)
    networks: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)


def check_recipe(recipe: Recipe) -> Checked:
    """Check that every field and state that is taken is given, and every part can be built.

    Raises one `RecipeError` with every fault. Imports torch. Every stage is checked; the result is that of the last.
    """
    for stage in recipe.stages[:-1]:
        check_recipe(stage.recipe)
    faults = Faults()
    checked = Checked(recipe)
    for text in recipe.texts.values():
        _made(text.tokenizer, {}, faults)
    check_templates(recipe, faults)
    available = {name: _check_fields(recipe, entry, checked, faults) for name, entry in recipe.entries.items()}
    _check_room(recipe, faults)
    _made(recipe.training.optimizer, {}, faults)
    _made(recipe.training.rate, {}, faults)
    _check_growth(recipe, faults)
    moves = [recipe.training.layerwise_rates, *(network.train for network in recipe.networks.values())]
    for part in [part for part in moves if isinstance(part, PartSpec)]:
        _made(part, {}, faults)
    _check_model(recipe, available, checked, faults)
    for phase, changed in zip(recipe.schedule, phase_recipes(recipe) if recipe.schedule else (), strict=True):
        if not len(faults) and any(sets_dropout(path) for path in phase.set):
            _check_model(changed, available, Checked(changed), faults)
    faults.raise_if_any()
    return checked


def _check_growth(recipe: Recipe, faults: Faults) -> None:
    """A step has a part of the batch, and some rows of it."""
    part = recipe.training.batch_warmup
    growth = None if part is None else _made(part, {}, faults)
    if part is None or growth is None:
        return
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        if not 0 < growth(share) <= 1:
            what = f"{growth(share):g} at {share:.0%} of the budget; expected a part of the batch, above 0 and at most 1."
            faults.add(part.where, part.path, what, "For example `batch_warmup: {linear: {start: 0.25, end: 1.0, until: 0.1}}`.")
            return


def _made(part: PartSpec, available: Mapping[str, Any], faults: Faults) -> Any:
    """A part as its builder makes it, or None and a fault."""
    try:
        with faults.catching(part.where, part.path):
            arguments = {
                name: _made(value, available, faults) if isinstance(value, PartSpec) else value
                for name, value in part.arguments.items() if not _is_schedule(value)
            }
            arguments |= {name: plain(value) for name, value in part.arguments.items() if _is_schedule(value)}
            return build(parts.builder_of(part.kind, part.name), arguments, available)
    except (ValueError, TypeError) as error:
        faults.add(part.where, part.path, f"{error}.")
    return None


def _is_schedule(value: Any) -> bool:
    return isinstance(value, PartSpec) and value.kind == "schedule"


# ---- the data tower --------------------------------------------------------------------------------------------------


def _check_fields(recipe: Recipe, entry: EntrySpec, checked: Checked, faults: Faults) -> frozenset[str]:
    """Walk through the edits of an entry; returns all fields after the last one."""
    source = recipe.sources[entry.source]
    made = _made(source, {"tables": stand_ins(recipe.tables)}, faults)
    if made is not None and recipe.training.batch_warmup is not None and (made.lanes or made.of_one_length):
        faults.add(source.where, "training.batch_warmup", f"{source.name} plans which rows share a batch, so it cannot grow.",
                   "Leave batch_warmup out.")
    available = set() if made is None else set(made.gives)
    annotated = [layer for text in recipe.texts.values() for layer in text.annotate.items()]
    layers = [f"layers/{name}" for name, _ in annotated]
    layers += [f"labels/{name}" for name, part in annotated if parts.class_of("annotator", part.name).labelled]
    available |= {name.removesuffix("tokens") + layer for name in available if name.endswith("tokens") for layer in layers}
    lines = checked.edits.setdefault(entry.name, [])
    sound = made is not None
    spoiled: dict[str, EditSpec] = {}
    for spec in entry.exercise:
        edit = _edit_of(spec, recipe, faults)
        if edit is None:
            sound = False
            continue
        if edit.adds and recipe.training.packing:
            faults.add(spec.part.where, spec.part.path, f"{spec.part.name} adds tokens to rows, and training.packing joins rows "
                       "by their lengths before that.", "Write `packing: false`.")
        if edit.adds and "visible" in edit.gives and entry.order == "left_to_right":
            faults.add(spec.part.where, f"networks.{recipe.export}", "facts stand behind their words, so no word sees its facts "
                       "from left to right.", "Use a network that reads in both directions, such as bert.\n"
                       f"  Or add facts as ordinary text, which later words see: --set exercise.{spec.part.name}.visible=false")
        takes, gives = (_in_view(names, spec.view) for names in (edit.takes, edit.gives))
        for name in sorted(takes - available if sound else ()):
            _report_missing_field(name, spec.part, available, faults)
        for name, by in [(name, by) for name in sorted(takes) for start, by in spoiled.items() if name.startswith(start)][:1]:
            faults.add(by.part.where, by.part.path, f"{spec.part.name} reads {name}, which is not right for the text that "
                       f"{by.part.name} returns.", f"Leave {by.part.name} out of this exercise.")
        spoiled |= dict.fromkeys(edit.spoils, spec)
        copied = edit.copies
        if copied is not None:
            gives |= {f"{copied}.{name}" for name in available if "." not in name}
        brought, view = spec.part.arguments.get("companion"), spec.part.arguments.get("to")
        if brought is not None and view is not None:
            start = f"{brought}."
            gives |= {f"{view}.{n[len(start):]}" for n in available if n.startswith(start)}
        for name in gives:
            with faults.catching(spec.part.where, spec.part.path):
                fields.find(name)
        available |= gives
        lines.append(EditLine(spec.part.path, frozenset(takes), frozenset(gives)))
    if isinstance(entry.order, PartSpec):
        order = _made(entry.order, {}, faults)
        for name in sorted(order.takes - available if sound and order is not None else ()):
            _report_missing_field(name, entry.order, available, faults)
    elif entry.order == "source_to_target" and "segments" not in available:
        faults.add(source.where, f"{entry.name}: order", "source_to_target needs segments, which no edit gives.")
    checked.batch[entry.name] = frozenset(
        name for name in available if fields.find(name).travels and fields.split(name).view in views(entry)
    )
    return frozenset(available) if sound else frozenset({"?"})


def _edit_of(spec: EditSpec, recipe: Recipe, faults: Faults) -> Any:
    """The edit; None and a fault where an argument, or a value that its schedule reaches, is refused."""
    edit = _made(spec.part, {"tables": stand_ins(recipe.tables)}, faults)
    if edit is not None:
        with faults.catching(spec.part.where, spec.part.path):
            Placed(edit, spec.view, courses(parts.builder_of("edit", spec.part.name), plain(spec.part.arguments)))
            return edit
    return None


def _in_view(names: frozenset[str], view: str) -> set[str]:
    return {fields.join(view, name) for name in names}


def _report_missing_field(name: str, part: PartSpec, available: set[str], faults: Faults) -> None:
    """Report that an edit takes a field that nothing before it gives, and which edits could give it."""
    givers = [known for known in parts.names("edit") if fields.split(name).field in _usual_gives(known)]
    way_out = f"Edits that give {fields.split(name).field}: {', '.join(givers)}; put one before it." if givers else ""
    shown = ", ".join(sorted(n for n in available if "." not in n))
    faults.add(part.where, part.path, f'{part.name} takes "{name}", which nothing before it gives.',
               way_out or f"Given so far: {shown}.")


def _usual_gives(edit: str) -> set[str]:
    """The fields that an edit gives with its default arguments; nothing for edits that have none."""
    try:
        return {fields.split(name).field for name in build(parts.builder_of("edit", edit), _template(edit), {}).gives}
    except (ClozeError, TypeError, ValueError):
        return set()


def _template(edit: str) -> dict[str, Any]:
    from cloze.assembly.schema import arguments_of_part

    return {"template": "{A}"} if "template" in arguments_of_part("edit", edit) else {}


def _check_room(recipe: Recipe, faults: Faults) -> None:
    """Every phase's length must leave room for text inside the frame."""
    for phase, stage in enumerate(phase_recipes(recipe)):
        for entry in stage.entries.values():
            length = stage.sources[entry.source].arguments.get("length")
            room = length
            for spec in reversed(entry.exercise):
                edit = _made(spec.part, {}, Faults())
                if room is not None and edit is not None and spec.view == "main":
                    room = edit.room(room)
            if room is not None and room < 1:
                source = recipe.sources[entry.source]
                at = f" in schedule[{phase}]" if recipe.schedule else ""
                faults.add(source.where, f"{source.path}.length",
                           f"{length} tokens{at} leave no room for text in the frame.")


# ---- the model tower -------------------------------------------------------------------------------------------------


def _check_model(recipe: Recipe, available: Mapping[str, frozenset[str]], checked: Checked, faults: Faults) -> None:
    import torch

    from cloze.networks.blocks.initial import Undrawn
    from cloze.networks.clock import Clock
    from cloze.training.tie import tie

    size = next((text.tokenizer.arguments.get("size") for text in recipe.texts.values()), None)
    given: dict[str, Any] = {
        "vocab_size": size if isinstance(size, int) and size > 0 else 1000, "clock": Clock(), "tables": stand_ins(recipe.tables),
    }
    with torch.device("meta"), Undrawn():
        networks: dict[str, Any] = {}
        for name, spec in recipe.networks.items():
            networks[name] = None
            if spec.part is not None:
                own = {**given, "tables": tables_for(spec.part.arguments, spec.origin, given["tables"])}
                networks[name] = _made(spec.part, own, faults)
            for change in spec.change if networks[name] is not None else ():
                with faults.catching(change.where, change.path):
                    build(parts.builder_of(change.kind, change.name), change.arguments, {}).apply(networks[name])
        if all(network is not None for network in networks.values()):
            with faults.catching(Where(recipe.name), ""):
                tie(networks, recipe.tie)
        seen: set[int] = set()
        for name, network in networks.items():
            checked.networks[name] = 0 if network is None else sum(p.numel() for p in network.parameters())
            seen |= set() if network is None else {id(p) for p in network.parameters()}
        for name, entry in recipe.step_entries.items():
            # Entries that share batches share their objectives: one entry with the targets is enough.
            fields_of = available.get(name) or frozenset().union(*available.values())
            _check_entry(recipe, entry, networks, given, fields_of, checked, seen, faults)
    _check_architectures(recipe, networks, faults)


def _check_architectures(recipe: Recipe, networks: Mapping[str, Any], faults: Faults) -> None:
    """The type that a recipe names for a network's folder must be able to express the network: another is never written."""
    from cloze.assembly.build import plain
    from cloze.assembly.publish import reads_in
    from cloze.interop.architecture import ARCHITECTURES
    from cloze.interop.arguments import derived, flat
    from cloze.interop.embeddings import with_plain_table

    for name, spec in recipe.networks.items():
        if spec.architecture is None or spec.part is None or networks[name] is None:
            continue
        orders = [entry.order for entry in recipe.entries.values() for run in entry.passes if run.network == name]
        arguments = derived(flat(with_plain_table(plain(spec.part.arguments)), spec.part.name))
        usual = recipe.reading.orders[0] if recipe.reading.orders and name == recipe.export else reads_in(orders)
        reasons = ARCHITECTURES[spec.architecture].objections(arguments, usual, pad=0)
        if reasons:
            message = f"{spec.architecture} does not fit: {'; '.join(reasons)}."
            faults.add(spec.part.where, f"networks.{name}.architecture", message,
                       "Leave `architecture` out: cloze chooses one that fits the network's shape.")


def _check_entry(
    recipe: Recipe, entry: EntrySpec, networks: Mapping[str, Any], given: Mapping[str, Any], available: frozenset[str],
    checked: Checked, seen: set[int], faults: Faults,
) -> None:
    from cloze.networks.network import PARAMETERS

    states: dict[str, frozenset[str]] = {}  # by pass
    for run in entry.passes:
        network = networks[run.network]
        if network is None:  # from a checkpoint, or reported already
            states[run.name] = frozenset({"?"})
            continue
        part = run.objectives[0].part if run.objectives else recipe.networks[run.network].part
        where = Where(recipe.name) if part is None else part.where
        present = _present(run, network, available, where, faults)
        _check_taken(recipe, run, network, present, faults)
        present |= _taken(run, states, given, present, faults)
        sound = "?" not in available
        for name in sorted(network.needs - present if sound else ()):
            faults.add(where, f"passes.{run.name}", f'network "{run.network}" takes "{name}", which no edit gives.')
        heads = set()
        for objective in run.objectives:
            built = _objective(recipe, run, objective, network, given, checked, seen, faults)
            if built is None:
                heads.add(objective.state)
                continue
            _check_scope(recipe, objective, built, faults)
            if sound:
                _check_targets(objective, built, present, available, faults)
            known = {**states, run.name: frozenset({*network.gives, PARAMETERS, *heads})}
            _check_readings(recipe, run, objective, built.reads, known, faults)
            heads.add(objective.state)
        states[run.name] = frozenset({*network.gives, PARAMETERS, *heads})


def _present(
    run: PassSpec, network: Any, available: frozenset[str], where: Where, faults: Faults
) -> set[str]:
    """The fields that a pass reads of a batch, as `seen_by` in cloze/networks/routing.py gives them."""
    present = set(BATCHING) | _fields_of(run.view, available)
    targets = {name for name in present if fields.split(name).field in ("targets", "values")}
    for view in sorted({fields.split(name).view for name in network.takes} - {"main"}):
        own = _fields_of(fields.join(run.view, view), available)
        present |= {f"{view}.{name}" for name in own}
        if network.writes is None:
            continue
        theirs = {name for name in own if fields.split(name).field in ("targets", "values")}
        for name in sorted(theirs & targets):
            faults.add(where, f"passes.{run.name}", f'there are "{name}" and "{view}.{name}"; an objective learns from one set.',
                       "Give one of the edits that make them another `set:`.")
        targets |= theirs
    for name in sorted(name for name in run.take if "." in name and name not in network.takes):
        second = sorted(other for other in network.takes if "." in other)
        faults.add(where, f"passes.{run.name}.take", f'network "{run.network}" does not take "{name}".',
                   nearest(name, second) if second else "It reads one sequence.")
    return present | targets | {f"positions/{fields.split(name).set}" for name in targets}


def _check_taken(recipe: Recipe, run: PassSpec, network: Any, present: set[str], faults: Faults) -> None:
    """A network must take the fields without which it would read another text."""
    for name in sorted(present - network.takes - {"?"}):
        if fields.find(name).binding:
            spec = recipe.networks[run.network].part
            kind = run.network if spec is None else spec.name
            takers = [known for known in parts.names("network") if name in _usual_fields(known)]
            without = "with these arguments " if kind in takers else ""
            ways = [f"Networks that take {name}: {', '.join(known for known in takers if known != kind)}."]
            ways += [f"Or leave it out: --set exercise.{edit}.{name}=false" for edit in _switches(recipe, name)]
            faults.add(Where(recipe.name) if spec is None else spec.where, f"networks.{run.network}.{kind}",
                       f'{without}does not take "{name}", which an edit gives.', "\n  ".join(ways))


def _switches(recipe: Recipe, name: str) -> list[str]:
    """The edits of a recipe that have an argument of the name of this field, which turns it off."""
    edits = {edit.part.name for entry in recipe.entries.values() for edit in entry.exercise}
    return sorted(edit for edit in edits if name in arguments_of_part("edit", edit))


def _fields_of(view: str, available: frozenset[str]) -> set[str]:
    """The fields of a view without its prefix."""
    return {fields.join("main", *fields.split(name)[1:]) for name in available if fields.split(name).view == view}


def _taken(
    run: PassSpec, states: Mapping[str, frozenset[str]], given: Mapping[str, Any], present: set[str], faults: Faults
) -> set[str]:
    """The fields that `take` supplies."""
    supplied: set[str] = set()
    for name, origin in run.take.items():
        if isinstance(origin, str):
            supplied.add(name)
            continue
        rewriter = _made(origin.part, given, faults)
        if rewriter is None:
            continue
        for missing in sorted(rewriter.takes - present):
            faults.add(origin.part.where, origin.part.path, f'{origin.part.name} takes "{missing}", which no edit gives.',
                       _sets_given(present))
        _check_states(origin, rewriter.reads, states, faults)
        supplied |= set(rewriter.gives)
    return supplied


def _check_states(
    origin: RewriterSpec, reads: tuple[str, ...], states: Mapping[str, frozenset[str]], faults: Faults
) -> None:
    for reading, path in origin.read.items():
        if reading and reading not in reads:
            faults.add(origin.part.where, f"{origin.part.path}.from", f"{origin.part.name} has no reading {reading!r}.",
                       nearest(reading, reads))
        owner, _, state = path.rpartition(".")
        known = states.get(owner, frozenset({"?"}))
        if state not in known and "?" not in known:
            faults.add(origin.part.where, f"{origin.part.path}.from",
                       f'pass "{owner}" has no state "{state}"; it has: {", ".join(sorted(known))}.')


def _objective(
    recipe: Recipe, run: PassSpec, spec: ObjectiveSpec, network: Any, given: Mapping[str, Any], checked: Checked,
    seen: set[int], faults: Faults,
) -> Any:
    from cloze.assembly.build import of_network

    built = _made(spec.part, {**given, **of_network(network, spec.read)}, faults)
    name = recipe.head_name(run, spec)
    if built is not None and name not in checked.heads:
        own = [p for p in built.parameters() if id(p) not in seen]
        checked.heads[name] = sum(p.numel() for p in own)
    return built


def _check_targets(
    spec: ObjectiveSpec, built: Any, present: set[str], available: frozenset[str], faults: Faults
) -> None:
    for name in sorted(built.takes - present):
        faults.add(spec.part.where, spec.part.path, f'{spec.part.name} takes "{name}", which no edit gives.',
                   _sets_given(present, available))


def _check_scope(recipe: Recipe, spec: ObjectiveSpec, built: Any, faults: Faults) -> None:
    """An objective that compares all rows of a step needs them in one micro-batch."""
    largest = max([recipe.training.batch, *(phase.set.get("batch", 0) for phase in recipe.schedule)])
    at_once = recipe.training.micro_batch or largest
    if built.scope == "batch" and at_once < largest:
        faults.add(spec.part.where, spec.part.path,
                   f"{spec.part.name} compares all rows of a step with each other, and training.micro_batch splits {largest} "
                   f"rows into parts of {at_once}.", "Omit micro_batch, or use a smaller training.batch.")


def _sets_given(present: set[str], available: frozenset[str] = frozenset()) -> str:
    """The sets of targets that a pass has; if it has none, those of other views among all `available` fields."""
    sets = sorted({fields.split(name).set for name in present if fields.split(name).field == "targets"})
    others = sorted(name for name in available if fields.split(name).field == "targets")
    if others and not sets:
        return f"Targets in other views: {', '.join(others)}. A pass reads those of its own view; a decoder, those of `decoder`."
    if not sets:
        return "There are no targets yet; the edit `predict` makes targets of tokens."
    return f"Sets of targets: {', '.join(sets)}. Write `set:` with one of them."


def _check_readings(
    recipe: Recipe, run: PassSpec, spec: ObjectiveSpec, reads: tuple[str, ...], states: Mapping[str, frozenset[str]],
    faults: Faults,
) -> None:
    """Every reading of an objective must be a state of its pass or of an earlier one."""
    bound = {name: name for name in reads}
    for reading, path in spec.read.items():
        if reading and reading not in reads:
            faults.add(spec.part.where, f"{spec.part.path}.read", f"{spec.part.name} has no reading {reading!r}.",
                       nearest(reading, reads))
        else:
            bound[reading or reads[0]] = path
    for path in bound.values():
        owner, _, state = path.rpartition(".")
        owner = owner or run.name
        known = states.get(owner, frozenset({"?"}))
        if state in known or "?" in known:
            continue
        runs = [p.network for entry in recipe.entries.values() for p in entry.passes if p.name == owner]
        network = recipe.networks[runs[0]]
        kind = network.part.name if network.part is not None else network.origin
        givers = [name for name in parts.names("network") if state in _usual_states(name)]
        faults.add(spec.part.where, spec.part.path,
                   f'{spec.part.name} reads "{state}", but network "{network.name}" ({kind}) gives: '
                   f'{", ".join(sorted(known))}.',
                   f'Networks that give "{state}": {", ".join(givers) or "none"}.')


def _usual_states(name: str) -> frozenset[str]:
    """The states of a registered network at its smallest size; nothing for one that states no size."""
    made = _smallest(name)
    return frozenset() if made is None else frozenset(made.gives)


def _usual_fields(name: str) -> frozenset[str]:
    """The fields that a registered network takes at its smallest size; nothing for one that states no size."""
    made = _smallest(name)
    return frozenset() if made is None else frozenset(made.takes)


def _smallest(name: str) -> Any:
    """A registered network at its smallest size; None if it states no size."""
    from cloze.networks.clock import Clock

    builder = parts.builder_of("network", name)
    sizes = parts.class_of("network", name).sizes
    try:
        return build(builder, dict(next(iter(sizes.values()), {})), {"vocab_size": 8, "clock": Clock()})
    except (ClozeError, TypeError, ValueError):
        return None
