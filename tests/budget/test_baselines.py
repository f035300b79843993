"""What needs no network: the loss of the constant prediction, counted on a run's own examples."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cloze.budget.baselines import baselines
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data
from cloze.checkpoint.uses import usable
from cloze.corpus import Store
from cloze.corpus.stores.build import build_store, train_tokenizer_from
from cloze.corpus.stores.entropy import entropy_of
from cloze.recipe.load import load_recipe
from cloze.recipe.parts import class_of, names
from cloze.reports.about_run import about_run
from cloze.reports.run import read_run
from cloze.reports.sections import loss_text, worth
from cloze.runs.corpora import trainable
from cloze.runs.run import pretrain
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
    return baselines(recipe, build_data(recipe, {"main": store}, step, tokenizer, seed=0), store, step)


def test_objectives_over_tokens_are_those_that_the_frequencies_of_tokens_are_a_baseline_of() -> None:
    found = [class_of("objective", name) for name in names("objective")]
    assert {one.__name__ for one in found if one.of_tokens and one.likelihood} == {
        "AdaptivePrediction", "HierarchicalSoftmax", "SampledPrediction", "SpanBoundary", "TokenPrediction",
    }  # fmt: skip


SHORT = ("schedule[0].set.length=64", "schedule[1].set.length=64")


def test_masked_tokens_have_the_entropy_of_single_tokens_and_a_fair_question_that_of_a_coin(sample_store: Store) -> None:
    found = made(sample_store, "bert", *SHORT)
    assert found.keys() == {"token_prediction", "relation_prediction"}
    asked, text = found["token_prediction"], entropy_of(sample_store)
    assert asked.chance == pytest.approx(math.log(sample_store.vocab_size)) and asked.pairs == text.pairs
    assert asked.single == pytest.approx(text.single, abs=0.35)
    assert found["relation_prediction"].single == pytest.approx(math.log(2), abs=0.1)
    assert found["relation_prediction"].pairs is None


def trained(little_text: Path, folder: Path, name: str, *changes: str) -> tuple[dict[str, Baseline], list[str]]:
    """Three steps at a rate of almost nothing: the baselines of the run, and what it said of them."""
    said: list[str] = []
    rate = load_recipe(name).training.rate.name
    sets = [f"training.rate.{rate}.peak=1e-9", "training.held_out=0.1", "training.evaluate_every=0.34", "training.batch=8"]
    run = {"size": "tiny", "overrides": [*sets, *changes], "fit": False, "report": said.append, "device": "cpu"}
    pretrain(name, corpus=little_text, out=folder / name, budget="3steps", **run)  # type: ignore[arg-type]
    log = [json.loads(line) for line in (folder / name / "cloze" / "log.jsonl").read_text().splitlines()]
    return baselines_from(log[0]["baselines"]), said


def test_a_loss_that_is_no_likelihood_has_no_baseline(little_text: Path, tmp_path: Path) -> None:
    found, said = trained(little_text, tmp_path, "context2vec", "training.engine=loop", "text.tokenizer.min_count=1")
    assert found == {} and not any("learned nothing" in text for text in said)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt2", ["corpus.passages.length=64", "text.tokenizer.size=300"]),
        ("t5-small", ["corpus.passages.length=64", "text.tokenizer.size=200"]),
        ("xlnet-base", ["corpus.streams.length=64", "corpus.streams.reuse=29", "network.memory.reuse=32",
            "network.memory.size=32",
                        "text.tokenizer.size=60"]),
    ],
)
def test_causal_span_and_permuted_tokens_are_compared_with_single_tokens_and_a_run_that_learns_nothing_says_so(
    little_text: Path, tmp_path: Path, name: str, changes: list[str]
) -> None:
    found, said = trained(little_text, tmp_path, name, *changes)
    known = found["token_prediction"]
    assert known.pairs is not None and known.single < known.chance
    (told,) = [text for text in said if "has learned nothing yet" in text]
    assert told.startswith("token_prediction has learned nothing yet: after ")
    assert f"predicting the frequencies of single tokens gives {known.single:.2f}" in told


TWO_TURNS = """\
name: turns
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 60}}}
corpus: {passages: {length: 32}}
network: {transformer: {layers: 1, width: 16, heads: 2}}
objectives: [token_prediction: {}]
mixing: step
mixture:
  masked: {order: open, exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]}
  onward: {order: left_to_right, exercise: [{frame: "[CLS] {A} [SEP]"}, {predict: next}]}
training: {optimizer: adamw, rate: {linear: {peak: 1e-9}}, batch: 8, held_out: 0.1, evaluate_every: 0.34}
reading: {single: "[CLS] {A} [SEP]"}
"""


def test_the_entries_of_a_mixture_are_compared_each_by_its_name_in_the_run_its_warning_and_its_report(
    little_text: Path, tmp_path: Path
) -> None:
    (tmp_path / "turns.yaml").write_text(TWO_TURNS, encoding="utf-8")
    said: list[str] = []
    out = tmp_path / "run"
    pretrain(tmp_path / "turns.yaml", corpus=little_text, out=out, budget="6steps", report=said.append, device="cpu")
    names = {"masked/token_prediction", "onward/token_prediction"}
    run = read_run(out)
    assert run.baselines.keys() == names
    (told,) = [text for text in said if "has learned nothing yet" in text]
    assert told.partition(" has learned")[0] in names
    assert {line.split()[0] for line in said[-1].splitlines()[1:]} == names
    assert {name for name, _, place in worth(run) if "single tokens" in place} == names
    shown = next(fact.value for fact in about_run(out, usable).facts if fact.name == "held_out_loss")
    assert shown.keys() == names and all(one["baseline"] is not None for one in shown.values())


def test_the_report_compares_replaced_tokens_with_always_saying_that_none_was(little_text: Path, tmp_path: Path) -> None:
    found, _ = trained(little_text, tmp_path, "electra-small", "corpus.passages.length=64", "text.tokenizer.size=60")
    assert found.keys() == {"token_prediction"}
    run = read_run(tmp_path / "electra-small")
    share = run.held_out[-1]["metrics"]["token_labelling.positive"]
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    loss, known = run.worth()["token_labelling"]
    assert known is not None and known.single == pytest.approx(entropy) and known.pairs is None
    assert ("token_labelling", loss_text(loss), known.describe(loss)) in worth(run)


def test_answers_that_a_pass_makes_have_no_baseline(sample_store: Store) -> None:
    assert made(sample_store, "electra-small", "corpus.passages.length=64").keys() == {"token_prediction"}


def test_a_loss_is_placed_among_its_baselines_and_the_log_keeps_them() -> None:
    known = Baseline(chance=9.0, single=7.07, pairs=5.31)
    assert known.describe(7.2) == "0.13 nats above single tokens (7.07); pairs 5.31"
    assert Baseline(chance=0.7, single=0.6931).describe(0.5) == "0.19 nats below constant prediction (0.69)"
    assert baselines_from({"a": known.to_json()}) == {"a": known} and baselines_from(None) == {}
