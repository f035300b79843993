"""Token tables that start from vectors of counts: which rows, of which text, once for a run, and inside its budget."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cloze.budget.facts import BudgetFacts
from cloze.budget.fit import fit
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.corpus import Store
from cloze.corpus.counting.word_chunks import WordChunk
from cloze.corpus.sources.bound import documents_of_running_text
from cloze.engines.table_vectors import StartFromVectors, _count, _decomposed, _information
from cloze.recipe.diff import diff
from cloze.recipe.load import load_recipe, recipe_from_data
from cloze.runs.table_start import start_rows
from cloze.training.schedule.budget import Budget, Spent
from tests.small_recipe import MINE, Write, message_of, trainer

STARTED = (
    MINE.replace("heads: 2}}", "heads: 2}, start: {vectors: {contexts: 20}}}")
    .replace("length: 128", "length: 16")
    .replace("batch: 32", "batch: 4")
    .replace("layers: 2, width: 64", "layers: 1, width: 16")
)
Train = Callable[..., list[str]]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory, little_text: Path) -> Train:
    return trainer(tmp_path_factory.mktemp("recipes"), little_text, "4steps")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, train: Train) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    said = train(out, STARTED)
    assert sum(line.startswith("the table of main starts from vectors of ") for line in said) == 1
    return out


def table_of(folder: Path) -> torch.Tensor:
    network: Any = load_checkpoint(folder).network
    return network.embeddings.tokens.weight.detach()  # type: ignore[no-any-return]


def drawn_and_store(run: Path) -> tuple[torch.Tensor, Store]:
    store = Store.open(run / "cloze" / "corpus" / "main" / "store")
    step = build_step(load_recipe(run), vocab_size=store.vocab_size)
    return step.networks["main"].token_tables["tokens"].weight.detach(), store  # type: ignore[union-attr, index]


def test_rows_are_the_vectors_of_the_training_text_centred_at_the_drawn_length_and_special_tokens_keep_theirs(run: Path) -> None:
    drawn, store = drawn_and_store(run)
    vectors, known = StartFromVectors(contexts=20).of(store, documents_of_running_text(store, 0.01, "train"), width=16, seed=0)
    rows = vectors[known] - vectors[known].mean(0)
    rows *= drawn.square().sum(1).mean().sqrt() / rows.norm(dim=1, keepdim=True)
    first = table_of(run / "cloze" / "checkpoints" / "step-00000000")
    torch.testing.assert_close(first[known], rows, rtol=0, atol=1e-6)
    special = list(store.header["roles"].values())
    assert not known[special].any() and torch.equal(first[~known], drawn[~known]) and known.sum() > 12


def test_a_run_that_was_paused_equals_one_that_was_not_and_counts_once(run: Path, train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", STARTED, until=0.5)
    said = train(tmp_path / "run", STARTED)
    assert not any("starts from vectors" in line for line in said)
    (one, other) = (load_file(folder / "model.safetensors") for folder in (run, tmp_path / "run"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_rows_of_a_checkpoint_stay(run: Path, train: Train, tmp_path: Path) -> None:
    said = train(tmp_path / "run", STARTED, init=[run], budget="1steps")
    assert not any("starts from vectors" in line for line in said)
    assert torch.equal(table_of(tmp_path / "run" / "cloze" / "checkpoints" / "step-00000000"), table_of(run))


def test_the_seconds_of_the_start_are_part_of_the_budget(train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", STARTED, budget="2s")
    setup_seconds = json.loads((tmp_path / "run" / "cloze" / "run.json").read_text())["setup_seconds"]
    events = [json.loads(line) for line in (tmp_path / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
    assert events[0]["seconds"] == pytest.approx(setup_seconds, abs=1e-3) and setup_seconds > 0
    assert events[-1]["seconds"] >= 2 and events[-1]["share"] >= 1
    assert events[1]["share"] == pytest.approx((events[1]["seconds"] - setup_seconds) / (2 - setup_seconds), abs=0.01)


def test_a_run_whose_tables_are_drawn_has_spent_nothing_before_its_first_step(train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", STARTED.replace(", start: {vectors: {contexts: 20}}", ""), budget="1steps")
    assert "setup_seconds" not in json.loads((tmp_path / "run" / "cloze" / "run.json").read_text())


def test_a_share_of_a_budget_is_one_of_what_is_left_after_the_start() -> None:
    budget = Budget("seconds", 60, setup_seconds=10)
    assert [budget.share(Spent(seconds=seconds)) for seconds in (10, 35, 60)] == [0, 0.5, 1]
    assert str(budget) == "60seconds"


def test_vectors_are_the_same_each_time_and_a_limit_counts_less_text(run: Path) -> None:
    _, store = drawn_and_store(run)
    documents = documents_of_running_text(store, 0.0, "train")
    (vectors, known), (again, _) = (StartFromVectors(contexts=20).of(store, documents, width=16, seed=0) for _ in range(2))
    fewer, counted = StartFromVectors(contexts=20, tokens=5).of(store, documents, width=16, seed=0)
    assert torch.equal(vectors, again)
    assert 0 < counted.sum() < known.sum() and fewer[counted].any(1).all()


def test_the_vectors_are_left_singular_vectors_times_the_roots_of_the_singular_values() -> None:
    matrix = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
    vectors = _decomposed(matrix, 8, seed=1)
    torch.testing.assert_close(vectors @ vectors.T, left * values @ left.T, rtol=1e-4, atol=1e-5)
    assert vectors.shape == (6, 8) and not vectors[:, 6:].any()


def test_the_information_of_a_side_is_positive_and_smooths_its_contexts() -> None:
    counts = torch.tensor([[[4.0, 0.0]], [[4.0, 8.0]]])
    chance = torch.tensor([8.0, 8.0]).sqrt() / (2 * math.sqrt(8.0))
    shares = torch.tensor([[1.0, 0.0], [1 / 3, 2 / 3]])
    torch.testing.assert_close(_information(counts, 0.5)[:, 0], (shares / chance).log().clamp(min=0))


def test_counts_tell_distances_and_sides_apart() -> None:
    counts = torch.zeros(4, 4, 3)
    words = WordChunk(np.array([1, 2, 3, 1], np.int32), np.array([0, 1, 2, 2], np.int32), 0)
    _count(words, counts, torch.tensor([-1, 0, 1, 2]))
    told = {tuple(int(x) for x in cell): counts[tuple(cell)].item() for cell in counts.nonzero()}
    left, right, far_left, far_right = range(4)
    assert told == {
        (2, left, 0): 1, (1, right, 1): 1, (3, left, 1): 1, (2, right, 2): 1, (1, left, 2): 1, (3, right, 0): 1,
        (3, far_left, 0): 1, (1, far_right, 2): 1, (1, far_left, 1): 1, (2, far_right, 0): 1,
    }  # fmt: skip


def test_only_known_rows_of_a_table_are_replaced_even_if_it_is_longer_than_the_vocabulary() -> None:
    table = torch.tensor([[3.0, 4.0], [0.0, 5.0], [5.0, 0.0], [4.0, 3.0]])
    start_rows(table, torch.tensor([[9.0, 9.0], [1.0, 0.0], [3.0, 0.0]]), torch.tensor([False, True, True]))
    assert table.tolist() == [[3.0, 4.0], [-5.0, 0.0], [5.0, 0.0], [4.0, 3.0]]


def test_a_start_is_part_of_the_recipe(write: Write) -> None:
    drawn, started = load_recipe(write()), load_recipe(write(("heads: 2}}", "heads: 2, start: vectors}}")))
    assert started.exported.start is not None and started.exported.start.arguments["radius"] == 2
    again = recipe_from_data(started.canonical())
    assert again.networks == started.networks and again.hash == started.hash != drawn.hash
    assert "start" not in str(drawn.canonical()["networks"]["main"].keys())
    assert [change.path for change in diff(drawn, started)] == ["networks.main.start"]


def test_a_start_of_a_network_that_comes_from_a_stage_is_refused(write: Write) -> None:
    stages = "stages:\n  first: {}\n  second: {network: {from: first, start: vectors}}\n"
    told = message_of(lambda: load_recipe(write(text=MINE + stages)))
    assert "networks.main.start: the rows of its table come from a checkpoint or an earlier stage." in told
    assert "Leave out `start` or `from`." in told
    inherited = load_recipe(
        write(("heads: 2}}", "heads: 2}, start: vectors}"), text=MINE + "stages: {a: {}, b: {network: {from: a}}}\n")
    )
    assert [stage.recipe.exported.start is None for stage in inherited.stages] == [False, True]


def test_a_network_without_a_token_table_is_refused() -> None:
    recipe = load_recipe("fasttext")
    tree = recipe.canonical()
    tree["networks"]["main"]["start"] = "vectors"
    told = message_of(lambda: check_recipe(recipe_from_data(tree)))
    assert "networks.main.start: this network has no table with a row for each token.\n  Leave out `start`." in told


def test_a_small_budget_counts_a_part_of_a_long_text() -> None:
    changes = {change.path: change.fitted for change in fit(load_recipe("quick", size="tiny"), BudgetFacts(1e5, 10**8))}
    assert changes["networks.main.start.vectors.tokens"] == 2_000_000
    larger = {change.path for change in fit(load_recipe("quick", size="tiny"), BudgetFacts(1e7, 10**8))}
    assert "networks.main.start.vectors.tokens" not in larger
