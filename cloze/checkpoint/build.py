"""Recipes and checkpoints → objects that run.

- `build_step`: the networks and heads of a checked recipe, with random weights, in one `StepModule`;
- `load_checkpoint`: a folder → `Loaded`, a network with its heads and its tokenizer.

`feeds.py` builds the data of a recipe; `runs/preparing.py` puts both into a `Run`.
Each part is built by `cloze.recipe.builders.build`, from its builder and its arguments as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from cloze.checkpoint.annotators import annotations_of
from cloze.checkpoint.borrowed import NETWORKS, network_folder
from cloze.checkpoint.loaded import Loaded, network_inputs
from cloze.checkpoint.onnx_model import load_onnx
from cloze.checkpoint.open_folder import open_folder
from cloze.corpus import Store, TripleStore
from cloze.document import read_plain
from cloze.errors import CheckpointError, RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.order import CONSTANT
from cloze.exercises.retokenize import reading_of
from cloze.interop import Imported
from cloze.interop.onnx_folder import is_onnx
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.clock import Clock
from cloze.networks.network import state_width
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.negative_sampling import NegativeSampling
from cloze.recipe.builders import build, given_names, restored, stand_ins, tables_for
from cloze.recipe.parts import load_kind, names
from cloze.recipe.recipe import EntrySpec, ObjectiveSpec, PartSpec, PassSpec, Recipe, RewriterSpec
from cloze.recipe.schema import arguments_of_part, check_value, describe
from cloze.recipe.user_files import naming_files
from cloze.registry import Arguments, arguments_of, lookup
from cloze.rng import fold
from cloze.text import Tokenizer
from cloze.training.average_network import Average
from cloze.training.passes import Pass, PassObjective, Rewrite
from cloze.training.precision import as_dtype, choose_device
from cloze.training.step import StepModule
from cloze.training.tie import tie, tie_detached


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with nested parts as `{name: {argument: value}}`: what `build` takes and `cloze/network.json` stores.

    Unlike `recipe.as_plain_data`, it keeps tuples and sets. Unrelated to the plain form of a changed network.
    """
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, PartSpec):
        return {value.name: plain_arguments(value.arguments)}
    return plain_arguments(value) if isinstance(value, Mapping) else value


def build_step(
    recipe: Recipe, *, vocab_size: int, seed: int = 0, device: torch.device | str = "cpu",
    tables: Mapping[str, Any] | None = None, store: Store | None = None, tokenizer: Tokenizer | None = None,
    to_be_loaded: Collection[str] = (),
) -> StepModule:
    """Networks, ties, heads and rewriters of a recipe, freshly initialised by `seed`, as one module.

    The networks `to_be_loaded` stay at zero, because their weights are loaded next. `tables` are those of `make_tables`;
    without them, networks that read a table get one of a thousand items. Parts that need how often an id occurs, or how it is
    spelled, get it from `store` and `tokenizer`.
    """
    clock = Clock(seed)
    meta = str(device) == "meta"
    with torch.random.fork_rng(devices=[]), torch.device("meta" if meta else "cpu"), SkipInit() if meta else nullcontext():
        torch.manual_seed(fold(seed, "initial") >> 1)
        available = {
            "vocab_size": vocab_size, "clock": clock, "tables": stand_ins(recipe.tables) if tables is None else tables,
            **corpus_facts(recipe, store, tokenizer),
        }
        networks: dict[str, nn.Module] = {}
        for name in recipe.networks:
            with SkipInit() if name in to_be_loaded else nullcontext():
                networks[name] = _build_network(recipe, name, available)
            for change in recipe.networks[name].change:  # its own new parameters are random even if the others are loaded
                build_part(change).apply(networks[name])
        tie(networks, recipe.tie)
        tie_detached(networks, recipe.tie_detached)
        objectives: dict[str, nn.Module] = {}
        rewriters: dict[str, nn.Module] = {}
        for entry in recipe.step_entries.values():
            with_order = {**available, "order": constant_order(entry)}
            for pass_ in entry.passes:
                for objective in pass_.objectives:
                    _add_objective(recipe, pass_, objective, networks[pass_.network], with_order, objectives)
                for name, take in pass_.take.items():
                    if isinstance(take, RewriterSpec):
                        rewriters.setdefault(f"{pass_.name}:{name}", build_part(take.part, available))
        if recipe.training.packing:
            _require_rows_of_several_texts(objectives)
        entries = {
            name: [_make_pass(recipe, entry, pass_, objectives, rewriters) for pass_ in entry.passes]
            for name, entry in recipe.step_entries.items()
        }
        step = StepModule(
            networks=networks, objectives=objectives, rewriters=rewriters, entries=entries, clock=clock,
            averages=_averages(recipe, networks, objectives),
        )
    name_dropouts(step)
    if str(device) not in ("cpu", "meta"):
        step.to(device)
        clock.to(device)
    return step


def _require_rows_of_several_texts(objectives: Mapping[str, Any]) -> None:
    """Raise a `RecipeError` unless all objectives tell the texts of a packed row apart."""
    names = [name for name, objective in objectives.items() if objective.by_row]
    if names:
        raise RecipeError(
            f"{names[0]}: reads each row as one text, and training.packing puts several into a row.\n"
            "  Write training: {packing: false}."
        )


def corpus_facts(recipe: Recipe, store: Store | None, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What networks and objectives may be given of the text: `entity_count`, and `counts`, `spellings` and `documents` if a part
    asks for them."""
    specs = [network.part for network in recipe.networks.values() if network.part is not None]
    specs += [objective.part for entry in recipe.step_entries.values() for _, objective in entry.objectives()]
    specs += [v for spec in specs for v in spec.arguments.values() if isinstance(v, PartSpec)]
    needed = {name for spec in specs for name in given_names(lookup(spec.kind, spec.name))}
    return {
        "counts": store.counts() if store is not None and "counts" in needed else None,
        "spellings": tokenizer.spellings if tokenizer is not None and "spellings" in needed else None,
        "entity_count": store.entities if isinstance(store, TripleStore) else None,
        "documents": store.documents if isinstance(store, Store) and "documents" in needed else None,
    }


def build_part(spec: PartSpec, available: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A part of a recipe, built from its arguments and the `available` objects that its builder takes."""
    return build(lookup(spec.kind, spec.name), plain_arguments(spec.arguments), available)


def _build_network(recipe: Recipe, name: str, available: Mapping[str, Any]) -> nn.Module:
    spec = recipe.networks[name]
    if spec.part is None:
        raise RecipeError(f"networks.{name}: names no part to build; write its builder, such as `transformer`.")
    tables = available["tables"]
    reading = reading_of(name, tables)
    replacements: dict[str, Any] = {} if reading is None else {"vocab_size": reading.vocab_size}
    replacements["tables"] = tables_for(spec.part.arguments, spec.origin, tables)
    network: nn.Module = build_part(spec.part, {**available, **replacements})
    return network


def _add_objective(
    recipe: Recipe, pass_: PassSpec, spec: ObjectiveSpec, network: Any, available: Mapping[str, Any],
    objectives: dict[str, nn.Module],
) -> None:
    """Build an objective unless it exists already; objectives with one head and different sets share its parameters."""
    key, head = recipe.objective_key(pass_, spec), recipe.head_key(pass_, spec)
    if key in objectives:
        return
    objective = build_part(spec.part, {**available, **facts_of_network(network, spec.read)})
    if key != head and head in objectives:
        objective.head = objectives[head].head
    objectives[key] = objective


def facts_of_network(network: Any, read: Mapping[str, str]) -> dict[str, Any]:
    """What an objective that reads states of a network is given of it."""
    tables = network.vector_tables
    return {"width": state_width(network, read), "table": tables.get("tokens"), "vector_tables": tables, "maps": network.maps}


def _averages(recipe: Recipe, networks: Mapping[str, nn.Module], objectives: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """What keeps the networks that average others (`average:`), and their heads, up to date.

    A head averages that of the other network with the same part and set; without one it is a `RecipeError`.
    """
    modules: dict[str, nn.Module] = {}
    for name, spec in recipe.networks.items():
        if spec.average is None:
            continue
        pairs = {name: (networks[name], networks[spec.average.of])}
        for entry in recipe.entries.values():
            heads = [
                (pass_.network, recipe.objective_key(pass_, objective), (objective.part.name, objective.set), objective)
                for pass_, objective in entry.objectives()
            ]
            trained = {which: key for network, key, which, _ in heads if network == spec.average.of}
            for network, key, which, objective in heads:
                if network != name or not list(objectives[key].parameters()):
                    continue
                if which not in trained:
                    raise RecipeError(
                        f"networks.{name}: its head {objective.state!r} averages that of {spec.average.of}, which has no "
                        f"{objective.part.name} of the set {objective.set!r}.\n  Give {spec.average.of} such an objective."
                    )
                pairs[key] = (objectives[key], objectives[trained[which]])
        modules[name] = Average(list(pairs.values()), decay=spec.average.decay, last=spec.average.last)
    return modules


def _make_pass(
    recipe: Recipe, entry: EntrySpec, pass_: PassSpec, objectives: Mapping[str, Any], rewriters: Mapping[str, Any]
) -> Pass:
    """A pass of the recipe as `StepModule` runs it. A recipe names scores by their head, `StepModule` by the objective."""
    def states_by_reading(read: Mapping[str, str], part: Any, set: str | None = None) -> dict[str, str]:
        return {name or part.reads[0]: _state(entry, pass_, path, set) for name, path in read.items()}

    take: dict[str, str | Rewrite] = {}
    for name, source in pass_.take.items():
        if isinstance(source, RewriterSpec):
            key = f"{pass_.name}:{name}"
            take[name] = Rewrite(key, states_by_reading(source.read, rewriters[key]))
        else:
            take[name] = _state(entry, pass_, source)
    pass_objectives = []
    for spec in pass_.objectives:
        key = recipe.objective_key(pass_, spec)
        read = states_by_reading(spec.read, objectives[key], spec.set)
        pass_objectives.append(PassObjective(spec.name, key, live(spec.weight), read))
    return Pass(pass_.name, pass_.network, pass_.view, take, tuple(pass_objectives), constant_order(entry), pass_.grad)


def _state(entry: EntrySpec, pass_: PassSpec, path: str, set: str | None = None) -> str:
    """A state that is read, as `StepModule` calls it.

    If several objectives have that head, it is the one that predicts the same `set`, else the last of them.
    """
    full = path if "." in path else f"{pass_.name}.{path}"
    heads = [
        (objective.set, f"{owner.name}.{objective.name}")
        for owner, objective in entry.objectives() if f"{owner.name}.{objective.state}" == full
    ]
    same = [name for target_set, name in heads if target_set == set] or [name for _, name in heads]
    return same[-1] if same else path


def constant_order(entry: EntrySpec) -> str:
    """The order of an entry if it is the same for all rows, else `open`: the rows then bring their own."""
    return entry.order if isinstance(entry.order, str) and entry.order in CONSTANT else "open"


def live(value: Any) -> Any:
    """The value of a `Live` argument: a number, or for a schedule part a function of the share of the budget spent."""
    return build_part(value, {}) if isinstance(value, PartSpec) else value


def load_checkpoint(
    folder: Any, device: str = "cpu", *, plain_form: bool = False, annotate: Mapping[str, Any] | None = None,
    precision: str = "fp32",
) -> Loaded:
    """Open a run folder, a fine-tuned folder, any Hugging Face folder that `cloze import` reads, or an ONNX file of cloze.

    `open_folder` reads the files; this function builds the network, its lasting changes (`cloze/changes/change.py`; none with
    `plain_form`), weights and heads. `annotate` replaces annotators, as recipes write them:
    `{"entity": {"mentions": {"file": …}}}`. `precision` is fp32, bf16 (faster where the hardware multiplies it, about three
    digits) or auto. For an ONNX file, only `precision` is looked at.

    Raises:
        CheckpointError: Something is missing, damaged or of an unknown architecture, or there is no plain form.
    """
    torch_device = choose_device(device)
    dtype = as_dtype(precision, torch_device)
    if is_onnx(Path(folder)):
        if precision == "bf16":
            raise CheckpointError(
                f"{folder}: an ONNX model runs in the precision that it was exported in. Use the precision fp32 or auto."
            )
        return load_onnx(Path(folder))
    with naming_files(Path(folder)):
        loaded = _build_loaded(open_folder(Path(folder)), torch_device, plain_form=plain_form, annotate=annotate)
    if dtype is None:
        return loaded
    return replace(loaded, precision=dtype, others=cache(lambda name: replace(loaded.other(name), precision=dtype)))


def _build_loaded(imported: Imported, device: torch.device, *, plain_form: bool, annotate: Mapping[str, Any] | None) -> Loaded:
    """The objects of what a folder holds, on a device."""
    model, clock = imported.model, Clock()
    if plain_form and model.no_plain_form:
        raise CheckpointError(
            f"{imported.folder}: {model.no_plain_form}\n"
            "  Continue with the changed network: `network: {from: NAME}`, without a part."
        )
    annotations = annotations_of(model.annotators, annotate)
    tables = restored(model.tables, annotations.labels)
    available = network_inputs(imported.vocab_size, imported.tokenizer, clock, tables)
    with_tables = {**available, "tables": tables_for(model.arguments, imported.folder, tables)}
    network: Any = _build_from_description("network", model.part, model.arguments, with_tables, imported.folder)
    for name, arguments in () if plain_form else model.changes:
        load_kind("change")
        with SkipInit():
            _build_from_description("change", name, arguments, {}, imported.folder).apply(network)
    _load_weights(network, model.network if plain_form else {**model.network, **model.changed}, imported.folder)
    heads = {}
    for name, head in model.heads.items():
        head_inputs = {**available, **facts_of_network(network, head.read), "order": model.order}
        heads[name] = _build_from_description("objective", head.part, head.arguments, head_inputs, imported.folder)
        _load_weights(heads[name], head.state, imported.folder)
        heads[name].to(device).eval()
    network.to(device).eval()
    clock.to(device)
    edit_inputs = {**available, "tokenizer": TokenFacts.of(imported.tokenizer)}
    file = imported.folder / "cloze" / "recipe.yaml"
    recipe = read_plain(file) if file.is_file() else None
    if network.of_documents and recipe is not None:
        _add_inference(network, heads, imported.tokenizer, recipe)
    return Loaded(
        recipe=recipe, network=network, heads=heads,
        tokenizer=imported.tokenizer, reading=imported.reading, order=model.order, folder=imported.folder,
        network_arguments=model.arguments, clock=clock, imported=imported,
        reads={name: head.read for name, head in model.heads.items() if head.read},
        input_edits=tuple(
            _build_from_description("edit", part, arguments, edit_inputs, imported.folder)
            for part, arguments in model.input_edits
        ),
        tables=tables, languages=model.languages, others=cache(lambda name: _load_other(imported.folder, name, str(device))),
        annotations=annotations,
    )


def _add_inference(
    network: Any, heads: Mapping[str, Any], tokenizer: Tokenizer, recipe: Mapping[str, Any]
) -> None:
    """Let a network train vectors for new texts as its recipe trained those of the corpus: in as many passes, at the same
    rates.

    `recipe` is that of the run, in full, as plain data. A network without its head says what it needs when it is used.
    """
    from cloze.engines.lock_free import asked_of
    from cloze.engines.paragraphs import Inferred

    def built(kind: str, part: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
        ((name, arguments),) = part.items()
        return build(lookup(kind, name), {key: value for key, value in arguments.items() if key != "in"}, available)

    head: Any = next((module for module in heads.values() if isinstance(module, NegativeSampling | HierarchicalSoftmax)), None)
    if head is None:
        return
    facts = {"tokenizer": TokenFacts.of(tokenizer), "counts": head.counts.cpu().numpy()}
    choice = asked_of([built("edit", edit, facts) for edit in recipe["exercise"]], owned=True)
    if choice is None:
        return
    keep, question = choice
    passes = max(math.ceil(recipe["training"].get("epochs") or 1), 1)
    rate = built("rate", recipe["training"]["rate"], {})
    rates = [rate(number / max(passes - 1, 1), passes) for number in range(passes)]
    network.inference = Inferred(network, head, edit=question, keep=keep, rates=rates)


def _load_other(folder: Path, name: str, device: str) -> Loaded:
    """A network of the run in `folder` other than the exported one."""
    inner = network_folder(folder, name)
    if inner == folder:
        raise CheckpointError(
            f"{folder}: the network {name!r} is missing: there is no {folder / NETWORKS / name}.\n"
            "  Copy the whole folder of the run, or train again."
        )
    return load_checkpoint(inner, device)


def _build_from_description(
    kind: str, name: str, arguments: Mapping[str, Any], available: Mapping[str, Any], folder: Path
) -> Any:
    """Build a part from the description in a checkpoint; one that no recipe could have produced is a `CheckpointError`."""
    builder = lookup(kind, name)
    _check_described(name, arguments_of(builder), arguments, folder)
    with SkipInit():
        return build(builder, arguments, available)


def _check_described(owner: str, accepted: Arguments, arguments: Mapping[str, Any], folder: Path) -> None:
    """Refuse arguments that no recipe could have produced, including those of nested parts and sections."""
    for key, value in arguments.items():
        argument = accepted.get(key)
        if argument is None:
            raise CheckpointError(
                f"{folder}: {owner} has no argument {key!r}: another version of cloze wrote the folder, or its description was "
                "changed.\n  Open it with the version that wrote it, or copy the folder again."
            )
        if argument.sections is not None and isinstance(value, Mapping):
            for name, section in value.items():
                _check_described(f"{owner}.{key}.{name}", argument.fields, section, folder)
            continue
        if argument.section is not None and isinstance(value, Mapping):
            _check_described(f"{owner}.{key}", argument.fields, value, folder)
            continue
        choices = (argument.choices or names(argument.part_kind)) if argument.part_kind else []
        value = {value: {}} if isinstance(value, str) and value in choices else value
        if argument.part_kind and isinstance(value, Mapping) and len(value) == 1 and (part := next(iter(value))) in choices:
            _check_described(f"{owner}.{key}.{part}", arguments_of_part(argument.part_kind, part), value[part] or {}, folder)
            continue
        if argument.live and isinstance(value, Mapping) or argument.part_kind and value is None and argument.default is None:
            continue
        try:
            if argument.part_kind:
                raise ValueError
            check_value(argument.annotation, value)
        except ValueError:
            fault = f"{folder}: {owner}.{key} is {str(value)[:60]!r}, expected {describe(argument.annotation)}."
            raise CheckpointError(f"{fault}\n  The description of this checkpoint was changed: copy it again.") from None
    missing = [key for key, argument in accepted.items() if argument.required and key not in arguments]
    if missing:
        raise CheckpointError(f"{folder}: {owner} needs {', '.join(missing)}, which the description of this checkpoint lacks.")


def _load_weights(module: Any, state: Mapping[str, Any], folder: Path) -> None:
    """Load the weights of a network or a head; tensors that do not match its parameters are a `CheckpointError`."""
    try:
        module.load_state_dict(dict(state))
    except RuntimeError as error:
        first = str(error).splitlines()[1:2] or [str(error)]
        raise CheckpointError(
            f"{folder}: the weights do not fit the description of the network: {first[0].strip()}\n  Copy the checkpoint again."
        ) from None
