"""Sources and exercises of a checked recipe → `Data`: the training and held-out examples of every entry, as `Feed`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cloze import fields
from cloze.batching import Data, Feed, MixedFeed
from cloze.checkpoint.build import build_part
from cloze.corpus import Store
from cloze.corpus.stores.source import Source
from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.order import CONSTANT, Order
from cloze.recipe.builders import given_names, place_edit
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EntrySpec, Recipe
from cloze.registry import lookup
from cloze.text import Tokenizer
from cloze.training.step import StepModule


def build_data(
    recipe: Recipe, stores: Mapping[str, Store], step: StepModule, tokenizer: Tokenizer, *, seed: int, rank: int = 0,
    ranks: int = 1, compiled: bool = False, tables: Mapping[str, Any] | None = None,
) -> Data:
    """The training and held-out examples of every entry of the mixture, for one rank."""
    facts = TokenFacts.of(tokenizer)
    length = first_length(recipe)
    entry_feeds: dict[str, dict[str, Feed]] = {"train": {}, "held_out": {}}
    for subset in ("train", "held_out"):
        for name, entry in recipe.entries.items():
            feed = build_feed(
                recipe, entry, stores[entry.source], step, facts, length=length, seed=seed, subset=subset,
                compiled=compiled, tables=tables,
            )
            if subset == "train" or feed.row_count(0):
                entry_feeds[subset][name] = feed
    feeds = {subset: step_feeds(recipe, entries, odds_of(recipe, stores), seed=seed) for subset, entries in entry_feeds.items()}
    return Data(
        feeds["train"], batch=first_batch(recipe), micro_batch=recipe.training.group or recipe.training.micro_batch, rank=rank,
        ranks=ranks, workers=recipe.training.workers, held_out=feeds["held_out"],
        growth=None if recipe.training.batch_warmup is None else build_part(recipe.training.batch_warmup),
    )


def build_feed(
    recipe: Recipe, entry: EntrySpec, store: Store, step: StepModule, facts: TokenFacts, *, length: int, seed: int,
    subset: Literal["train", "held_out"] = "train", compiled: bool = False, held_out_share: float | None = None,
    tables: Mapping[str, Any] | None = None, training: bool = True,
) -> Feed:
    """One entry's examples over a store at one length; `held_out_share` of the documents is held out (default: the recipe's).
    Without `training`, the edits that only training uses are left out, as for held-out text."""
    held_out_share = recipe.training.held_out if held_out_share is None else held_out_share
    source = build_part(recipe.sources[entry.source], {"tables": tables or {}})
    takes: set[str] = set()
    for pass_ in entry.passes:
        network: Any = step.networks[pass_.network]
        objectives: list[Any] = [step.objectives[recipe.head_key(pass_, spec)] for spec in pass_.objectives]
        names = network.takes.union(*(objective.takes | objective.optional for objective in objectives))
        takes |= {fields.join("main", field, chosen) for _, field, chosen in map(fields.split, names)}
    edits = edits_of(recipe, entry, facts, store=store, tables=tables or {}, training=training and subset == "train")
    # Row i of a step continues lane i of a stream; `training.lanes` are others, in which the shards of a store are read.
    options = source_options(source, edits, lanes=first_batch(recipe), batch=first_batch(recipe))
    arguments: dict[str, Any] = {"seed": seed, "entry": entry.name, "held_out": held_out_share, "subset": subset}
    return Feed(
        store.bind_source(source, lanes=recipe.training.lanes, options=options, **arguments),
        edits,
        length=length,
        takes=frozenset(takes),
        padding=facts.roles.get("[PAD]", 0),
        packing=recipe.training.packing,
        fixed=compiled,
        targets_multiple=64 if compiled else 1,
    )


def edits_of(
    recipe: Recipe, entry: EntrySpec, facts: TokenFacts, *, store: Store, tables: Mapping[str, Any], training: bool = True
) -> list[PlacedEdit]:
    """The edits of an entry, with an `order` edit for every view when the order is not the same for all rows. Without `training`,
    those that only training uses are left out."""
    needed = {name for spec in entry.exercise for name in given_names(lookup(spec.part.kind, spec.part.name))}
    source = class_of("source", recipe.sources[entry.source].name)
    available = {"tokenizer": facts, "tables": tables, "keeps_empty": source.keeps_empty}
    if "counts" in needed:
        available["counts"] = store.counts()
    used = [spec for spec in entry.exercise if training or not class_of("edit", spec.part.name).training_only]
    edits = [place_edit(spec, available) for spec in used]
    mixed = any(entry.order == "mixed" for entry in recipe.step_entries.values())  # rows of one batch have different orders
    if mixed or not isinstance(entry.order, str) or entry.order not in CONSTANT:
        order: Any = Order(entry.order) if isinstance(entry.order, str) else build_part(entry.order, available)  # type: ignore[arg-type]
        edits += [PlacedEdit(order, view) for view in dict.fromkeys(pass_.view for pass_ in entry.passes)]
    return edits


def source_options(source: Source, edits: Sequence[PlacedEdit], *, lanes: int, batch: int | None = None) -> dict[str, Any]:
    """The arguments of `source.bind` for these edits: the rows of a step, as `lanes` of a stream or as a `batch` of rows of one
    length, and the share of the passages whose second part the edits replace, where the source can put that part back."""
    options: dict[str, Any] = {}
    if source.lanes:
        options["lanes"] = lanes
    if source.of_one_length and batch is not None:
        options["batch"] = batch
    displaced = max((placed.edit.displaces for placed in edits if placed.view == "main"), default=0.0)
    if source.puts_back and displaced:
        options["put_back"] = displaced
    return options


def step_feeds(
    recipe: Recipe, feeds: Mapping[str, Feed], odds: Mapping[str, float], *, seed: int
) -> Mapping[str, Feed | MixedFeed]:
    """The feed of each of `recipe.step_entries`; entries that share batches become one `MixedFeed`."""
    if not recipe.mixes_rows or not feeds:
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


def first_batch(recipe: Recipe) -> int:
    """The batch that training begins with."""
    return int(recipe.schedule[0].set.get("batch", recipe.training.batch) if recipe.schedule else recipe.training.batch)
