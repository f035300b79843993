"""Starts the token tables of networks with a `start`, from the training text of a run, before its first step."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from cloze.budget.fit import short
from cloze.checkpoint.build import build_part
from cloze.corpus import Store
from cloze.corpus.sources.bound import documents_of_running_text
from cloze.errors import RecipeError, Say
from cloze.recipe.recipe import EntrySpec, Recipe
from cloze.training.step import StepModule


def start_tables(
    step: StepModule,
    recipe: Recipe,
    stores: Mapping[str, Store],
    *,
    dev_stores: Collection[str],
    origins: Collection[str],
    seed: int,
    say: Say,
) -> float:
    """Start the rows of token tables as the recipe says; returns the seconds that it took.

    Only text that the run trains on is counted: all of a source that has a text of its own `dev_stores` for held-out losses. The
    networks `origins` have the rows of a checkpoint, which stay.
    """
    seconds, began = 0.0, time.perf_counter()
    for name, network in recipe.networks.items():
        if network.start is None or name in origins:
            continue
        entry = _first_entry(recipe, name)
        store = stores[entry.source].sample
        if not isinstance(store, Store) or store.pairs:
            raise RecipeError(
                f"networks.{name}.start: counts the tokens of running text, and the source {entry.source!r} has none. "
                "Leave out `start`."
            )
        table: Any = step.networks[name]
        weight = table.token_tables["tokens"].weight.data
        documents = documents_of_running_text(store, 0.0 if entry.source in dev_stores else recipe.training.held_out, "train")
        vectors, vector_mask = build_part(network.start).of(store, documents, width=weight.shape[1], seed=seed)
        start_rows(weight, vectors, vector_mask)
        seconds = time.perf_counter() - began
        say(f"the table of {name} starts from vectors of {int(vector_mask.sum()):,} ids ({seconds:.1f} s)")
    return seconds


def described_starts(recipe: Recipe, stores: Mapping[str, Store], *, origins: Collection[str]) -> Iterator[str]:
    """What `start_tables` will do, a line for each table."""
    for name, network in recipe.networks.items():
        if network.start is not None and name not in origins:
            size = stores[_first_entry(recipe, name).source].sample.size
            tokens = min(network.start.arguments.get("tokens", size), size)
            yield f"the table of {name} starts from vectors: {short(tokens)} tokens are counted first, in the time of the budget"


def start_rows(table: torch.Tensor, vectors: torch.Tensor, mask: torch.Tensor) -> None:
    """Replace rows of a drawn table (V, D) by those of `mask`, centred, each of the root mean square length of drawn rows."""
    length = table.square().sum(1).mean().sqrt()
    rows = vectors[mask] - vectors[mask].mean(0)
    rows *= length / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    table[: len(vectors)][mask] = rows.to(table)


def _first_entry(recipe: Recipe, name: str) -> EntrySpec:
    """The first entry in which a network reads."""
    return next(entry for entry in recipe.entries.values() if any(run.network == name for run in entry.passes))
