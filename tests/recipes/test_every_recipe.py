"""The contract of every named recipe: it trains on the sample texts as a user would run it, and can learn one batch by heart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cloze.batching import Cursor
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.networks import GRU, LSTM, BiLSTM, LSTMEncoderDecoder, TwoSidedLSTM, WordVectors
from cloze.recipe.load import load_recipe
from cloze.recipe.origins import checkpoint_names
from cloze.recipe.recipe import Recipe
from cloze.runs.binds import bound_paths, make_tables, open_stores, parse_binds
from cloze.runs.data_facts import with_data_facts
from cloze.text import Tokenizer
from cloze.training.step import StepModule
from tests.samples import from_samples, items_of
from tests.systems_at_tiny import covering, distinct

SAMPLES = Path(__file__).resolve().parents[2] / "cloze" / "samples"
#: Which sample a source reads, by the recipe's name or by the kind of source; English otherwise.
TEXTS = {
    "bert-wwm-zh": "chinese.txt", "bert-wwm-ext": "chinese.txt", "roberta-wwm-ext": "chinese.txt",
    "roberta-wwm-ext-large": "chinese.txt", "nezha": "chinese.txt", "nezha-large": "chinese.txt", "zen": "chinese.txt",
    "ernie": "chinese.txt", "ernie-dialogue": "chinese.txt", "ernie-2.0-zh": "chinese.txt", "ernie-2.0-large-zh": "chinese.txt",
    "k-bert": "chinese.txt", "flaubert": "french.txt", "camembert": "french.txt",
    "bertje": "dutch.txt", "robbert": "dutch.txt",
    "pairs": "english-french.tsv", "word_pairs": "english-words.tsv", "triples": "facts.tsv", "triple_texts": "facts.tsv",
    "entity_texts": "facts.tsv", "records": "english_connectives.tsv",
}
#: Networks that bear a high rate: recurrent ones, and tables that begin next to zero.
FAST = (LSTM, BiLSTM, TwoSidedLSTM, LSTMEncoderDecoder, GRU, WordVectors)
#: Recipes that have all keys and choices; `make slow` trains the others, too.
COVERING = covering(distinct(TEXTS.get))
NAMES = [
    name if name in COVERING else pytest.param(name, marks=pytest.mark.slow) for name in distinct(TEXTS.get)
]
SMALL = ["length=48", "training.batch=2", "training.held_out=0.02", "training.checkpoint_every=1000"]


def small(recipe_name: str) -> list[str]:
    """Values that make a recipe small, and the lists that its annotators read."""
    recipe = load_recipe(recipe_name)
    again = ["corpus.streams.reuse=22", "network.memory.reuse=24",
        "network.memory.size=36"]  # half of the shorter row, as in the recipe
    both = any(part.name == "streams" and part.arguments["reuse"] > 1 for part in recipe.sources.values())
    subsamples = any(edit.part.name == "subsample" for entry in recipe.entries.values() for edit in entry.exercise)
    frequent = ["exercise.subsample.threshold=1e-3"] if subsamples else []  # 1e-5 leaves nothing of a sample
    films = ["training.batch=6"] if any(part.arguments.get("clips") for part in recipe.sources.values()) else []  # two of them
    return SMALL + from_samples(recipe) + (again if both else []) + frequent + films


def binds(recipe: Recipe) -> list[str]:
    """What the command line has to name: one sample for every source and for every table that is read from a file."""
    found = []
    parts = {name: part for one in [stage.recipe for stage in recipe.stages] or [recipe] for name, part in one.sources.items()}
    for place, (name, part) in enumerate(parts.items()):
        sample = items_of(part) or TEXTS.get(part.name) or TEXTS.get(recipe.name, "english.txt")
        first = name == "main" or (place == 0 and "main" not in parts)
        found += ["--corpus", str(SAMPLES / sample)] if first else ["--bind", f"{name}={SAMPLES / sample}"]
    return found


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What recipes begin with that continue a BERT."""
    folder = tmp_path_factory.mktemp("start") / "bert"
    values = [word for value in small("bert") for word in ("--set", value)]
    text = ["--corpus", str(SAMPLES / "english.txt"), "--budget", "1steps", "--out", str(folder), "--quiet"]
    assert main(["pretrain", "bert", "--size", "tiny", *values, *text]) == 0
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_on_a_sample_as_a_user_would_run_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    recipe = load_recipe(name)
    arguments = ["pretrain", name, "--size", "tiny", "--budget", "2steps", "--out", str(tmp_path / "run")]
    for value in small(name):
        arguments += ["--set", value]
    for start in checkpoint_names(recipe):
        arguments += ["--bind", f"{start}={request.getfixturevalue('bert')}"]
    assert main([*arguments, *binds(recipe)]) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "model.safetensors").is_file() or (tmp_path / "run" / "cloze" / "network.safetensors").is_file()


Opened = tuple[Recipe, dict[str, Store], Tokenizer, dict[str, object]]
KNOWN: dict[tuple[str, ...], Opened] = {}
#: The stores of recipes that read the same files in the same way.
STORES: dict[str, tuple[dict[str, Store], Tokenizer]] = {}


def opened(name: str, folder: Path, *changes: str) -> Opened:
    """A recipe at its smallest, with the stores of its samples; they are built into `folder` by the first test that asks.

    `changes` are further values.
    """
    if (name, *changes) not in KNOWN:
        recipe = load_recipe(name, size="tiny", overrides=[*small(name), *changes])
        named = binds(recipe)
        corpus = [path for flag, path in zip(named[::2], named[1::2], strict=True) if flag == "--corpus"]
        others = [path for flag, path in zip(named[::2], named[1::2], strict=True) if flag == "--bind"]
        paths = bound_paths(recipe, corpus, parse_binds(others))
        said = {key: value for key, value in recipe.canonical().items() if key in ("text", "texts", "sources", "tables")}
        key = json.dumps([paths, said, name if recipe.stages else ""], sort_keys=True, default=str)
        if key not in STORES:
            STORES[key] = open_stores(
                recipe, paths, folder, tokenizer=None, text_format="auto", seed=0, say=lambda text: None
            )
        stores, tokenizer = STORES[key]
        KNOWN[name, *changes] = with_data_facts(recipe, stores), stores, tokenizer, make_tables(recipe, stores)
    return KNOWN[name, *changes]


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_one_batch_by_heart(name: str, tmp_path: Path) -> None:
    recipe, stores, tokenizer, tables = opened(name, tmp_path)
    store = next(iter(stores.values()))
    step = build_step(recipe, vocab_size=tokenizer.size, seed=0, tables=tables, store=store, tokenizer=tokenizer)
    data = build_data(recipe, stores, step, tokenizer, seed=0, tables=tables)
    step.eval()  # without dropout: the same batch is to be learnt, not a new one every time
    for entry in recipe.step_entries:
        (micro, *_), _ = data.next(entry, Cursor())
        optimizer, losses = _adam(step), list[float]()
        while len(losses) < 90 and not (len(losses) > 5 and max(losses[-5:]) < 0.6 * losses[0]):  # and stays there
            losses.append(_update(step, entry, micro.batch, optimizer))
        assert losses[-1] < 0.6 * losses[0], f"{entry}: {losses[0]:.3f} to {losses[-1]:.3f}"


def _adam(step: StepModule) -> torch.optim.Optimizer:
    fast = all(isinstance(network, FAST) for network in step.networks.values())
    return torch.optim.Adam([p for p in step.parameters() if p.requires_grad], lr=1e-2 if fast else 1e-3, fused=True)


def _update(step: torch.nn.Module, entry: str, batch: object, optimizer: torch.optim.Optimizer) -> float:
    """One update on the batch; returns the sum of the objectives' mean losses before it."""
    step.clock.set(seed=0, step=0, first_row=0, share=0.0)  # the same draws every time
    losses = step(entry, batch)
    counts = step.count(entry, batch)
    weights = step.weights(entry, 0.0)
    total = torch.stack([weights[n] * loss.total / max(counts[n], 1.0) for n, loss in losses.items()]).sum()
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    optimizer.step()
    return float(total.detach())
