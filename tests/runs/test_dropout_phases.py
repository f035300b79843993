"""Dropouts that a phase of the schedule sets: found by their paths, checked beforehand, followed by every layer they concern."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cloze.checkpoint.build import build_step
from cloze.recipe.load import load_recipe
from cloze.runs.phasing import phases_of, with_dropouts
from cloze.runs.run import pretrain
from cloze.training.tensors import read_tensors
from tests.small_recipe import Write, message_of

TRAINING = "training:\n  optimizer: adamw"


def schedule(*phases: str) -> tuple[str, str]:
    return TRAINING, "schedule: [" + ", ".join(phases) + "]\n" + TRAINING


def rates(path: Path | str, **options: object) -> list[dict[str, float]]:
    recipe = load_recipe(path, **options)  # type: ignore[arg-type]
    step = build_step(recipe, vocab_size=50)
    phases = with_dropouts(phases_of(recipe), recipe, step, vocab_size=50)
    return [{name: rate for name, rate in phase.rates.items() if not name.endswith("active_dropout")} for phase in phases]


@pytest.mark.parametrize("path", ["network.dropout", "networks.main.dropout", "networks.main.transformer.dropout"])
def test_a_phase_sets_a_networks_dropout_and_what_follows_from_it(write: Write, path: str) -> None:
    usual, none = rates(write(schedule("{share: 0.9}", f"{{share: 0.1, set: {{{path}: 0.0}}}}")))
    assert set(usual.values()) == {0.1} and set(none.values()) == {0.0} and usual.keys() == none.keys()
    assert "networks.main.layers.1.attention.dropout" in usual  # attention_dropout is not given: that of dropout


def test_dropouts_are_set_one_by_one_and_hold_for_their_phase_only(write: Write) -> None:
    phases = ["{share: 0.5, set: {network.dropout.attention: 0.25}}", "{share: 0.3, set: {length: 64}}", "{share: 0.2}"]
    first, *rest = rates(write(schedule(*phases)))
    attention = {f"networks.main.layers.{number}.attention.dropout" for number in (0, 1)}
    assert {name for name, rate in first.items() if rate == 0.25} == attention
    assert all(set(later.values()) == {0.1} for later in rest)


def test_a_heads_dropout_can_be_set_too(write: Write) -> None:
    head = ("token_prediction: {transform: gelu, tie: true}", "token_labelling: {set: masked, dropout: 0.2}")
    usual, changed = rates(write(head, schedule("{share: 0.5}", "{share: 0.5, set: {objectives.token_labelling.dropout: 0.4}}")))
    assert {name: (usual[name], rate) for name, rate in changed.items() if rate != usual[name]} == {
        "objectives.token_labelling.head.dropout": (0.2, 0.4)
    }


def test_odds_that_another_phase_sets_are_no_dropouts(write: Write) -> None:
    objectives = "objectives:\n  - token_prediction: {transform: gelu, tie: true}\n"
    mixture = objectives + "mixing: step\nmixture: {a: {odds: 2}, b: {odds: 1}}\n"
    phases = "{share: 0.9, set: {odds.a: 1}}", "{share: 0.1, set: {odds.b: 3, network.dropout: 0.0}}"
    usual, none = rates(write((objectives, mixture), schedule(*phases)))
    assert set(usual.values()) == {0.1} and set(none.values()) == {0.0}


@pytest.mark.parametrize("followed", ["", "network.dropout.output: 0.3, "])
def test_a_dropout_that_no_layer_follows_is_named_even_if_another_is_followed(write: Write, followed: str) -> None:
    lstm = ("{transformer: {layers: 2, width: 64, heads: 2}}", "{lstm: {layers: 1, width: 64}}")
    order = ("exercise:", "order: left_to_right\nexercise:"), ("  - mask: {rate: 0.15}\n  - corrupt: {}\n", "")
    phases = schedule("{share: 0.5}", f"{{share: 0.5, set: {{{followed}network.dropout.hidden: 0.3}}}}")
    path = write(lstm, *order, ("predict: masked", "predict: next"), phases)
    assert message_of(lambda: rates(path)) == (
        "schedule[1].set: network.dropout.hidden: no layer of mine reads this value during training.\n"
        "  Write it among the part's own arguments."
    )


def test_without_dropouts_in_the_schedule_nothing_is_followed() -> None:
    recipe = load_recipe("bert", size="tiny")
    assert [phase.rates for phase in with_dropouts(phases_of(recipe), recipe, torch.nn.Module())] == [{}, {}]  # type: ignore[arg-type]


@pytest.mark.parametrize(("change", "told"), [
    ("network.droput: 0.0", "Did you mean 'dropout'"),
    ("networks.mian.dropout: 0.0", "networks.mian"),
    ("network.dropout: none", "networks.main.transformer.dropout: got \"none\", expected a number"),
    ("network.layers: 6", "a phase cannot set this value.\n  It may set: length, batch, odds.<entry>, networks.<name>.train"),
])  # fmt: skip
def test_what_a_phase_cannot_set_is_told_when_the_recipe_is_read(write: Write, change: str, told: str) -> None:
    path = write(schedule("{share: 0.9}", f"{{share: 0.1, set: {{{change}}}}}"))
    said = message_of(lambda: load_recipe(path))
    assert told in said and said.startswith("mine.yaml:12: ")  # the line of the schedule


def test_a_rate_that_no_dropout_can_have_is_told_before_training(write: Write) -> None:
    path = write(schedule("{share: 0.9}", "{share: 0.1, set: {network.dropout: 1.5}}"))
    told = "transformer.dropout: got 1.5, expected a number of 0 or more and below 1 or a mapping of hidden, attention."
    assert told in message_of(lambda: load_recipe(path))


def test_a_run_without_dropout_at_its_end_equals_one_whose_dropout_never_was_until_there(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    small = ("{size: 8000}", "{size: 300}"), ("length: 128", "length: 32"), ("batch: 32", "batch: 4")
    network = ("heads: 2", "heads: 2, dropout: 0.0"), schedule("{share: 0.5}", "{share: 0.5, set: {network.dropout: 0.3}}")

    def trained(name: str, *changes: tuple[str, str]) -> list[dict[str, torch.Tensor]]:
        pretrain(write(*small, *changes), corpus=little_text, out=tmp_path / name, budget="4steps", seed=1,
                 overrides=["training.keep_steps=[2]", "training.checkpoint_every=2"], report=lambda text: None)
        folder = tmp_path / name / "cloze" / "checkpoints"
        return [read_tensors(folder / f"step-{n:08d}" / "state" / "parameters.safetensors") for n in (2, 4)]

    with_phases, without = trained("phases", *network), trained("never", network[0])
    same = [all(torch.equal(a[name], b[name]) for name in a) for a, b in zip(with_phases, without, strict=True)]
    assert same == [True, False]
