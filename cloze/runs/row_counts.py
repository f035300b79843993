"""Counts the rows that a recipe reads from every shard of a store, before a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloze.checkpoint.build import build_step
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.feeds import build_data, first_length
from cloze.corpus import Store
from cloze.recipe.load import load_recipe
from cloze.runs.binds import make_tables


def count_rows(recipe: str, path: str, *, overrides: Sequence[str] = ()) -> Iterator[str]:
    """A line for each entry of a recipe with its rows, which are then known to every run on this store."""
    loaded = load_recipe(recipe, overrides=overrides)
    check_recipe(loaded)
    store = Store.open(path)
    stores, tokenizer = dict.fromkeys(loaded.sources, store), store.tokenizer()
    tables = make_tables(loaded, stores)
    step = build_step(loaded, vocab_size=tokenizer.size, device="meta", tables=tables, store=store, tokenizer=tokenizer)
    data = build_data(loaded, stores, step, tokenizer, seed=0, tables=tables)
    lengths = [int(phase.set["length"]) for phase in loaded.schedule if "length" in phase.set]
    for length in dict.fromkeys([first_length(loaded), *lengths]):
        data.change({"length": length})
        for name in data.feeds:
            yield f"{name}: {data.items(name):,} rows of up to {data.feeds[name].length} tokens in an epoch"
