"""`mixing: row`: entries that share batches, from the recipe to a trained network."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import odds_of
from cloze.corpus import Store
from cloze.recipe.load import load_recipe
from cloze.runs.run import pretrain
from tests.small_recipe import Write, message_of

MIXED = """\
name: mixed
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 300}}}
corpus: {passages: {length: 32}}
network: {transformer: {layers: 2, width: 32, heads: 2, segments: 2}}
objectives:
  - token_prediction: {tie: true}
  - relation_prediction: {set: pair}
mixing: row
mixture:
  both_sides:
    odds: 2
    exercise: [{pair: {set: pair}}, {frame: "[CLS] {A} [SEP] {B} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
  forwards: {odds: 1, order: left_to_right, exercise: [{frame: "[CLS] {A} [SEP]"}, {predict: next}]}
  backwards: {odds: 1, order: right_to_left, exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]}
training: {optimizer: adamw, rate: {linear: {peak: 1e-3}}, batch: 8, micro_batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
"""


def test_rows_of_three_orders_are_trained_in_one_batch(write: Write, little_text: Path, tmp_path: Path) -> None:
    outcome = pretrain(
        write(text=MIXED), corpus=little_text, out=tmp_path / "run", budget="4steps", seed=1, report=lambda text: None
    )
    log = [json.loads(line) for line in (outcome.folder / "cloze" / "log.jsonl").read_text().splitlines()]
    trained = [event for event in log if event["event"] == "train"][-1]
    assert set(trained["objectives"]) == {"token_prediction", "relation_prediction"}
    assert outcome.step == 4


def test_the_entries_become_one_turn_whose_objectives_are_united(write: Write) -> None:
    recipe = load_recipe(write(text=MIXED))
    assert list(recipe.step_entries) == ["main"] and recipe.step_entries["main"].order == "mixed"
    assert [o.name for o in recipe.step_entries["main"].passes[0].objectives] == ["token_prediction", "relation_prediction"]


def test_odds_by_size_are_the_tokens_of_an_entrys_corpus(write: Write) -> None:
    text = SimpleNamespace(mixture_size=lambda batch: Store.mixture_size(SimpleNamespace(size=900), batch))
    for odds, shares in (("by_size", 900.0), ("{by_size: 0.5}", 30.0)):
        path = write(("  forwards: {odds: 1,", f"  forwards: {{odds: {odds},"), text=MIXED)
        assert odds_of(load_recipe(path), {"main": text}) == {"both_sides": 2.0, "forwards": shares, "backwards": 1.0}


def test_passes_that_differ_cannot_share_batches(write: Write) -> None:
    path = write(
        ("  forwards: {odds: 1,", "  forwards: {odds: 1, passes: [{network: main, grad: false}],"), text=MIXED
    )
    assert "differ in `grad`" in message_of(lambda: load_recipe(path))


def test_two_sets_asked_of_one_head_share_its_parameters(write: Write) -> None:
    path = write(
        ("  - predict: masked", "  - predict: masked\n  - predict: {what: every, set: all}"),
        ("  - token_prediction: {transform: gelu, tie: true}",
         "  - token_prediction: {transform: gelu, tie: true, head: words}\n"
         "  - token_prediction: {transform: gelu, tie: true, head: words, set: all}"),
    )
    step = build_step(load_recipe(path), vocab_size=50)
    first, second = step.objectives["words"], step.objectives["words:all"]
    assert first.head is second.head and (first.set, second.set) == ("main", "all")


def test_rows_of_a_stream_are_neither_packed_nor_mixed(write: Write) -> None:
    streams = ("corpus: {passages: {length: 32}}", "corpus: {streams: {length: 32}}")
    assert "no mixing by row" in message_of(lambda: load_recipe(write(streams, text=MIXED)))
    path = write(("{passages: {length: 128}}", "{streams: {length: 128}}"), ("  batch: 32", "  batch: 32\n  packing: true"))
    assert "do not go together" in message_of(lambda: load_recipe(path))
