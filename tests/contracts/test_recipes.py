"""The contract of every recipe (DESIGN §9): it builds at its published size, runs at tiny size, and can learn a batch."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from cloze.assembly.build import build_data, build_step
from cloze.assembly.check import check_recipe
from cloze.assembly.corpora import open_corpus
from cloze.assembly.load import load_recipe, recipe_names
from cloze.assembly.run import pretrain
from cloze.batching import Cursor

#: Spec: computed from the stated shapes; with the heads that the checkpoint of that class has.
PUBLISHED = {
    "bert": (30522, 110_106_428),
    "roberta": (50265, 124_697_433),
    "gpt2": (50257, 124_439_808),
    "electra-small": (30522, 13_549_057),
    "electra-base": (30522, 109_483_009),
}
#: Published RoBERTa holds two positions below the first and one segment, the same for every text; ours has no need of them.
UNUSED = {"roberta": 3 * 768}
SMALL = ["text.tokenizer.size=400", "training.batch=4", "training.precision=fp32", "training.held_out=0.1"]


def settings(name: str) -> list[str]:
    if name == "bert":
        return [*SMALL, "schedule[0].set.length=32", "schedule[1].set.length=48"]
    return [*SMALL, "corpus.passages.length=32"]


@pytest.mark.parametrize("name", recipe_names())
def test_the_published_number_of_parameters(name: str) -> None:
    recipe = load_recipe(name)
    vocab_size, published = PUBLISHED[name]
    step = build_step(recipe, vocab_size=vocab_size, device="meta")
    own = {id(p): p.numel() for p in step.networks[recipe.export].parameters()}
    for entry in recipe.entries.values():
        for run, wired in zip(entry.passes, step.entries[entry.name], strict=True):
            if run.network == recipe.export:
                for weighted in wired.objectives:
                    own.update({id(p): p.numel() for p in step.objectives[weighted.objective].parameters()})
    assert sum(own.values()) + UNUSED.get(name, 0) == published


@pytest.mark.parametrize("name", recipe_names())
def test_it_runs_at_tiny_size_and_leaves_a_whole_folder(name: str, little_corpus: Path, tmp_path: Path) -> None:
    outcome = pretrain(name, corpus=little_corpus, out=tmp_path / "run", budget="4steps", size="tiny",
                       overrides=settings(name), device="cpu", report=lambda text: None)
    assert outcome.finished and outcome.step == 4
    for file in ("config.json", "model.safetensors", "tokenizer.json", "README.md", "cloze/recipe.yaml", "cloze/log.jsonl"):
        assert (tmp_path / "run" / file).is_file(), file
    log = [json.loads(line) for line in (tmp_path / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
    trained = [record for record in log if record["event"] == "train"]
    needed = {"step", "tokens", "seconds", "loss", "objectives", "learning_rate", "grad_norm", "tokens_per_second", "mfu"}
    assert needed <= trained[0].keys()
    assert {"held_out", "samples"} <= {record["event"] for record in log}


@pytest.mark.parametrize("name", recipe_names())
def test_an_untrained_token_prediction_starts_at_chance_and_a_batch_can_be_learnt(
    name: str, little_corpus: Path, tmp_path: Path
) -> None:
    quiet = [*settings(name), *(f"networks.{n}.dropout=0.0" for n in load_recipe(name).networks)]
    recipe = load_recipe(name, size="tiny", overrides=quiet)
    check_recipe(recipe)
    store, tokenizer = open_corpus(recipe, [str(little_corpus)], tmp_path)
    step = build_step(recipe, vocab_size=tokenizer.size, seed=1)
    batch = build_data(recipe, {"main": store}, step, tokenizer, seed=1).next("main", Cursor())[0][0].batch
    counts = step.count("main", batch)
    optimizer = torch.optim.AdamW(step.parameters(), lr=2e-3)
    history: list[float] = []
    for _ in range(50):
        losses = {key: loss.total / counts[key] for key, loss in step("main", batch).items()}
        history.append(float(losses["token_prediction"].detach()))
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert abs(history[0] - math.log(tokenizer.size)) < 0.25
    assert history[-1] < 0.5 * history[0]
