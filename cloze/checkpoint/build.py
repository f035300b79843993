"""Recipes and checkpoints → objects that run.

- `build_step`: the networks and heads of a checked recipe, with random weights, in one `Step`;
- `build_data`, `build_feed`: its sources and exercises as `Feed`s;
- `load_checkpoint`: a folder → `Loaded`, a network with its heads and its tokenizer.

`runs/preparing.py` puts the results of the first two into a `Run`.
Each part is built by `cloze.recipe.given.build`, from its builder and its arguments as plain data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from cloze import fields
from cloze.batching import Data, Feed, MixedFeed
from cloze.checkpoint.averages import averages
from cloze.checkpoint.loaded import Loaded
from cloze.checkpoint.references import NETWORKS, network_folder
from cloze.checkpoint.source_options import source_options
from cloze.corpus import Store, TripleStore
from cloze.errors import CheckpointError, RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.exercise import Placed
from cloze.exercises.order import CONSTANT, Order
from cloze.exercises.retokenize import reading_of
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.blocks.initial import Undrawn
from cloze.networks.clock import Clock
from cloze.networks.network import state_width
from cloze.recipe.given import build, placed, restored, stand_ins, tables_for, wanted
from cloze.recipe.parts import class_of, load_kind, names
from cloze.recipe.recipe import EntrySpec, ObjectiveSpec, PartSpec, PassSpec, Recipe, RewriterSpec
from cloze.recipe.schema import arguments_of_part, check_value, describe
from cloze.recipe.user_files import naming_files
from cloze.registry import Arguments, arguments_of, lookup
from cloze.rng import fold
from cloze.text import Tokenizer
from cloze.training.step import Pass, Rewrite, Step, Weighted
from cloze.training.tie import tie


def plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as plain data, nested parts as `{name: {argument: value}}`: what `build` takes and `cloze/network.json` stores.

    Unrelated to the plain form of a changed network.
    """
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, PartSpec):
        return {value.name: plain(value.arguments)}
    return plain(value) if isinstance(value, Mapping) else value


def build_step(
    recipe: Recipe, *, vocab_size: int, seed: int = 0, device: torch.device | str = "cpu",
    tables: Mapping[str, Any] | None = None, store: Store | None = None, tokenizer: Tokenizer | None = None,
    filled: Collection[str] = (),
) -> Step:
    """Networks, ties, heads and rewriters of a recipe, freshly initialised by `seed`, as one module.

    The networks `filled` stay at zero, because their weights are loaded next. `tables` are those of `make_tables`; without them
    networks that read a table get one of a thousand items. Parts that need how often an id occurs, or how it is spelled, get it
    from `store` and `tokenizer`.
    """
    clock = Clock(seed)
    meta = str(device) == "meta"
    with torch.random.fork_rng(devices=[]), torch.device("meta" if meta else "cpu"), Undrawn() if meta else nullcontext():
        torch.manual_seed(fold(seed, "initial") >> 1)
        available = {
            "vocab_size": vocab_size, "clock": clock, "tables": stand_ins(recipe.tables) if tables is None else tables,
            **facts_of(recipe, store, tokenizer),
        }
        networks: dict[str, nn.Module] = {}
        for name in recipe.networks:
            with Undrawn() if name in filled else nullcontext():
                networks[name] = _network(recipe, name, available)
            for change in recipe.networks[name].change:  # its own new parameters are random even if the others are loaded
                build_part(change).apply(networks[name])
        tie(networks, recipe.tie)
        objectives: dict[str, nn.Module] = {}
        rewriters: dict[str, nn.Module] = {}
        for entry in recipe.step_entries.values():
            read_in = {**available, "order": constant_order(entry)}
            for run in entry.passes:
                for objective in run.objectives:
                    _add_objective(recipe, run, objective, networks[run.network], read_in, objectives)
                for name, take in run.take.items():
                    if isinstance(take, RewriterSpec):
                        rewriters.setdefault(f"{run.name}:{name}", build_part(take.part, {"clock": clock}))
        entries = {
            name: [_pass(recipe, entry, run, objectives, rewriters) for run in entry.passes]
            for name, entry in recipe.step_entries.items()
        }
        step = Step(
            networks=networks, objectives=objectives, rewriters=rewriters, entries=entries, clock=clock,
            averages=averages(recipe, networks, objectives),
        )
    name_dropouts(step)
    if str(device) not in ("cpu", "meta"):
        step.to(device)
        clock.to(device)
    return step


def facts_of(recipe: Recipe, store: Store | None, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Facts about the text for networks and objectives: `counts` and `spellings`, computed only if a part needs them."""
    specs = [network.part for network in recipe.networks.values() if network.part is not None]
    specs += [o.part for entry in recipe.step_entries.values() for _, o in entry.objectives()]
    specs += [v for spec in specs for v in spec.arguments.values() if isinstance(v, PartSpec)]
    needed = {name for spec in specs for name in wanted(lookup(spec.kind, spec.name))}
    return {
        "counts": store.counts() if store is not None and "counts" in needed else None,
        "spellings": tokenizer.spellings if tokenizer is not None and "spellings" in needed else None,
        "entity_count": store.entities if isinstance(store, TripleStore) else None,
        "documents": store.documents if isinstance(store, Store) and "documents" in needed else None,
    }


def build_part(spec: PartSpec, available: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A part of a recipe, built from its arguments and the `available` objects that its builder takes."""
    return build(lookup(spec.kind, spec.name), plain(spec.arguments), available)


def _network(recipe: Recipe, name: str, available: Mapping[str, Any]) -> nn.Module:
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
    recipe: Recipe, run: PassSpec, spec: ObjectiveSpec, network: Any, available: Mapping[str, Any],
    objectives: dict[str, nn.Module],
) -> None:
    """Build an objective unless it exists already; objectives with one head and different sets share its parameters."""
    key, head = recipe.objective_key(run, spec), recipe.head_key(run, spec)
    if key in objectives:
        return
    objective = build_part(spec.part, {**available, **of_network(network, spec.read)})
    if key != head and head in objectives:
        objective.head = objectives[head].head
    objectives[key] = objective


def of_network(network: Any, read: Mapping[str, str]) -> dict[str, Any]:
    """What an objective that reads states of a network is given of it."""
    tables = network.vector_tables
    return {"width": state_width(network, read), "table": tables.get("tokens"), "vector_tables": tables, "maps": network.maps}


def _pass(
    recipe: Recipe, entry: EntrySpec, run: PassSpec, objectives: Mapping[str, Any], rewriters: Mapping[str, Any]
) -> Pass:
    """A pass of the recipe as `Step` runs it. Recipes call an objective's scores by its head, `Step` by the objective's name."""
    def bound(read: Mapping[str, str], part: Any, set: str | None = None) -> dict[str, str]:
        return {name or part.reads[0]: _state(entry, run, path, set) for name, path in read.items()}

    take: dict[str, str | Rewrite] = {}
    for name, source in run.take.items():
        if isinstance(source, RewriterSpec):
            key = f"{run.name}:{name}"
            take[name] = Rewrite(key, bound(source.read, rewriters[key]))
        else:
            take[name] = _state(entry, run, source)
    weighted = []
    for spec in run.objectives:
        key = recipe.objective_key(run, spec)
        weighted.append(Weighted(spec.name, key, live(spec.weight), bound(spec.read, objectives[key], spec.set)))
    return Pass(run.name, run.network, run.view, take, tuple(weighted), constant_order(entry), run.grad)


def _state(entry: EntrySpec, run: PassSpec, path: str, set: str | None = None) -> str:
    """A state that is read, as `Step` calls it. If several objectives have that head, the one that predicts the same `set`."""
    full = path if "." in path else f"{run.name}.{path}"
    heads = [(o.set, f"{p.name}.{o.name}") for p, o in entry.objectives() if f"{p.name}.{o.state}" == full]
    same = [name for target_set, name in heads if target_set == set] or [name for _, name in heads]
    return same[-1] if same else path


def constant_order(entry: EntrySpec) -> str:
    """The order of an entry if it is the same for all rows, else `open`: the rows then bring their own."""
    return entry.order if isinstance(entry.order, str) and entry.order in CONSTANT else "open"


def live(value: Any) -> Any:
    """The value of a `Live` argument: a number, or for a schedule part a function of the share of the budget spent."""
    return build_part(value, {}) if isinstance(value, PartSpec) else value


def edits_of(
    recipe: Recipe, entry: EntrySpec, facts: TokenFacts, *, store: Store, tables: Mapping[str, Any], training: bool = True
) -> list[Placed]:
    """The edits of an entry, with an `order` edit for every view when the order is not the same for all rows. Without `training`,
    those that only training uses are left out."""
    needed = {name for spec in entry.exercise for name in wanted(lookup(spec.part.kind, spec.part.name))}
    source = class_of("source", recipe.sources[entry.source].name)
    available = {"tokenizer": facts, "tables": tables, "keeps_empty": source.keeps_empty}
    if "counts" in needed:
        available["counts"] = store.counts()
    used = [spec for spec in entry.exercise if training or not class_of("edit", spec.part.name).in_training_alone]
    edits = [placed(spec, available) for spec in used]
    mixed = any(entry.order == "mixed" for entry in recipe.step_entries.values())  # rows of one batch have different orders
    if mixed or not isinstance(entry.order, str) or entry.order not in CONSTANT:
        order: Any = Order(entry.order) if isinstance(entry.order, str) else build_part(entry.order, available)  # type: ignore[arg-type]
        edits += [Placed(order, view) for view in dict.fromkeys(run.view for run in entry.passes)]
    return edits


def build_feed(
    recipe: Recipe, entry: EntrySpec, store: Store, step: Step, facts: TokenFacts, *, length: int, seed: int,
    part: Literal["train", "held_out"] = "train", compiled: bool = False, share: float | None = None,
    tables: Mapping[str, Any] | None = None, training: bool = True,
) -> Feed:
    """One entry's examples over a store at one length; `share` of the documents is held out (default: the recipe's). Without
    `training`, the edits that only training uses are left out, as for the part that is held out."""
    share = recipe.training.held_out if share is None else share
    source = build_part(recipe.sources[entry.source], {"tables": tables or {}})
    takes: set[str] = set()
    for run in entry.passes:
        network: Any = step.networks[run.network]
        readers = [network, *(step.objectives[recipe.head_key(run, spec)] for spec in run.objectives)]
        names = map(fields.split, frozenset().union(*(reader.takes for reader in readers)))
        takes |= {fields.join("main", field, chosen) for _, field, chosen in names}
    edits = edits_of(recipe, entry, facts, store=store, tables=tables or {}, training=training and part == "train")
    options = source_options(source, edits, lanes=first_batch(recipe), batch=first_batch(recipe))
    arguments: dict[str, Any] = {"seed": seed, "entry": entry.name, "held_out": share, "part": part}
    return Feed(
        store.bound(source, lanes=recipe.training.lanes, options=options, **arguments),
        edits,
        length=length,
        takes=frozenset(takes),
        padding=facts.roles.get("[PAD]", 0),
        packing=recipe.training.packing,
        fixed=compiled,
        targets_multiple=64 if compiled else 1,
    )


def first_length(recipe: Recipe) -> int:
    """The length that training begins with: the first phase's, else the source's own."""
    for phase in recipe.schedule[:1]:
        if "length" in phase.set:
            return int(phase.set["length"])
    if recipe.length is None:
        raise RecipeError(
            f"{recipe.name}: no length. Set it in the source (`corpus: {{passages: {{length: 128}}}}`) or in the first phase."
        )
    return recipe.length


def build_data(
    recipe: Recipe, stores: Mapping[str, Store], step: Step, tokenizer: Tokenizer, *, seed: int, rank: int = 0,
    ranks: int = 1, compiled: bool = False, tables: Mapping[str, Any] | None = None,
) -> Data:
    """The training and held-out examples of every entry of the mixture, for one rank."""
    facts = TokenFacts.of(tokenizer)
    length = first_length(recipe)
    entry_feeds: dict[str, dict[str, Feed]] = {"train": {}, "held_out": {}}
    for part in ("train", "held_out"):
        for name, entry in recipe.entries.items():
            feed = build_feed(
                recipe, entry, stores[entry.source], step, facts, length=length, seed=seed, part=part,
                compiled=compiled, tables=tables,
            )
            if part == "train" or feed.rows(0):
                entry_feeds[part][name] = feed
    feeds = {part: step_feeds(recipe, entries, odds_of(recipe, stores), seed=seed) for part, entries in entry_feeds.items()}
    return Data(
        feeds["train"], batch=first_batch(recipe), micro_batch=recipe.training.micro_batch, rank=rank, ranks=ranks,
        workers=recipe.training.workers, held_out=feeds["held_out"],
        growth=None if recipe.training.batch_warmup is None else build_part(recipe.training.batch_warmup),
    )


def step_feeds(
    recipe: Recipe, feeds: Mapping[str, Feed], odds: Mapping[str, float], *, seed: int
) -> Mapping[str, Feed | MixedFeed]:
    """The feed of each of `recipe.step_entries`; entries that share batches become one `MixedFeed`."""
    if recipe.step_entries is recipe.entries or not feeds:
        return feeds
    return {name: MixedFeed(feeds, odds, seed=seed) for name in recipe.step_entries}


def odds_of(recipe: Recipe, stores: Mapping[str, Store]) -> dict[str, float]:
    """The odds of each entry of the mixture whose text is given.

    `by_size` means in proportion to its corpus, or to a power of that: 1/T for the temperature T. The size of a corpus is its
    tokens. Of labelled text it is the batches that its rows make, so that a round of the deck deals each entry one epoch.
    """
    batch = first_batch(recipe) if recipe.mixing == "step" else 1

    def odds(entry: EntrySpec) -> float:
        weight = {"by_size": 1.0} if entry.odds == "by_size" else entry.odds
        return float(stores[entry.source].mixture_size(batch) ** weight["by_size"] if isinstance(weight, Mapping) else weight)

    return {name: odds(entry) for name, entry in recipe.entries.items() if entry.source in stores}


def first_batch(recipe: Recipe) -> int:
    """The batch that training begins with."""
    return int(recipe.schedule[0].set.get("batch", recipe.training.batch) if recipe.schedule else recipe.training.batch)


def load_checkpoint(
    folder: Any, device: str = "cpu", *, plain: bool = False, annotate: Mapping[str, Any] | None = None
) -> Loaded:
    """Open a run folder, a fine-tuned folder, any Hugging Face folder that `cloze import` reads, or an ONNX file of cloze.

    `open_folder` reads the files; this function builds the network, its lasting changes (`cloze/changes/change.py`; none with
    `plain`), weights and heads. `annotate` replaces annotators, as recipes write them: `{"entity": {"mentions": {"file": …}}}`.

    Raises:
        CheckpointError: Something is missing, damaged or of an unknown architecture, or there is no plain form.
    """
    from cloze.checkpoint.onnx_model import load_onnx
    from cloze.checkpoint.saved_change import open_folder
    from cloze.interop.onnx_folder import folder_of, is_onnx
    from cloze.training.precision import choose_device

    if is_onnx(Path(folder)):
        return load_onnx(folder_of(Path(folder)))
    torch_device = choose_device(device)
    with naming_files(Path(folder)):
        return _opened(open_folder(Path(folder)), torch_device, plain=plain, annotate=annotate)


def _opened(imported: Any, place: torch.device, *, plain: bool, annotate: Mapping[str, Any] | None) -> Loaded:
    """The objects of what a folder holds, on a device."""
    from cloze.checkpoint.annotators import annotations_of
    from cloze.checkpoint.inference import add_inference
    from cloze.document import read_plain

    model, clock = imported.model, Clock()
    if plain and model.no_plain_form:
        raise CheckpointError(
            f"{imported.folder}: {model.no_plain_form}\n"
            "  Continue with the changed network: `network: {from: NAME}`, without a part."
        )
    annotations = annotations_of(model.annotators, annotate)
    tables = restored(model.tables, annotations.labels)
    available = {
        "vocab_size": imported.vocab_size, "clock": clock, "tables": tables or None, "counts": None, "entity_count": None,
        "documents": None, "spellings": imported.tokenizer.spellings,
    }
    network_inputs = {**available, "tables": tables_for(model.arguments, imported.folder, tables)}
    network: Any = _build_described("network", model.part, model.arguments, network_inputs, imported.folder)
    for name, arguments in () if plain else model.changes:
        load_kind("change")
        with Undrawn():
            _build_described("change", name, arguments, {}, imported.folder).apply(network)
    _load_weights(network, model.network if plain else {**model.network, **model.changed}, imported.folder)
    heads = {}
    for name, head in model.heads.items():
        head_inputs = {**available, **of_network(network, head.read), "order": model.order}
        heads[name] = _build_described("objective", head.part, head.arguments, head_inputs, imported.folder)
        _load_weights(heads[name], head.state, imported.folder)
        heads[name].to(place).eval()
    network.to(place).eval()
    clock.to(place)
    file = imported.folder / "cloze" / "recipe.yaml"
    recipe = read_plain(file) if file.is_file() else None
    add_inference(network, heads, imported.tokenizer, recipe)
    return Loaded(
        recipe=recipe, network=network, heads=heads,
        tokenizer=imported.tokenizer, reading=imported.reading, order=model.order, folder=imported.folder,
        network_arguments=model.arguments, clock=clock, imported=imported,
        reads={name: head.read for name, head in model.heads.items() if head.read},
        input_edits=tuple(
            _build_described("edit", part, arguments, available, imported.folder) for part, arguments in model.input_edits
        ),
        tables=tables, languages=model.languages, others=cache(lambda name: _further(imported.folder, name, str(place))),
        annotations=annotations,
    )


def _further(folder: Path, name: str, device: str) -> Loaded:
    """A network of the run in `folder` other than the exported one."""
    inner = network_folder(folder, name)
    if inner == folder:
        raise CheckpointError(
            f"{folder}: the network {name!r} is missing: there is no {folder / NETWORKS / name}.\n"
            "  Copy the whole folder of the run, or train again."
        )
    return load_checkpoint(inner, device)


def _build_described(kind: str, name: str, arguments: Mapping[str, Any], available: Mapping[str, Any], folder: Path) -> Any:
    """Build a part from the description in a checkpoint; one that no recipe could have produced is a `CheckpointError`."""
    builder = lookup(kind, name)
    _check_described(name, arguments_of(builder), arguments, folder)
    with Undrawn():
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
        if argument.section is not None and isinstance(value, Mapping):
            _check_described(f"{owner}.{key}", argument.fields, value, folder)
            continue
        choices = (argument.choices or names(argument.part)) if argument.part else []
        value = {value: {}} if isinstance(value, str) and value in choices else value
        if argument.part and isinstance(value, Mapping) and len(value) == 1 and (part := next(iter(value))) in choices:
            _check_described(f"{owner}.{key}.{part}", arguments_of_part(argument.part, part), value[part] or {}, folder)
            continue
        if argument.live and isinstance(value, Mapping) or argument.part and value is None and argument.default is None:
            continue
        try:
            if argument.part:
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
