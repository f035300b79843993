"""Ours → theirs → ours is the identity, over systems and sizes, and theirs → ours → theirs loses nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from cloze.interop import Card, Imported, complete, export_folder, import_folder

NAMES = (
    "bert", "bert-tanh", "bert-untied", "bert-one-segment", "roberta", "gpt2", "electra", "generator", "wide-generator",
    "classifier", "distilbert", "distilbert-classifier", "roberta-classifier", "electra-classifier", "gpt2-classifier", "tagger",
    "roberta-tagger", "electra-tagger", "gpt2-tagger",
    "bert-answers", "roberta-answers", "electra-answers", "gpt2-answers",
)  # fmt: skip


def write(folder: Path, made: Any, **more: Any) -> list[str]:
    return export_folder(
        folder, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test", step=7),
        architecture=made.architecture, **more,
    )  # fmt: skip


def assert_same(made: Any, back: Imported, *, by_name: bool) -> None:
    model = made.model()
    assert_equal_states(model.network, back.model.network)
    assert back.model.order == model.order
    assert len(back.model.heads) == len(model.heads)
    for name, head in model.heads.items():
        alike = [one for one in back.model.heads.values() if one.part == head.part]
        other = back.model.heads[name] if by_name else alike[0]
        assert other.part == head.part
        assert_equal_states(head.state, other.state)
        for argument in ("transform", "tie", "classes", "pool"):
            assert other.argument(argument) == head.argument(argument), argument
    expected = replace(model, arguments=complete(model.arguments)).flat
    for key in expected if by_name else expected.keys() - {"initial"}:
        assert back.model.flat[key] == expected[key], key


def assert_equal_states(first: Any, second: Any) -> None:
    assert sorted(first) == sorted(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.mark.parametrize("name", NAMES)
def test_writing_and_reading_gives_the_same_model(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = systems.system(name)
    assert write(tmp_path, made) == []
    back = import_folder(tmp_path)
    assert_same(made, back, by_name=True)
    assert (back.reading, back.step, back.tokenizer.hash) == (made.reading, 7, made.tokenizer.hash)
    assert back.remarks == ()


@pytest.mark.parametrize("name", NAMES)
def test_without_our_description_the_files_of_transformers_say_the_same(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    made = systems.system(name)
    write(tmp_path, made)
    shutil.rmtree(tmp_path / "cloze")
    back = import_folder(tmp_path)
    assert_same(made, back, by_name=False)
    assert back.reading == made.reading


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_identity_holds_for_every_size(systems: ModuleType, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    heads = data.draw(st.integers(1, 3))
    sizes = {"layers": data.draw(st.integers(1, 3)), "heads": heads, "width": heads * data.draw(st.integers(1, 5)),
        "feed_forward.inner": data.draw(st.integers(1, 9)), "positions.max_length": data.draw(st.integers(1, 40))}
    if name in ("electra", "generator"):
        sizes["embedding.width"] = data.draw(st.integers(1, 12))
    made = systems.system(name, seed=data.draw(st.integers(0, 99)), **sizes)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), made)
        assert_same(made, import_folder(folder), by_name=True)
        shutil.rmtree(Path(folder) / "cloze")
        assert_same(made, import_folder(folder), by_name=False)


@pytest.mark.parametrize("name", NAMES)
def test_reading_and_writing_gives_the_same_files(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = systems.system(name)
    write(tmp_path / "one", made)
    back = import_folder(tmp_path / "one")
    again = export_folder(
        tmp_path / "two", model=back.model, tokenizer=back.tokenizer, reading=back.reading,
        card=Card("test", step=7, folder="one"), architecture=back.architecture,
    )  # fmt: skip
    assert again == []
    for path in sorted(p for p in (tmp_path / "one").rglob("*") if p.is_file()):
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.read_bytes() == other.read_bytes(), path.name


def test_heads_that_transformers_does_not_know_are_kept_with_the_model(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.build(
        dict(systems.BASE), "open",
        {"mlm": systems.MASKED, "order": ("relation_prediction", {"classes": 3, "set": "order"}),
         "tags": ("token_labelling", {"classes": 5, "set": "tags"})},
        systems.tokenizer("wordpiece"), systems.BERT_READING,
    )  # fmt: skip
    remarks = write(tmp_path, made)
    assert len(remarks) == 2
    assert all("cloze/heads.safetensors" in remark for remark in remarks)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert {name.split("/")[0] for name in load_file(tmp_path / "cloze" / "heads.safetensors")} == {"order", "tags"}
    assert_same(made, import_folder(tmp_path), by_name=True)


@pytest.mark.parametrize(
    ("changes", "order", "reason"),
    [
        ({"norm": "pre", "norm.kind": "rms"}, "open", "norm.kind is 'rms'"),
        ({"positions": "none", "feed_forward": "gated"}, "open", "feed_forward is 'gated'"),
        ({}, "left_to_right", "norm is 'post'"),
    ],
)
def test_a_network_without_an_architecture_is_kept_whole_and_said(
    systems: ModuleType, tmp_path: Path, changes: dict[str, Any], order: str, reason: str
) -> None:
    made = systems.build(
        {**systems.BASE, **changes}, order, {"mlm": systems.MASKED}, systems.tokenizer("wordpiece"), systems.BERT_READING
    )
    (remark,) = write(tmp_path, made)
    assert "transformers has no architecture for this network" in remark
    assert not (tmp_path / "config.json").exists()
    back = import_folder(tmp_path)
    assert back.architecture is None
    assert_same(made, back, by_name=True)
    if order == "left_to_right":
        assert reason in remark


def test_the_shape_of_a_model_decides_its_architecture(systems: ModuleType, tmp_path: Path) -> None:
    expected = {
        "bert": "BertForPreTraining",
        "bert-tanh": "BertForMaskedLM",
        "bert-one-segment": "BertForMaskedLM",
        "roberta": "RobertaForMaskedLM",
        "gpt2": "GPT2LMHeadModel",
        "electra": "ElectraForPreTraining",
        "generator": "ElectraForMaskedLM",
        "wide-generator": "ElectraForMaskedLM",
        "classifier": "BertForSequenceClassification",
    }
    for name, cls in expected.items():
        write(tmp_path / name, systems.system(name))
        assert json.loads((tmp_path / name / "config.json").read_text())["architectures"] == [cls], name


def test_a_head_that_bert_cannot_say_but_electra_can_goes_to_electra(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.build(
        {**systems.BASE, "feed_forward.activation": "gelu_tanh"}, "open", {"mlm": systems.MASKED}, systems.tokenizer("wordpiece"),
        systems.BERT_READING,
    )  # fmt: skip
    assert write(tmp_path, made) == []
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["ElectraForMaskedLM"]


@pytest.mark.parametrize(("hint", "reason"), [
    ("gpt2", "order is 'open', transformers' GPT-2 has 'left_to_right'"), ("t5", "is no transformer"),
    ("roberta", "nsp: transformers' RoBERTa has no class with both mlm and such a head"),
])
def test_a_type_that_was_asked_for_and_not_taken_is_said_with_the_reason(
    systems: ModuleType, tmp_path: Path, hint: str, reason: str
) -> None:
    made = systems.system("bert")
    (said,) = export_folder(
        tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"), architecture=hint
    )
    assert said.startswith(f"the folder is of the type bert, not {hint}: ") and reason in said


@pytest.mark.parametrize(("changed", "words"), [
    ({"norm_epsilon": 1e-6}, "it has a norm"), ({"biases": False}, "its dense map has no bias"),
])  # fmt: skip
def test_a_classifier_with_more_or_less_in_front_of_it_than_transformers_has_stays_with_cloze(
    systems: ModuleType, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    arguments = {"classes": 3, "set": "label", "reading": "summary", "transform": {"gelu": changed}}
    made = systems.build(
        {**systems.BASE, "embedding.width": 8}, "open", {"class": ("classify", arguments)}, systems.tokenizer("wordpiece"),
        systems.BERT_READING,
    )  # fmt: skip
    (remark,) = write(tmp_path, made)
    assert words in remark
    assert_same(made, import_folder(tmp_path), by_name=True)


def test_untied_rows_of_a_narrow_generator_stay_in_clozes_own_files_with_the_reason(systems: ModuleType, tmp_path: Path) -> None:
    """transformers' untied ELECTRA has rows as wide as the embeddings, ours as wide as the layers."""
    made = systems.build(
        {**systems.BASE, "embedding.width": 8}, "open", {"mlm": ("token_prediction", {"transform": "gelu", "tie": False})},
        systems.tokenizer("wordpiece"), systems.BERT_READING, "electra",
    )  # fmt: skip
    remarks = export_folder(
        tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"), architecture="electra"
    )
    assert "its output rows are its own and as wide as the layers (16)" in remarks[0]
    back = import_folder(tmp_path)
    assert torch.equal(back.model.heads["mlm"].state["head.output.weight"], made.objectives["mlm"].head.output.weight)


def test_a_roberta_with_a_pair_head_is_said_to_become_a_bert(systems: ModuleType, tmp_path: Path) -> None:
    arguments, order, heads, kind, reading, _ = systems.SYSTEMS["roberta"]
    made = systems.build(arguments, order, {**heads, "pair": systems.NEXT}, systems.tokenizer(kind), reading)
    remarks = export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=reading, card=Card("x"))
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForPreTraining"]
    (said,) = [remark for remark in remarks if remark.startswith("the folder is of the type bert, not roberta: ")]
    assert "pair: transformers' RoBERTa has no class with both mlm and such a head" in said


def test_a_network_without_heads_is_said_to_get_an_untrained_pooling_layer(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.build(systems.BASE, "open", {}, systems.tokenizer("wordpiece"), systems.BERT_READING)
    (remark,) = export_folder(
        tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x")
    )  # fmt: skip
    assert remark.startswith("BertModel also has a pooling layer (pooler_output), which was not trained here")


def test_a_card_has_no_gaps_and_quotes_the_folder(systems: ModuleType, tmp_path: Path) -> None:
    write(tmp_path / "my bert", systems.system("bert"))
    card = (tmp_path / "my bert" / "README.md").read_text()
    assert 'AutoModelForPreTraining.from_pretrained("my bert")' in card and "cloze fill 'my bert' \"The capital" in card
    assert "FOLDER" not in card and "TEXTS.txt" not in card and "license" not in card.split("---")[1]


def test_the_norm_of_robertas_head_has_the_epsilon_of_the_folder(systems: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, systems.system("roberta"))
    shutil.rmtree(tmp_path / "cloze")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 0.25}))
    model = import_folder(tmp_path).model
    assert model.flat["norm.epsilon"] == model.heads["token_prediction"].argument("norm_epsilon") == 0.25


def test_input_edits_come_back(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    model = replace(made.model(), input_edits=(("match", {"table": "ngrams"}),))
    export_folder(tmp_path, model=model, tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    assert import_folder(tmp_path).model.input_edits == model.input_edits


def test_a_head_that_reads_another_token_than_the_class_of_transformers_is_left_out_of_it(
    systems: ModuleType, tmp_path: Path
) -> None:
    made = systems.system("classifier")
    made.reading = replace(made.reading, single="[CLS] {A} [MASK] [SEP]", summary="mask")
    (remark, *_) = write(tmp_path, made)
    assert "it reads the state of [MASK], transformers' BERT reads that of another one there" in remark
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]
    back = import_folder(tmp_path)
    assert back.reading.summary == "mask" and list(back.model.heads) == list(made.model().heads)
