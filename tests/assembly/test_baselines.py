"""What needs no network: the loss of the constant answer, counted on a run's own examples."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cloze.assembly.baselines import baselines
from cloze.assembly.build import build_data, build_step
from cloze.assembly.corpora import trainable
from cloze.assembly.load import load_recipe
from cloze.corpus import Store
from cloze.corpus.build import build_store, train_tokenizer_from
from cloze.corpus.entropy import entropy_of
from cloze.training.baselines import Baseline, baselines_from


@pytest.fixture(scope="module")
def sample_store(little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The small text under a WordPiece of its own."""
    spec = trainable(load_recipe("bert", overrides=["text.tokenizer.size=60"]).texts["main"])
    folder = tmp_path_factory.mktemp("baselines") / "store"
    build_store([little_text], train_tokenizer_from([little_text], spec), folder, workers=1)
    return Store.open(folder)


def made(store: Store, name: str, *changes: str) -> dict[str, Baseline]:
    recipe = load_recipe(name, size="tiny", overrides=["training.batch=16", "training.held_out=0.1", *changes])
    tokenizer = store.tokenizer()
    step = build_step(recipe, vocab_size=tokenizer.size, seed=0, tokenizer=tokenizer, store=store, tables={})
    return baselines(recipe, build_data(recipe, {"main": store}, step, tokenizer, seed=0), store)


SHORT = ("schedule[0].set.length=64", "schedule[1].set.length=64")


def test_masked_tokens_have_the_entropy_of_single_tokens_and_a_fair_question_that_of_a_coin(sample_store: Store) -> None:
    found = made(sample_store, "bert", *SHORT)
    assert found.keys() == {"token_prediction", "relation_prediction"}
    asked, text = found["token_prediction"], entropy_of(sample_store)
    assert asked.chance == pytest.approx(math.log(sample_store.vocab_size)) and asked.pairs == text.pairs
    assert asked.single == pytest.approx(text.single, abs=0.35)
    assert found["relation_prediction"].single == pytest.approx(math.log(2), abs=0.1)
    assert found["relation_prediction"].pairs is None


def test_answers_that_a_pass_makes_have_no_baseline(sample_store: Store) -> None:
    assert made(sample_store, "electra-small", "corpus.passages.length=64").keys() == {"token_prediction"}


def test_a_loss_is_placed_among_its_baselines_and_the_log_keeps_them() -> None:
    known = Baseline(chance=9.0, single=7.07, pairs=5.31)
    assert known.stands(7.2) == "0.13 above single tokens (7.07), pairs 5.31"
    assert Baseline(chance=0.7, single=0.6931).stands(0.5) == "0.19 under constant answer (0.69)"
    assert baselines_from({"a": known.to_json()}) == {"a": known} and baselines_from(None) == {}
