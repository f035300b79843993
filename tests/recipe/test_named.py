"""The named recipes: legal at every size, of the published number of parameters, different where the papers differ."""

from __future__ import annotations

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.recipe.diff import ABSENT, diff
from cloze.recipe.family import outline, outlines
from cloze.recipe.load import load_recipe, pretraining_recipe_names, recipe_names


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("size", [None, "tiny"])
def test_every_recipe_is_legal_at_every_size(name: str, size: str | None) -> None:
    checked = check_recipe(load_recipe(name, size=size))
    assert checked.recipe.name == name and all(count > 0 for count in checked.networks.values())


def test_every_recipe_says_where_it_is_from_and_which_option_was_taken() -> None:
    for name in pretraining_recipe_names():
        recipe = load_recipe(name)
        assert recipe.name == name and recipe.paper and recipe.notes


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bert", 110_106_428),  # google-research/bert with both heads
        ("roberta", 124_697_433 - 2 * 768 - 768),  # without two unused positions and the table of one segment
        ("gpt2", 124_439_808),
    ],
)
def test_the_number_of_parameters_is_the_published_one(name: str, published: int) -> None:
    checked = check_recipe(load_recipe(name))
    assert sum(checked.networks.values()) + sum(checked.heads.values()) == published


@pytest.mark.parametrize(("name", "published"), [("electra-small", 13_549_057), ("electra-base", 109_483_009)])
def test_the_discriminator_has_the_published_number_of_parameters(name: str, published: int) -> None:
    checked = check_recipe(load_recipe(name))
    assert checked.networks["discriminator"] + checked.heads["token_labelling"] == published


def test_roberta_differs_from_bert_where_the_paper_says() -> None:
    changes = {c.path: (c.left, c.right) for c in diff(load_recipe("bert"), load_recipe("roberta"))}
    assert changes["exercise.pair"] == ({"pair": {}}, ABSENT)
    assert changes["objectives.relation_prediction"] == ({"relation_prediction": {}}, ABSENT)
    assert changes["texts.main.tokenizer"] == ("wordpiece", "byte_bpe")
    assert changes["sources.main.across_documents"] == (False, True)
    assert changes["training.batch"] == (256, 8192)
    assert changes["training.clip"] == (1.0, None)
    assert changes["training.optimizer.betas"] == ([0.9, 0.999], [0.9, 0.98])
    sections = {path.partition(".")[0] for path in changes}
    assert sections == {"texts", "sources", "networks", "reading", "exercise", "objectives", "schedule", "training"}
    assert {path for path in changes if path.startswith("networks")} == {
        "networks.main.segments", "networks.main.norm.epsilon", "networks.main.initial",
    }
    assert not any(path.startswith("exercise.corrupt") for path in changes)


def test_a_difference_has_a_mirror_image_and_a_recipe_none_to_itself() -> None:
    for a, b in (("bert", "electra-small"), ("gpt2", "roberta")):
        left, right = load_recipe(a), load_recipe(b)
        there = {c.path: (c.left, c.right) for c in diff(left, right)}
        back = {c.path: (c.right, c.left) for c in diff(right, left)}
        assert there == back
        assert diff(left, load_recipe(a)) == []


def test_what_only_one_recipe_writes_stands_on_its_side() -> None:
    changes = {c.path: (c.left, c.right) for c in diff(load_recipe("bert"), load_recipe("t5-base"))}
    assert changes["networks.main.segments"] == (2, ABSENT)
    assert changes["networks.main.attention.scaled"] == (ABSENT, False)


def test_electra_has_one_more_pass_than_bert() -> None:
    paths = [c.path for c in diff(load_recipe("bert"), load_recipe("electra-base"))]
    assert "passes.generator" in paths and "passes.discriminator" in paths and "tie" in paths


def test_an_outline_says_the_same_as_the_recipe() -> None:
    assert [o.name for o in outlines()] == pretraining_recipe_names()
    for name in recipe_names():
        recipe, short = load_recipe(name), outline(name)
        entries = recipe.entries.values()
        assert short.exercise == tuple(dict.fromkeys(edit.part.name for entry in entries for edit in entry.exercise))
        assert short.objectives == tuple(dict.fromkeys(o.part.name for entry in entries for _, o in entry.objectives()))
        orders = [entry.order if isinstance(entry.order, str) else entry.order.name for entry in entries]
        assert short.order == ", ".join(dict.fromkeys(orders)) and len(short.networks) == len(recipe.networks)
    assert outline("bert").authors == "Devlin et al., 2019"
    assert outline("electra-small").networks == ("generator: transformer 12x64", "discriminator: transformer 12x256")
