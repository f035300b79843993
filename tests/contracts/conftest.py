"""Every named recipe at its smallest, over the sample texts: opened once, whichever contract asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cloze.batch import Batch
from cloze.batching import Cursor, Feed
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data, build_feed
from cloze.checkpoint.publish import Publisher
from cloze.corpus import Store
from cloze.exercises import TokenFacts
from cloze.recipe.load import load_recipe
from cloze.recipe.recipe import EntrySpec, Recipe
from cloze.runs.binds import make_tables, open_stores
from cloze.runs.data_facts import with_data_facts
from cloze.text import Tokenizer
from cloze.training.step import StepModule
from tests.samples import from_samples, items_of

SAMPLES = Path(__file__).resolve().parents[2] / "cloze" / "samples"
#: The sample of a source that does not read running text.
OTHERS = {
    "pairs": "english-french.tsv", "word_pairs": "english-words.tsv", "triples": "facts.tsv", "triple_texts": "facts.tsv",
    "entity_texts": "facts.tsv", "records": "english_connectives.tsv",
}
CHINESE = {
    "bert-wwm-zh", "bert-wwm-ext", "roberta-wwm-ext", "roberta-wwm-ext-large", "nezha", "nezha-large", "zen", "ernie", "k-bert",
    "ernie-dialogue", "ernie-2.0-zh", "ernie-2.0-large-zh",
}
LENGTH = 48


@dataclass(frozen=True)
class System:
    """A recipe at tiny size with what it reads."""

    recipe: Recipe
    stores: Mapping[str, Store]
    tables: Mapping[str, Any]
    tokenizer: Tokenizer

    def step(self) -> StepModule:
        """Its networks and heads, untrained and without dropout."""
        step = build_step(
            self.recipe, vocab_size=self.tokenizer.size, seed=0, tables=self.tables, store=next(iter(self.stores.values())),
            tokenizer=self.tokenizer,
        )
        step.eval()
        step.clock.set(seed=0, step=0, first_row=0, share=0.0)
        return step

    def batches(self, step: StepModule) -> dict[str, Batch]:
        """The first batch of every turn."""
        data = build_data(self.recipe, self.stores, step, self.tokenizer, seed=0, tables=self.tables)
        return {entry: data.next(entry, Cursor())[0][0].batch for entry in self.recipe.step_entries}

    def feed(self, entry: EntrySpec, step: StepModule, length: int = LENGTH) -> Feed:
        """All examples of an entry."""
        return build_feed(
            self.recipe, entry, self.stores[entry.source], step, TokenFacts.of(self.tokenizer), length=length, seed=0,
            held_out_share=0.0, tables=self.tables,
        )


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., System]:
    """A named recipe at its smallest; `changes` are further `--set`s. Recipes with the same text share their stores."""
    opened: dict[str, tuple[Mapping[str, Store], Tokenizer]] = {}

    @cache
    def open_(name: str, *changes: str) -> System:
        published = load_recipe(name)
        values = [*from_samples(published), f"length={LENGTH}", "training.batch=16", "training.held_out=0.0", *changes]
        runs = [published, *(stage.recipe for stage in published.stages)]
        values += ["training.keep_best=null"] * any(run.training.keep_best is not None for run in runs)  # it needs held-out text
        values += ["network.tune=true"] * any(part.name == "vectors" for part in published.tables.values())
        grows = published.training.batch_warmup is not None
        values += ["training.batch_warmup.linear.start=1.0"] * grows  # the whole batch at once
        first = next(iter(published.sources.values()))
        if first.arguments.get("reuse", 0) > 1:  # half of the shorter row, as in the recipe
            values += ["corpus.streams.reuse=22", "network.memory.reuse=24", "network.memory.size=36"]
        recipe = load_recipe(name, size="tiny", overrides=values)
        sample = "chinese.txt" if name in CHINESE else "english.txt"
        paths = {
            source: [str(SAMPLES / (items_of(part) or OTHERS.get(part.name, sample)))] for source, part in recipe.sources.items()
        }
        text = {key: value for key, value in recipe.canonical().items() if key in ("text", "texts")}
        key = json.dumps([paths, text, name if recipe.stages else ""], sort_keys=True)  # stages have texts of their own
        if key not in opened:
            opened[key] = open_stores(
                recipe, paths, tmp_path_factory.mktemp(name), tokenizer=None, text_format="auto", seed=0, say=lambda line: None
            )
        stores, tokenizer = opened[key]
        return System(with_data_facts(recipe, stores), stores, make_tables(recipe, stores), tokenizer)

    return open_


@pytest.fixture(scope="session")
def start(system: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`start("bert")`: the folder of that recipe's checkpoint at its smallest, with random weights."""
    made: dict[str, Path] = {}

    def export(name: str) -> Path:
        if name not in made:
            own = system(name)
            made[name] = tmp_path_factory.mktemp("start") / name
            Publisher(own.recipe, own.tokenizer, own.tables)(made[name], own.step().state_dict(), 0)
        return made[name]

    return export
