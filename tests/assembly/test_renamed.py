"""Arguments of parts that have new names: recipes are refused with them, checkpoints of earlier versions are translated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cloze.assembly.canonical import to_yaml
from cloze.assembly.load import load_recipe
from cloze.assembly.schema import arguments_of_part
from cloze.errors import RecipeError
from cloze.exercises.units.lengths import odds_of
from cloze.interop.arguments import derived, flat
from cloze.renamed import PARTS, current_head, translated


@pytest.mark.parametrize(("path", "write"), [
    ("network.longest=64", "positions: {learned: {max_length: …}}"),
    ("network.deviation=0.1", "initial: {truncated: {std: …}}"),
    ("network.attention_dropout=0.1", "dropout: {hidden: …, attention: …}"),
])  # fmt: skip
def test_an_old_name_is_refused_with_what_to_write(path: str, write: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe("bert", overrides=[path])
    assert f"It has a new name: write {write}." in str(refused.value)


@pytest.mark.parametrize(("recipe", "path"), [
    ("skip-thought", "sources.main.sentences.longest=29"),
    ("spanbert", "objectives[1].span_boundary.longest=15"),
])  # fmt: skip
def test_an_old_name_of_a_source_or_an_objective_is_refused_with_the_new_one(recipe: str, path: str) -> None:
    with pytest.raises(RecipeError, match="It has a new name: write max_length: …"):
        load_recipe(recipe, overrides=[path])


def test_one_in_of_mask_is_refused_with_the_rate_to_write() -> None:
    with pytest.raises(RecipeError, match=r"It is gone: write rate: 0\.1667 and rounding: down for one token in 6\."):
        load_recipe("xlnet-base", overrides=["exercise[2].mask.one_in=6"])


@pytest.mark.parametrize(("old", "new"), [
    ({"rate": 0.1667, "one_in": 6, "rounding": "nearest"}, {"rate": 0.1667, "rounding": "down"}),
    ({"rate": 0.15, "one_in": 4, "rounding": "nearest"}, {"rate": 0.25, "rounding": "down"}),
    ({"rate": 0.15, "one_in": None, "rounding": "nearest"}, {"rate": 0.15, "rounding": "nearest"}),
])  # fmt: skip
def test_one_in_in_the_recipe_of_an_earlier_run_becomes_a_rate(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    data = load_recipe("xlnet-base").canonical()
    data["exercise"][2]["mask"] |= old
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "recipe.yaml").write_text(to_yaml(data))
    found = load_recipe(tmp_path).canonical()["exercise"][2]["mask"]
    assert {name: found[name] for name in new} == new


def test_put_back_and_planned_are_gone_from_recipes_and_dropped_from_those_of_earlier_runs(tmp_path: Path) -> None:
    for path in ("exercise[0].pair.planned=true", "corpus.passages.put_back=0.5"):
        with pytest.raises(RecipeError, match="It is gone: write nothing: sentences that a random second segment displaces"):
            load_recipe("bert", overrides=[path])
    today = load_recipe("bert").canonical()
    data = load_recipe("bert").canonical()
    data["exercise"][0]["pair"]["planned"] = False
    data["sources"]["main"]["passages"]["put_back"] = None
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "recipe.yaml").write_text(to_yaml(data))
    assert load_recipe(tmp_path).canonical() == today


def test_the_old_name_of_a_maximum_length_of_spans_is_refused_with_the_names_of_today() -> None:
    with pytest.raises(RecipeError, match="lengths.geometric: expected max_length, p, got longest, p"):
        odds_of({"geometric": {"p": 0.2, "longest": 10}})


@pytest.mark.parametrize(("kind", "part"), [(kind, part) for kind, parts in PARTS.items() for part in parts])
def test_no_old_name_is_an_argument_today(kind: str, part: str) -> None:
    assert not PARTS[kind][part].keys() & arguments_of_part(kind, part).keys()


def test_a_head_of_an_earlier_checkpoint_keeps_its_meaning() -> None:
    assert current_head("span_boundary", {"longest": 9, "tie": True}) == ("span_boundary", {"max_length": 9, "tie": True})


@pytest.mark.parametrize(("part", "old", "new"), [
    ("classify", {"classes": 3, "transform": "gelu", "norm_epsilon": 1e-5, "biases": False},
     {"classes": 3, "transform": {"gelu": {"norm_epsilon": 1e-5, "biases": False}}}),
    ("regress", {"transform": None, "norm_epsilon": None, "biases": True}, {"transform": None}),
    ("span_extraction", {"transform": {"relu": {}}}, {"transform": {"relu": {}}}),
    ("token_labelling", {"transform": "gelu"}, {"transform": "gelu"}),
    ("sequence_labelling", {"classes": 3, "layers": 0, "use": None, "mix": "input", "penalty": 0.001}, {"classes": 3}),
    ("mixed_classification", {"layers": 3, "use": [-1], "norm": True, "encoder": 5},
     {"encoder": 5, "mixed": {"layers": 3, "use": [-1], "norm": True}}),
    ("layer_labelling", {"mix": "both", "encoder": 5}, {"encoder": 5, "mixed": {"mix": "both"}}),
])  # fmt: skip
def test_arguments_of_an_earlier_head_move_to_the_part_or_section_they_belong_to(part: str, old: Any, new: Any) -> None:
    assert current_head(part, old) == (part, new)


@pytest.mark.parametrize(("old", "write"), [
    ({"norm_epsilon": 1e-5}, "transform: {gelu: {norm_epsilon: …}}"), ({"layers": 2}, "mixed: {layers: …}"),
])  # fmt: skip
def test_an_argument_that_moved_is_refused_in_a_recipe_with_its_new_place(old: Any, write: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(f"It has a new name: write {write}.")):
        load_recipe(bert({"sequence_labelling": old}))


def test_the_name_of_a_part_can_be_set_where_there_was_none() -> None:
    data = bert({"classify": {}})
    recipe = load_recipe(data, overrides=["objectives[0].classify.transform=relu"])
    ((_, objective),) = recipe.entries["main"].objectives()
    assert objective.part.arguments["transform"].name == "relu"
    with pytest.raises(RecipeError, match="unknown transform 'rely'. Did you mean 'relu'"):
        load_recipe(data, overrides=["objectives[0].classify.transform=rely"])


def test_the_recipe_of_an_earlier_run_opens_and_means_the_same(tmp_path: Path) -> None:
    today = load_recipe(bert(
        {"classify": {"transform": {"gelu": {"norm_epsilon": 1e-5}}, "head": "one", "weight": 0.5}},
        {"sequence_labelling": {"mixed": {"layers": 2, "use": [-1]}, "read": "layers", "set": "main"}},
    ))
    data = today.canonical()
    one, other = (next(iter(objective.values())) for objective in data["passes"][0]["objectives"])
    transform = one.pop("transform")["gelu"]
    one |= {name: transform[name] for name in ("norm_epsilon", "biases")} | {"transform": "gelu"}  # what there was
    other |= other.pop("mixed") | {"norm_epsilon": None, "biases": True}
    assert data["training"]["divide"] == "targets"
    data["training"]["divide"] = "answers"
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "recipe.yaml").write_text(to_yaml(data))
    assert load_recipe(tmp_path).canonical() == today.canonical()
    mine = tmp_path / "mine.yaml"
    mine.write_text(to_yaml(data))
    with pytest.raises(RecipeError, match="It has a new name: write mixed:"):
        load_recipe(mine)


def test_the_network_in_the_recipe_of_an_earlier_run_is_translated(tmp_path: Path) -> None:
    network = {"transformer": {**OLD, "segments": 2, "longest": 512}, "train": "all"}
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "recipe.yaml").write_text(to_yaml({**bert({"token_prediction": {}}), "networks": {"main": network}}))
    part = load_recipe(tmp_path).networks["main"].part
    assert part is not None and part.arguments["positions"].name == "rotary"
    assert part.arguments["initial"].arguments["std"] == 0.04


def test_a_part_that_the_network_does_not_have_is_refused_with_those_it_has() -> None:
    network = {"encoder_decoder": {"layers": 1, "width": 8, "heads": 2, "positions": "rotary"}}
    data = {**load_recipe("bart-base").canonical(), "networks": {"main": network}}
    with pytest.raises(RecipeError, match="positions cannot be 'rotary' here"):
        load_recipe(data)


def bert(*objectives: Any) -> dict[str, Any]:
    """The recipe with other objectives, as data."""
    data = load_recipe("bert").canonical()
    data["passes"][0]["objectives"] = list(objectives)
    return data


OLD: dict[str, Any] = {
    "layers": 2, "width": 8, "heads": 2, "inner": 12, "norm": "pre", "positions": "rotary", "longest": 64, "segments": 0,
    "embedding_width": 8, "activation": "gelu", "norm_epsilon": 1e-5, "dropout": 0.1, "attention_dropout": 0.0,
    "initial": "truncated", "deviation": 0.04, "position_deviation": None, "residual_scaling": True, "embedding_norm": True,
    "final_norm": True, "first_norm": False, "normalisation": "layer", "norm_biases": False, "biases": False, "gated": True,
    "projection": False, "inputs": None, "rotary_base": 160000.0, "rotary_local_base": 10000.0, "relative_limit": 64,
    "attention_band": 4, "dense_every": 3, "repeat": "none", "groups": 1, "silence_padding": False, "characters": None,
}


def test_the_arguments_of_an_earlier_checkpoint_keep_their_meaning() -> None:
    new = derived(flat(translated("transformer", OLD)))
    expected = {
        "feed_forward": "gated", "feed_forward.inner": 12, "feed_forward.biases": False, "attention.biases": False,
        "attention.band.width": 4, "attention.band.dense_every": 3, "norm": "pre", "norm.kind": "layer_without_biases",
        "norm.epsilon": 1e-5, "norm.embedding": True, "norm.final": True, "norm.first": False, "positions": "rotary",
        "positions.base": 160000.0, "positions.local_base": 10000.0, "positions.max_length": 64, "dropout.hidden": 0.1,
        "dropout.attention": 0.0, "initial": "truncated", "initial.std": 0.04, "initial.residual": "scaled", "share": None,
        "embedding": "table", "embedding.width": 8, "embedding.project": False,
    }
    assert {name: new[name] for name in expected} == expected


def test_further_tables_of_a_checkpoint_with_parts_move_to_its_embedding() -> None:
    today = {"layers": 2, "width": 8, "heads": 2, "feed_forward": {"plain": {}}}
    given = {**today, "inputs": {"language": 3}, "embedding": {"table": {"width": 4}}}
    assert translated("transformer", given) == {**today, "embedding": {"table": {"width": 4, "inputs": {"language": 3}}}}
    given = {**today, "inputs": {"language": 3}, "scale_embeddings": True}
    assert translated("encoder_decoder", given) == {**today, "embedding": {"scaled": True, "inputs": {"language": 3}}}
    assert translated("transformer", {**today, "inputs": None}) == today


def test_further_tables_beside_characters_are_refused() -> None:
    given = {"feed_forward": {"plain": {}}, "inputs": {"language": 3}, "embedding": {"char_cnn": {}}}
    with pytest.raises(ValueError, match="reads words by their characters"):
        translated("transformer", given)


def test_the_arguments_of_today_are_not_translated() -> None:
    new = {"layers": 2, "width": 8, "heads": 2, "norm": {"pre": {}}}
    assert translated("transformer", new) == new
