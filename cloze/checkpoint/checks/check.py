"""Do the parts of a recipe fit? Fields edit by edit here, then states pass by pass in check_model.py."""

from __future__ import annotations

from typing import Any

from cloze import fields
from cloze.checkpoint.checks.check_model import check_model
from cloze.checkpoint.checks.checked import UNKNOWN, Checked, EditLine, build_or_report
from cloze.document import Where
from cloze.errors import ClozeError, propose
from cloze.exercises.exercise import PlacedEdit
from cloze.reading import FROM_CHECKPOINT
from cloze.recipe import parts
from cloze.recipe.builders import build, schedules, stand_ins
from cloze.recipe.faults import Faults
from cloze.recipe.load import phase_recipes
from cloze.recipe.recipe import EditSpec, EntrySpec, PartSpec, Recipe, as_plain_data
from cloze.recipe.references import views
from cloze.recipe.schema import arguments_of_part
from cloze.training.schedule.phases import sets_dropout


def check_recipe(recipe: Recipe) -> Checked:
    """Check that every field and state that is taken is given, and every part can be built.

    Raises one `RecipeError` with every fault. Imports torch. Every stage is checked; the result is that of the last.
    """
    for stage in recipe.stages[:-1]:
        check_recipe(stage.recipe)
    faults = Faults()
    checked = Checked(recipe)
    for text in recipe.texts.values():
        build_or_report(text.tokenizer, {}, faults)
    _check_templates(recipe, faults)
    available_fields = {name: _check_fields(recipe, entry, checked, faults) for name, entry in recipe.entries.items()}
    _check_room(recipe, faults)
    build_or_report(recipe.training.optimizer, {}, faults)
    build_or_report(recipe.training.rate, {}, faults)
    _check_growth(recipe, faults)
    by_depth = [recipe.training.layerwise_rates, *(network.train for network in recipe.networks.values())]
    for part in [part for part in by_depth if isinstance(part, PartSpec)]:
        build_or_report(part, {}, faults)
    check_model(recipe, available_fields, checked, faults)
    for phase, changed in zip(recipe.schedule, phase_recipes(recipe) if recipe.schedule else (), strict=True):
        if not len(faults) and any(sets_dropout(path) for path in phase.set):
            check_model(changed, available_fields, Checked(changed), faults)
    faults.raise_if_any()
    return checked


def _check_templates(recipe: Recipe, faults: Faults) -> None:
    """Every template, of `reading` or of an edit, names roles that there are, and the parts of a row."""
    from cloze.exercises.frame import split_template
    from cloze.text.roles import ROLES

    where = next((text.tokenizer.where for text in recipe.texts.values()), Where(recipe.name))
    templates = [(where, f"reading.{key}", vars(recipe.reading)[key]) for key in ("single", "pair", "target")]
    for entry in recipe.entries.values():
        for edit in entry.exercise:
            if parts.class_of("edit", edit.part.name).frames:
                templates.append((edit.part.where, f"{edit.part.path}.template", edit.part.arguments["template"]))
    for location, path, template in templates:
        if not isinstance(template, str) or template == FROM_CHECKPOINT:
            continue
        pieces = split_template(template)
        for kind, text_piece in pieces:
            if kind == "role" and text_piece not in ROLES:
                faults.add(location, path, f"{text_piece} is not a role.", propose(text_piece, ROLES))
        part_names = {piece for kind, piece in pieces if kind == "part"}
        required = {"reading.single": {"A"}, "reading.target": {"A"}, "reading.pair": {"A", "B"}}.get(path, set())
        if required - part_names:
            missing = " and no ".join(f"{{{name}}}" for name in sorted(required - part_names))
            faults.add(location, path, f"{template!r} has no {missing}.")


def _check_growth(recipe: Recipe, faults: Faults) -> None:
    """A step has a part of the batch, and some rows of it."""
    part = recipe.training.batch_warmup
    growth = None if part is None else build_or_report(part, {}, faults)
    if part is None or growth is None:
        return
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        if not 0 < growth(share) <= 1:
            what = f"{growth(share):g} at {share:.0%} of the budget; expected a part of the batch, above 0 and at most 1."
            faults.add(part.where, part.path, what, "For example `batch_warmup: {linear: {start: 0.25, end: 1.0, until: 0.1}}`.")
            return


def _check_fields(recipe: Recipe, entry: EntrySpec, checked: Checked, faults: Faults) -> frozenset[str]:
    """Walk through the edits of an entry; returns all fields after the last one, or `UNKNOWN` if an edit is faulty."""
    source = recipe.sources[entry.source]
    text_source = build_or_report(source, {"tables": stand_ins(recipe.tables)}, faults)
    if text_source is not None and recipe.training.batch_warmup is not None and (text_source.lanes or text_source.of_one_length):
        faults.add(source.where, "training.batch_warmup", f"{source.name} plans which rows share a batch, so it cannot grow.",
                   "Leave batch_warmup out.")
    available_fields = set() if text_source is None else set(text_source.gives)
    annotated = [layer for text in recipe.texts.values() for layer in text.annotate.items()]
    layers = [f"layers/{name}" for name, _ in annotated]
    layers += [f"labels/{name}" for name, part in annotated if parts.class_of("annotator", part.name).labelled]
    sequences = [name for name in available_fields if name.endswith("tokens")]
    available_fields |= {name.removesuffix("tokens") + layer for name in sequences for layer in layers}
    lines = checked.edits.setdefault(entry.name, [])
    sound = text_source is not None
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
            faults.add(spec.part.where, f"networks.{recipe.export}", "facts come after their words, so no word sees its facts "
                       "from left to right.", "Use a network that reads in both directions, such as bert.\n"
                       f"  Or add facts as ordinary text, which later words see: --set exercise.{spec.part.name}.visible=false")
        takes, gives = (_in_view(names, spec.view) for names in (edit.takes, edit.gives))
        if edit.selects and not recipe.is_complete and takes - available_fields:
            continue  # rows may get items with --items; else the recipe is completed without the edit
        for name in sorted(takes - available_fields if sound else ()):
            _report_missing_field(name, spec.part, available_fields, faults)
        if _in_view(edit.precedes, spec.view) & available_fields:
            faults.add(spec.part.where, spec.part.path, f"{spec.part.name} works on the text of the source, and an earlier edit "
                       "has framed or masked it.", f"Put {spec.part.name} first.")
        for name, by in [(name, by) for name in sorted(takes) for start, by in spoiled.items() if name.startswith(start)][:1]:
            faults.add(by.part.where, by.part.path, f"{spec.part.name} reads {name}, which is not right for the text that "
                       f"{by.part.name} returns.", f"Leave {by.part.name} out of this exercise.")
        spoiled |= dict.fromkeys(edit.spoils, spec)
        copied = edit.copies
        if copied is not None:
            gives |= {f"{copied}.{name}" for name in available_fields if "." not in name}
        brought, view = spec.part.arguments.get("companion"), spec.part.arguments.get("to")
        if brought is not None and view is not None:
            start = f"{brought}."
            gives |= {f"{view}.{n[len(start):]}" for n in available_fields if n.startswith(start)}
        for name in gives:
            with faults.catching(spec.part.where, spec.part.path):
                fields.find(name)
        available_fields |= gives
        lines.append(EditLine(spec.part.path, frozenset(takes), frozenset(gives)))
    if isinstance(entry.order, PartSpec):
        order = build_or_report(entry.order, {}, faults)
        for name in sorted(order.takes - available_fields if sound and order is not None else ()):
            _report_missing_field(name, entry.order, available_fields, faults)
    elif entry.order == "source_to_target" and "segments" not in available_fields:
        faults.add(source.where, f"{entry.name}: order", "source_to_target needs segments, which no edit gives.")
    checked.batch[entry.name] = frozenset(
        name for name in available_fields if fields.find(name).travels and fields.split(name).view in views(entry)
    )
    return frozenset(available_fields) if sound else frozenset({UNKNOWN})


def _edit_of(spec: EditSpec, recipe: Recipe, faults: Faults) -> Any:
    """The edit; None and a fault where an argument, or a value that its schedule reaches, is refused."""
    edit = build_or_report(spec.part, {"tables": stand_ins(recipe.tables)}, faults)
    if edit is not None:
        with faults.catching(spec.part.where, spec.part.path):
            # Its constructor refuses a schedule that changes the fields, or how texts are cut.
            PlacedEdit(edit, spec.view, schedules(parts.builder_of("edit", spec.part.name), as_plain_data(spec.part.arguments)))
            return edit
    return None


def _in_view(names: frozenset[str], view: str) -> set[str]:
    return {fields.join(view, name) for name in names}


def _report_missing_field(name: str, part: PartSpec, available_fields: set[str], faults: Faults) -> None:
    """Report that an edit takes a field that nothing before it gives, and which edits could give it."""
    givers = [edit for edit in parts.names("edit") if fields.split(name).field in _usual_gives(edit)]
    way_out = f"Edits that give {fields.split(name).field}: {', '.join(givers)}; put one before it." if givers else ""
    if fields.split(name).field == "item_length":
        way_out = "Rows get it with their items: --items FILE. Or take a recipe that reads texts alone: --recipe NAME"
    field_names = ", ".join(sorted(n for n in available_fields if "." not in n))
    faults.add(part.where, part.path, f'{part.name} takes "{name}", which nothing before it gives.',
               way_out or f"Given so far: {field_names}.")


def _usual_gives(edit: str) -> set[str]:
    """The fields that an edit gives with its default arguments; nothing for edits that have none."""
    try:
        return {fields.split(name).field for name in build(parts.builder_of("edit", edit), _template(edit), {}).gives}
    except (ClozeError, TypeError, ValueError):
        return set()


def _template(edit: str) -> dict[str, Any]:
    """The argument that an edit with a template cannot do without."""
    return {"template": "{A}"} if "template" in arguments_of_part("edit", edit) else {}


def _check_room(recipe: Recipe, faults: Faults) -> None:
    """Every phase's length must leave room for text inside the frame."""
    for phase, phase_recipe in enumerate(phase_recipes(recipe)):
        for entry in phase_recipe.entries.values():
            length = phase_recipe.sources[entry.source].arguments.get("length")
            max_tokens = length
            for spec in reversed(entry.exercise):
                edit = build_or_report(spec.part, {}, Faults())  # its faults are reported by `_check_fields`
                if max_tokens is not None and edit is not None and spec.view == "main":
                    max_tokens = edit.max_input(max_tokens)
            if max_tokens is not None and max_tokens < 1:
                source = recipe.sources[entry.source]
                at = f" in schedule[{phase}]" if recipe.schedule else ""
                faults.add(source.where, f"{source.path}.length",
                           f"{length} tokens{at} leave no room for text in the frame.")
