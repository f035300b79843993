"""Rows that are compared within groups: a group is a micro-batch, and processes share the groups of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.batching import Cursor
from cloze.budget.fit import BudgetFacts, fit
from cloze.budget.micro_batch import require_one_process
from cloze.checkpoint.build import build_step
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.feeds import build_data
from cloze.corpus.stores.store import Store
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe
from cloze.runs.run import pretrain
from cloze.text import Tokenizer
from tests.samples import films

RECIPE = """\
name: clips
text: {tokenizer: {wordpiece: {size: 90}}}
corpus: {records: {answer: none, items: {frames: [features]}, length: 16, clips: 3}}
network:
  joint_modal:
    layers: 1
    width: 16
    heads: 2
    items: {set: frames, width: 12, layers: 1, most: 9}
    joint_layers: 1
    dropout: 0.0
exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask_items: {set: frames, rate: 0.5, zero: 1.0, keep: 0.0}
  - ask_items: {array: features, items: frames}
objectives:
  - mil_nce: {read: {query: text_mean, key: item_mean}}
  - contrast_pairs: {read: {pairs: pair_pooled}}
  - contrast_items: {set: features, numbers: 12, project: 8, read: {hidden: item_hidden}}
training:
  optimizer: adamw
  rate: {linear: {peak: 1e-3}}
  batch: 12
  packing: false
reading: {single: "[CLS] {A} [SEP]"}
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "clips.yaml"
    path.write_text(RECIPE)
    return path


def first_losses(recipe_file: Path, *changes: str) -> dict[str, float]:
    """The losses of the first step of a run."""
    out = recipe_file.parent / "-".join(["run", *(change.rpartition(".")[2] for change in changes)])
    pretrain(
        recipe_file, corpus=films(), device="cpu", budget="1steps", seed=3, out=out,
        overrides=[*changes, "training.log_every=1"], report=lambda line: None,
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in (out / "cloze/log.jsonl").read_text().splitlines()]
    return next(line["objectives"] for line in lines if line["event"] == "train")


def test_every_comparing_loss_has_fewer_wrong_answers_in_groups(recipe_file: Path) -> None:
    whole = first_losses(recipe_file)
    halves = first_losses(recipe_file, "training.group=6")
    assert {name: loss < whole[name] - 0.3 for name, loss in halves.items()} == dict.fromkeys(whole, True)


def test_a_step_is_divided_into_its_groups_and_processes_share_them(recipe_file: Path) -> None:
    recipe = load_recipe(str(recipe_file), overrides=["training.group=3"])
    store, tokenizer = Store.open(films()), Tokenizer.load(films() / "tokenizer")
    step = build_step(recipe, vocab_size=tokenizer.size)

    def pieces(rank: int, ranks: int) -> list[Any]:
        data = build_data(recipe, {"main": store}, step, tokenizer, seed=1, rank=rank, ranks=ranks)
        return data.next("main", Cursor())[0]

    alone, shared = pieces(0, 1), [*pieces(0, 2), *pieces(1, 2)]
    assert [micro.first_row for micro in alone] == [micro.first_row for micro in shared] == [0, 3, 6, 9]
    for own, theirs in zip(alone, shared, strict=True):
        assert own.batch.keys() == theirs.batch.keys()
        assert all(torch.equal(own.batch[name], theirs.batch[name]) for name in own.batch)
        assert own.batch["film"][:, 1].tolist() == [-1, 0, 1]
        assert {name: loss.total.item() for name, loss in step("main", own.batch).items()} == {
            name: loss.total.item() for name, loss in step("main", theirs.batch).items()
        }
    require_one_process(recipe, step, 4, "ddp")
    with pytest.raises(RecipeError, match=r"(?s)3 processes cannot share a step of 12 rows in .* of 3 .* training.batch=9"):
        require_one_process(recipe, step, 3, "ddp")
    with pytest.raises(RecipeError, match=r"(?s)or compare the rows within groups: --set training.group=6"):
        require_one_process(load_recipe(str(recipe_file)), step, 2, "ddp")


@pytest.mark.parametrize(("changes", "message"), [
    (["training.group=6", "training.micro_batch=3"], "training.micro_batch: the rows of a training.group are read at once"),
    (["training.group=1"], "compares each row with the others of its group, and a group has 1 row"),
    (["training.micro_batch=4"], "set training.group to 4 and omit micro_batch"),
])  # fmt: skip
def test_groups_that_cannot_be_are_refused(recipe_file: Path, changes: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){message}"):
        check_recipe(load_recipe(str(recipe_file), overrides=changes))


def test_a_fitted_batch_has_whole_groups(recipe_file: Path) -> None:
    recipe = load_recipe(str(recipe_file), overrides=["training.group=45", "training.batch=5760"])
    fitted = {change.path: change.fitted for change in fit(recipe, BudgetFacts(3e6, 10**9))}
    assert fitted["training.batch"] % 45 == 0 and 45 <= fitted["training.batch"] < 5760
