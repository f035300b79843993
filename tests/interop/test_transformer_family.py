"""GPT, ALBERT, XLM, FlauBERT, NEZHA and ModernBERT through a folder, without transformers: the same model, or why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.interop import ARCHITECTURES, Card, PortableHead, PortableModel, Reading, export_folder, import_folder
from cloze.networks import Clock
from cloze.recipe.load import load_recipe
from tests.making import completed, data, network_of

SIZES: dict[str, Any] = {"layers": 4, "width": 16, "heads": 2, "feed_forward.inner": 64, "positions.max_length": 20}
CAUSAL = Reading("{A}", None, "last")
ENCODER = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
MODERN: dict[str, Any] = {**SIZES, "norm": "pre", "norm.embedding": True, "norm.first": False, "positions": "rotary",
    "attention.band.width": 8, "attention.band.dense_every": 3, "attention.biases": False, "feed_forward.biases": False,
        "norm.kind": "layer_without_biases", "feed_forward": "gated"}
SYSTEMS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "openai-gpt": ({**SIZES, "norm.embedding": False, "feed_forward.activation": "gelu_tanh"}, "left_to_right",
                   {"transform": None, "tie": True, "bias": False}),
    "albert": ({**SIZES, "embedding.width": 8, "share.weights": "all", "share.groups": 2, "segments": 2}, "open",
               {"transform": "gelu", "tie": True}),
    "xlm": ({**SIZES, "embedding.inputs": {"language": 4}}, "open", {"transform": None, "tie": True}),
    "flaubert": ({**SIZES}, "open", {"transform": None, "tie": True}),
    "nezha": ({**SIZES, "positions": "functional", "positions.limit": 7}, "open", {"transform": "gelu", "tie": True}),
    "modernbert": (MODERN, "open", {"transform": "gelu", "tie": True, "biases": False}),
    "modernbert-decoder": (MODERN, "left_to_right", {"transform": "gelu", "tie": True, "biases": False}),
}  # fmt: skip


def made(systems: ModuleType, name: str, **changed: Any) -> Any:
    arguments, order, head = SYSTEMS[name]
    parts = {"lm": ("token_prediction", head)}
    kind = {"xlm": "unigram", "flaubert": "unigram"}.get(name, "gpt2" if order == "left_to_right" else "wordpiece")
    reading = CAUSAL if order == "left_to_right" else ENCODER
    hint = name if name == "flaubert" else None  # in its shape an XLM
    return systems.build({**arguments, **changed}, order, parts, systems.tokenizer(kind), reading, hint)


def said(system: Any) -> list[str]:
    """What is remarked on every model of several languages, and nothing on others."""
    if not system.arguments.get("embedding.inputs"):
        return []
    return ["transformers adds a language's vector only where it is given `langs`; cloze reads language 0 unless told another."]


def write(folder: Path, system: Any) -> list[str]:
    return export_folder(
        folder, model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card("test"),
        architecture=system.architecture,
    )  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("alone", [False, True])
def test_a_folder_gives_back_the_model_with_and_without_what_cloze_added(
    systems: ModuleType, tmp_path: Path, name: str, alone: bool
) -> None:
    system = made(systems, name)
    assert write(tmp_path, system) == said(system)
    if alone:
        shutil.rmtree(tmp_path / "cloze")
    back = import_folder(tmp_path)
    assert back.architecture == name and list(back.remarks) == said(system) and back.model.order == system.order
    expected = completed(system.arguments)
    told = {key: value for key, value in back.model.flat.items() if not key.startswith("initial")}
    assert told == {key: expected[key] for key in told}
    for key, tensor in system.network.state_dict().items():
        assert torch.equal(back.model.network[key], tensor), key
    (head,) = back.model.heads.values()
    for key, tensor in system.objectives["lm"].state_dict().items():
        assert torch.equal(head.state[key], tensor), key


@pytest.mark.parametrize(("name", "changed", "words"), [
    ("openai-gpt", {"feed_forward.inner": 24}, "four times the width, 64"),
    ("openai-gpt", {"attention.band.width": 4}, "attention.band.width is 4"),
    ("albert", {"share.weights": "feed_forward"}, "share.weights is 'feed_forward'"),
    ("albert", {"embedding.width": 16}, "embedding.project is False"),
    ("xlm", {"embedding.inputs": {"topic": 3}}, "two or more languages"),
    ("xlm", {"feed_forward.inner": 24}, "inner is 24"),
    ("nezha", {"attention.biases": False}, "attention.biases is False"),
    ("modernbert", {"norm.kind": "layer"}, "norm.kind is 'layer'"),
    ("modernbert-decoder", {"norm.first": True}, "norm.first is True"),
    ("modernbert", {"positions": "learned"}, "positions is 'learned'"),
])  # fmt: skip
def test_what_transformers_cannot_say_is_kept_by_cloze_and_named(
    systems: ModuleType, tmp_path: Path, name: str, changed: dict[str, Any], words: str
) -> None:
    system = made(systems, name, **changed)
    (remark,) = write(tmp_path, system)
    assert "transformers has no architecture for this network" in remark
    back = import_folder(tmp_path)
    assert back.architecture is None
    for key, tensor in system.network.state_dict().items():
        assert torch.equal(back.model.network[key], tensor), key
    said = ARCHITECTURES[name].objections(completed(system.arguments), system.order, 0)
    assert any(words in reason for reason in said), said


@pytest.mark.parametrize(("name", "changed", "words"), [
    ("openai-gpt", {"afn": "relu"}, "afn"),
    ("albert", {"inner_group_num": 2}, "inner_group_num"),
    ("xlm", {"asm": True}, "asm"),
    ("xlm", {"n_langs": 0}, "n_langs is 0"),
    ("flaubert", {"pre_norm": True}, "pre_norm is True"),
    ("flaubert", {"layerdrop": 0.1}, "layerdrop is 0.1"),
    ("modernbert", {"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]},
     "at equal steps"),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
    ("modernbert", {"norm_bias": True}, "norm_bias"),
    ("modernbert-decoder", {"local_attention": None}, "local_attention is None"),
])  # fmt: skip
def test_options_that_cloze_lacks_are_refused_by_name(
    systems: ModuleType, tmp_path: Path, name: str, changed: dict[str, Any], words: str
) -> None:
    write(tmp_path, made(systems, name))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(CheckpointError, match=words):
        import_folder(tmp_path)


@pytest.mark.parametrize("name", ["modernbert", "modernbert-decoder"])
def test_a_modernbert_tells_both_versions_of_transformers_its_bases(systems: ModuleType, tmp_path: Path, name: str) -> None:
    write(tmp_path, made(systems, name, **{"positions.base": 500.0, "positions.local_base": 70.0}))
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["global_rope_theta"], config["local_rope_theta"]) == (500.0, 70.0)
    assert {kind: rope["rope_theta"] for kind, rope in config["rope_parameters"].items()} == {
        "full_attention": 500.0, "sliding_attention": 70.0,
    }  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), [
    ({"transform": {"gelu": {"norm_epsilon": 1e-12}}}, "its dense map has a bias"),
    ({"transform": {"tanh": {"norm_epsilon": 1e-12, "biases": False}}}, "its transform is tanh"),
    ({"transform": {"gelu": {"norm_epsilon": 1e-6, "biases": False}}}, "norm_epsilon is 1e-06"),
    ({"reading": "hidden"}, "it classifies tokens"),
])  # fmt: skip
def test_a_head_that_modernberts_classifier_is_not_stays_with_cloze(
    systems: ModuleType, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    like = {"set": "label", "reading": "summary", "transform": {"gelu": {"norm_epsilon": 1e-12, "biases": False}}}
    for arguments, remarks in ((like, 0), ({**like, **changed}, 1)):
        parts = {"class": ("classify", arguments)}
        system = systems.build(MODERN, "open", parts, systems.tokenizer("wordpiece"), ENCODER)
        said = write(tmp_path, system)
        assert len(said) == remarks
        back = import_folder(tmp_path).model.heads["class"]
        for key, tensor in system.objectives["class"].state_dict().items():
            assert torch.equal(back.state[key], tensor), key
    assert words in said[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_import_writes_a_recipe_of_its_kind(systems: ModuleType, tmp_path: Path, name: str) -> None:
    write(tmp_path / "source", made(systems, name))
    shutil.rmtree(tmp_path / "source" / "cloze")
    assert main(["import", str(tmp_path / "source"), "--out", str(tmp_path / "out")]) == 0
    expected = {"openai-gpt": "gpt", "albert": "albert-base", "xlm": "xlm-15-mlm", "modernbert": "modern",
                "modernbert-decoder": "quick-gpt"}  # fmt: skip
    assert load_recipe(tmp_path / "out").paper == load_recipe(expected.get(name, name)).paper


def test_a_causal_xlm_without_languages_gets_the_causal_recipe_without_them(systems: ModuleType, tmp_path: Path) -> None:
    system = made(systems, "xlm", **{"embedding.inputs": None})
    system.order = "left_to_right"
    write(tmp_path / "source", system)
    shutil.rmtree(tmp_path / "source" / "cloze")
    assert main(["import", str(tmp_path / "source"), "--out", str(tmp_path / "out")]) == 0
    recipe = load_recipe(tmp_path / "out")
    (entry,), (source,) = recipe.entries.values(), recipe.sources.values()
    assert entry.order == "left_to_right" and source.arguments.get("languages") is None
    assert not entry.exercise[0].part.arguments.get("inputs")


def test_the_card_of_a_system_that_left_transformers_says_which_version_opens_it(systems: ModuleType, tmp_path: Path) -> None:
    write(tmp_path / "old", made(systems, "nezha"))
    card = (tmp_path / "old" / "README.md").read_text()
    assert "# Version 4.57 of transformers is the last with NezhaForMaskedLM: pip install 'transformers<5'" in card
    assert not (tmp_path / "old" / "modules.json").exists() and ARCHITECTURES["transfo-xl"].until == "4.57"
    write(tmp_path / "new", made(systems, "modernbert"))
    assert "Version" not in (tmp_path / "new" / "README.md").read_text()


def test_a_transformer_xl_folder_becomes_a_checkpoint_with_its_recipe(systems: ModuleType, tmp_path: Path) -> None:
    pieces = systems.tokenizer("gpt2")
    arguments = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "feed_forward.activation": "relu",
        "memory.size": 6}
    network = network_of("transformer_xl", **arguments, vocab_size=pieces.size, clock=Clock())
    given = {"width": 16, "vocab_size": pieces.size, "table": network.token_tables["tokens"]}
    head = systems.objective("token_prediction", {"tie": True}, given)
    model = PortableModel(
        data("transformer_xl", **arguments), "left_to_right", network.state_dict(),
        {"lm": PortableHead("token_prediction", {"tie": True}, head.state_dict())}, "transformer_xl",
    )
    export_folder(tmp_path / "source", model=model, tokenizer=pieces, reading=CAUSAL, card=Card("x"))
    shutil.rmtree(tmp_path / "source" / "cloze")
    assert main(["import", str(tmp_path / "source"), "--out", str(tmp_path / "out")]) == 0
    assert load_recipe(tmp_path / "out").paper == load_recipe("transformer-xl").paper
    back = import_folder(tmp_path / "out").model.network
    assert all(torch.equal(back[name], tensor) for name, tensor in network.state_dict().items())
