"""Checks the references inside a recipe: networks, passes, views, heads, sources, ties, lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from cloze.document import Where
from cloze.errors import MessagePiece, Parameter, Phrase, propose
from cloze.fields import find as find_field
from cloze.fields import join
from cloze.recipe.faults import Faults
from cloze.recipe.parts import architectures, class_of
from cloze.recipe.recipe import EntrySpec, PartSpec, PassSpec, Recipe, RewriterSpec

At = Callable[[str], Where]  # the place of a value path in the file
Report = Callable[..., None]  # adds a fault: its value path, what is wrong, what to do


def check_references(recipe: Recipe, at: At, faults: Faults) -> None:
    """Add a fault for every unknown name and every contradiction between settings."""

    def report(path: str, what: str, way_out: str = "", *more: MessagePiece) -> None:
        faults.add(at(path), path, what, way_out, *more)

    _report_unknown("export", recipe.export, recipe.networks, "network", report)
    for entry in recipe.entries.values():
        prefix = "" if list(recipe.entries) == ["main"] else f"mixture.{entry.name}."
        if entry.source:
            _report_unknown(f"{prefix}source", entry.source, recipe.sources, "source", report)
        _check_passes(recipe, entry, prefix, at, faults)
    if not any(entry.odds for entry in recipe.entries.values()):
        report("mixture", "every entry has odds of 0, so nothing would ever be trained.")
    _check_networks(recipe, report)
    _check_mixing(recipe, report)
    _check_tasks(recipe, report)
    _check_lanes(recipe, report, faults)
    _check_heads(recipe, faults)
    _check_ties(recipe, report)
    _check_training(recipe, report)


def views(entry: EntrySpec) -> list[str]:
    """The views of an entry: `main` and those that its edits make, each with the view of its edit before its name."""
    pairs = [(edit, edit.part.arguments.get("to") or class_of("edit", edit.part.name).second) for edit in entry.exercise]
    return ["main", *dict.fromkeys(join(edit.view, str(name)) for edit, name in pairs if name)]


def reading_twins(recipe: Recipe) -> set[str]:
    """The networks that read a text and an unchanged copy of it: dropout alone makes the two differ (SimCSE)."""
    twins = set()
    for entry in recipe.step_entries.values():
        kinds = [(edit, class_of("edit", edit.part.name)) for edit in entry.exercise]
        copies = {edit.part.arguments["to"] for edit, kind in kinds if kind.duplicates}
        changed = {edit.view for edit, kind in kinds if not kind.duplicates and not kind.frames}
        for pass_ in entry.passes:
            other_passes = [other for other in entry.passes if other.network == pass_.network and other is not pass_]
            if pass_.view in copies - changed and any(other.view not in changed for other in other_passes):
                twins.add(pass_.network)
    return twins


def _report_unknown(path: str, name: str, names: Iterable[str], what: str, report: Report) -> None:
    if name not in list(names):
        report(path, f"there is no {what} {name!r}.", propose(name, names))


def _check_networks(recipe: Recipe, report: Report) -> None:
    """Check that the type of a network's folder is one that can express such networks, that an average is of a network that is
    trained, and that it only runs without gradient."""
    trained = [name for name, network in recipe.networks.items() if network.average is None]
    for name, network in recipe.networks.items():
        if network.architecture is not None:
            kin = architectures(None if network.part is None else network.part.name)
            _report_unknown(f"networks.{name}.architecture", network.architecture, kin, "architecture", report)
        if network.average is None:
            continue
        path = f"networks.{name}.average"
        _report_unknown(f"{path}.of", network.average.of, trained, "network that is trained", report)
        if name == recipe.export:
            report("export", f"{name} is an average.", f"Export {network.average.of}.")
        if any(pass_.network == name and pass_.grad for entry in recipe.entries.values() for pass_ in entry.passes):
            report(path, f"a pass of {name} has a gradient, but an average is never trained.",
                   "Write `grad: false` in that pass.")


def _check_passes(recipe: Recipe, entry: EntrySpec, prefix: str, at: At, faults: Faults) -> None:
    view_names = views(entry)
    for index, edit in enumerate(entry.exercise):
        earlier_views = views(EntrySpec(entry.name, entry.source, entry.order, entry.exercise[:index], ()))
        _report_unknown(f"{edit.part.path}.in", edit.view, earlier_views, "view", partial(faults.add, edit.part.where))
    earlier: list[str] = []
    for index, pass_ in enumerate(entry.passes):
        path = f"{prefix}passes[{index}]"
        where = pass_.objectives[0].part.where if pass_.objectives else at(path)
        _report_unknown(f"{path}.network", pass_.network, recipe.networks, "network", partial(faults.add, where))
        _report_unknown(f"{path}.view", pass_.view, view_names, "view", partial(faults.add, where))
        if pass_.name in earlier:
            faults.add(where, path, f"there is already a pass {pass_.name!r}.", "Give this one a `name:` of its own.")
        if pass_.name in view_names and pass_.name != pass_.view:
            faults.add(where, path, f"the pass {pass_.name!r} has the name of a view on which it does not run.",
                       "Give the pass a `name:` of its own.")
        _check_names_of_pass(pass_, earlier, view_names, path, where, faults)
        earlier.append(pass_.name)


def _check_names_of_pass(
    pass_: PassSpec, earlier: list[str], views: list[str], path: str, where: Where, faults: Faults
) -> None:
    """Check what a pass takes and reads: `pass.state` names an earlier pass, `view.field` a view."""
    fields = {field: origin for field, origin in pass_.take.items() if isinstance(origin, str)}
    references = [(f"{path}.take.{field}", origin, where) for field, origin in fields.items()]
    for rewriter in pass_.take.values():
        if isinstance(rewriter, RewriterSpec):
            references += [(f"{rewriter.part.path}.from", state, rewriter.part.where) for state in rewriter.read.values()]
    for reference_path, reference, reference_where in references:
        owner, dot, _ = reference.rpartition(".")
        if not dot:
            faults.add(reference_where, reference_path, f"got {reference!r}, expected `pass.state` or `view.field`.")
        elif owner not in (*earlier, *views):
            faults.add(reference_where, reference_path, f"{reference!r} names no earlier pass and no view.",
                       propose(owner, [*earlier, *views]))
        elif owner not in earlier:
            with faults.catching(reference_where, reference_path):
                find_field(reference)
    for field in fields:
        with faults.catching(where, f"{path}.take.{field}"):
            find_field(field)
    for objective in pass_.objectives:
        for state in objective.read.values():
            owner, dot, _ = state.rpartition(".")
            if dot and owner not in (*earlier, pass_.name):
                faults.add(objective.part.where, f"{objective.part.path}.read", f"{state!r} names no earlier pass.",
                           propose(owner, [*earlier, pass_.name]))


def _check_mixing(recipe: Recipe, report: Report) -> None:
    """Entries can share batches only if their passes are the same; the first difference is named."""
    if not recipe.mixes_rows:
        return
    first, *other_entries = recipe.entries.values()
    if recipe.training.packing:
        report("mixing", "row and training.packing cannot be combined.", "Write `packing: false`.")
    for entry in other_entries:
        for name in ("name", "network", "view", "take", "grad"):
            if [vars(pass_)[name] for pass_ in entry.passes] != [vars(pass_)[name] for pass_ in first.passes]:
                report("mixing", f"row, but the passes of {first.name} and {entry.name} differ in `{name}`.",
                           "Rows of one batch go through the same passes; write `mixing: step`.")
                break


def _check_tasks(recipe: Recipe, report: Report) -> None:
    """Check that there is one task, or one for each of several entries."""
    if recipe.task is None:
        return
    if recipe.task.type is None and not recipe.tasks:
        report("task", 'needs "type", a kind of task.', "For example `task: {type: sentence_classification}`.")
    for key in ("type", "metric") if recipe.tasks else ():
        if vars(recipe.task)[key] is not None:
            report(f"task.{key}", f"the entries {', '.join(recipe.tasks)} each have a task of their own.",
                       "Write type and metric there, and here only keep and patience.")


def _check_lanes(recipe: Recipe, report: Report, faults: Faults) -> None:
    """Rows of a source that continue from step to step cannot be packed or mixed."""
    for name, source in recipe.sources.items():
        if not class_of("source", source.name).lanes:
            continue
        if recipe.training.packing:
            faults.add(source.where, f"sources.{name}", f"{source.name} and training.packing do not go together: rows of a "
                       "stream continue from step to step.", "Write `packing: false`.")
        if recipe.mixes_rows:
            report("mixing", f"row, but rows of {source.name} continue from step to step: no mixing by row.",
                       "Write `mixing: step`.")


def _check_heads(recipe: Recipe, faults: Faults) -> None:
    """Objectives that share a head must have the same settings; only the set of targets may differ."""
    first: dict[str, PartSpec] = {}
    for entry in recipe.entries.values():
        for pass_, objective in entry.objectives():
            name = recipe.head_name(pass_, objective)
            original = first.setdefault(name, objective.part)
            if original.name != objective.part.name:
                faults.add(objective.part.where, objective.part.path,
                           f"the head {name!r} is a {original.name} at {original.path} and a {objective.part.name} here.",
                           "Name the heads apart with `head:`.")
                continue
            for key, value in objective.part.arguments.items():
                if key != "set" and value != original.arguments[key]:
                    faults.add(objective.part.where, f"{objective.part.path}.{key}",
                               f"the head {name!r} has {key} {original.arguments[key]!r} at {original.path} and {value!r} here.",
                               "Name the heads apart with `head:`, or give both the same settings.")


def _check_ties(recipe: Recipe, report: Report) -> None:
    ties = {"tie": recipe.tie, "tie_detached": recipe.tie_detached}
    groups = {f"{key}[{index}]": group for key, groups in ties.items() for index, group in enumerate(groups)}
    for path, group in groups.items():
        if len(group) < 2:
            report(path, "ties one thing; a tie joins two or more.",
                       "For example `tie: [[generator.embeddings, discriminator.embeddings]]`.")
        for member in group:
            owner, dot, _ = member.partition(".")
            if not dot or owner not in recipe.networks:
                report(path, f"{member!r} does not begin with the name of a network.",
                           propose(owner, recipe.networks))


def _check_training(recipe: Recipe, report: Report) -> None:
    training = recipe.training

    if training.micro_batch is not None and training.micro_batch > training.batch > 0:
        report("training.micro_batch", f"got {training.micro_batch}, more than the batch of {training.batch}.")
    for name in ("micro_batch", "batch_warmup"):
        if training.group is not None and vars(training)[name] is not None:
            report(f"training.{name}", "the rows of a training.group are read at once. Leave training.group or this one out.")
    budgets = [name for name in ("steps", "epochs", "tokens") if vars(training)[name] is not None]
    if len(budgets) > 1:
        way = Phrase(" Leave one of them out, for example: ", Parameter(f"training.{budgets[1]}", "null"))
        report(f"training.{budgets[1]}", f"{' and '.join(budgets)} are both written; a recipe has one budget.", "", way)
    if training.average is not None and class_of("optimizer", training.optimizer.name).averages:
        report("training.average", f"{training.optimizer.name} already exports a mean of the weights. Leave one of the two out.")
    if training.keep_best is not None:
        _check_keep_best(recipe, training.keep_best, report)


def _check_keep_best(recipe: Recipe, name: str, report: Report) -> None:
    """Check that the loss which chooses the checkpoint is measured on held-out text."""
    path, several = "training.keep_best", len(recipe.step_entries) > 1
    names = [
        f"{entry}/{objective.name}" if several else objective.name
        for entry, spec in recipe.step_entries.items() for _, objective in spec.objectives()
    ]
    _report_unknown(path, name, names, "objective", report)
    if recipe.task is not None:
        report(path, "the task chooses the checkpoint.", "Leave keep_best out; `task: {keep: best}` says the same.")
    elif not recipe.training.held_out or not recipe.training.evaluate_every:
        report(path, "no held-out loss is measured.", "Set held_out and evaluate_every above 0, such as 0.01 and 0.1.")


def check_length(recipe: Recipe, faults: Faults, phase: int | None = None) -> None:
    """Check that every source with a length has one by now, and that no row exceeds the positions of a network."""
    at = "" if phase is None else f" in schedule[{phase}]"
    for source in recipe.sources.values():
        if "length" not in source.arguments:
            continue
        length = source.arguments["length"]
        if length is None:
            faults.add(source.where, f"{source.path}.length", f"is missing{at}: it sets how many tokens the networks see.",
                       "Write it here, or in every phase: `schedule: [{share: 1.0, set: {length: 128}}]`.")
            continue
        if length < 2:
            faults.add(source.where, f"{source.path}.length", f"got {length}{at}, expected at least 2.")
        for network in recipe.networks.values():
            path, most = max_length(network.part)
            if most is not None and length > most:
                faults.add(source.where, f"{source.path}.length",
                           f"{length} tokens{at}, but network {network.name!r} has {most} positions.",
                           f"Set networks.{network.name}.{path}, or a shorter length.")


def max_length(network: PartSpec | None) -> tuple[str, int | None]:
    """The path of a network's maximum length among its arguments, and its value; None if there is no limit."""
    arguments: Mapping[str, Any] = {} if network is None else network.arguments
    positions = arguments.get("positions")
    if isinstance(positions, PartSpec):
        return "positions.max_length", positions.arguments.get("max_length")
    return "max_length", arguments.get("max_length")
