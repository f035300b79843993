"""Folders of LoRA: peft opens what cloze writes and computes the same, and cloze opens what peft writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.saved_change import write_change
from cloze.errors import CheckpointError

from .conftest import TOKENS, publish_changed, publish_start, read_by_cloze, read_by_transformers

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]  # peft asks transformers in old ways
#: Recipe, tokenizer, the class of transformers, and which maps are updated.
CASES = [
    ("bert", "wordpiece", "BertForNextSentencePrediction", ["query", "value"]),
    ("bert", "wordpiece", "BertForNextSentencePrediction", None),
    ("smollm2-135m", "gpt2", "LlamaModel", ["query", "value", "inner"]),
    ("gpt2", "gpt2", "GPT2Model", ["query", "value", "outer"]), ("t5-small", "t5", "T5Model", ["query", "value"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def peft() -> ModuleType:
    """Imported by the worker that needs it: it takes 100 MB."""
    module: ModuleType = pytest.importorskip("peft")
    return module


@pytest.mark.parametrize(("name", "kind", "cls", "on"), CASES)
def test_peft_opens_the_updates_on_the_base_and_cloze_opens_them_again(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, on: list[str] | None, peft: ModuleType
) -> None:
    pieces = systems.tokenizer(kind)
    start = publish_start(tmp_path / "base", name, pieces)
    change = {"lora": {"rank": 3, "alpha": 5.0, "on": on}}
    run = publish_changed(tmp_path / "run", start, name, pieces, change, noise=0.1)
    write_change(run, tmp_path / "peft", base=start, peft=True)

    base = getattr(transformers, cls).from_pretrained(start)
    plain = read_by_transformers(base)
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "peft")
    expected = read_by_cloze(run)
    assert not torch.allclose(plain, expected, atol=3e-3)
    torch.testing.assert_close(read_by_transformers(opened), expected, atol=1e-4, rtol=0)
    assert torch.equal(read_by_cloze(tmp_path / "peft"), expected)

    opened.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(read_by_cloze(tmp_path / "again"), expected, atol=1e-5, rtol=0)


def test_a_folder_of_peft_that_cloze_cannot_compute_is_refused(systems: ModuleType, tmp_path: Path, peft: ModuleType) -> None:
    start = publish_start(tmp_path / "base", "bert", systems.tokenizer("wordpiece"))

    def saved(folder: str, **settings: Any) -> Path:
        base = transformers.BertModel.from_pretrained(start)
        config = peft.LoraConfig(r=2, **settings)
        peft.get_peft_model(base, config).save_pretrained(tmp_path / folder)
        return tmp_path / folder

    with pytest.raises(CheckpointError, match="init_lora_weights is 'pissa'; cloze reads folders of peft with init_lora_weights"):
        load_checkpoint(saved("pissa", target_modules=["query"], init_lora_weights="pissa"))
    with pytest.raises(CheckpointError, match="use_dora is True; cloze reads folders of peft with use_dora False"):
        load_checkpoint(saved("dora", target_modules=["query"], use_dora=True))
    with pytest.raises(CheckpointError, match="cloze updates a kind of map in every layer or in none; layers.1"):
        load_checkpoint(saved("one", target_modules=["query"], layers_to_transform=[0]))
    told = "peft saved embeddings.word_embeddings.weight of the network as well, because modules_to_save names it"
    with pytest.raises(CheckpointError, match=f"{told}.*\n  Train without it. For a larger vocabulary, save the resized base"):
        load_checkpoint(saved("rows", target_modules=["query"], modules_to_save=["word_embeddings"]))

    folder = saved("rank", target_modules=["query"])
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "r": 4}))
    told = r"self.query has rank 4, but its tensors lora_A and lora_B have the shapes \(2, 128\) and \(128, 2\); expected \(4, "
    with pytest.raises(CheckpointError, match=told):
        load_checkpoint(folder)

    other = transformers.BertConfig(**{**transformers.BertConfig.from_pretrained(start).to_dict(), "hidden_size": 64})
    transformers.BertModel(other).save_pretrained(tmp_path / "other")
    for file in start.glob("tokenizer*.json"):
        shutil.copy(file, tmp_path / "other")
    folder = saved("elsewhere", target_modules=["query"])
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": str(tmp_path / "other")}))
    told = "self.query is for a map of 128 x 128, and that of .*other has 64 x 64"
    with pytest.raises(CheckpointError, match=f"{told}.\n  base_model_name_or_path names another model: write the folder"):
        load_checkpoint(folder)


@pytest.mark.parametrize("settings", [
    {"alpha_pattern": {"^bert.encoder.layer.1.attention.self.query": 32}}, {"rank_pattern": {r".*layer\.1.*": 6}},
    {"alpha_pattern": {r"layer\.\d+.attention.self.(query|key)": 1, "query": 32}},
], ids=["anchored", "rank", "first"])  # fmt: skip
def test_ranks_and_scales_are_those_of_the_maps_whose_full_names_the_patterns_match(
    systems: ModuleType, tmp_path: Path, settings: dict[str, Any], peft: ModuleType
) -> None:
    start = publish_start(tmp_path / "base", "bert", systems.tokenizer("wordpiece"))
    base = transformers.BertForNextSentencePrediction.from_pretrained(start)
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], init_lora_weights=False, **settings)
    torch.manual_seed(0)
    opened = peft.get_peft_model(base, config).eval()
    opened.save_pretrained(tmp_path / "peft")
    expected = read_by_transformers(opened)
    torch.testing.assert_close(read_by_cloze(tmp_path / "peft"), expected, atol=1e-5, rtol=0)

    path = tmp_path / "peft" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "alpha_pattern": {"query(": 2}}))
    with pytest.raises(CheckpointError, match=r"alpha_pattern has 'query\('; expected a regular expression \(.*Copy the file"):
        load_checkpoint(tmp_path / "peft")


@pytest.mark.parametrize(("name", "kind", "cls", "task"), [
    ("bert", "wordpiece", "BertForSequenceClassification", "SEQ_CLS"),
    ("bert", "wordpiece", "BertForTokenClassification", "TOKEN_CLS"),
    ("gpt2", "gpt2", "GPT2ForSequenceClassification", "SEQ_CLS"),
    ("smollm2-135m", "gpt2", "LlamaForSequenceClassification", "SEQ_CLS"),
])  # fmt: skip
def test_the_head_that_peft_saved_opens_with_its_updates(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, task: str, peft: ModuleType
) -> None:
    start = publish_start(tmp_path / "base", name, systems.tokenizer(kind))
    base = getattr(transformers, cls).from_pretrained(start, num_labels=3, pad_token_id=0)
    maps = {"gpt2": ["c_attn"], "smollm2-135m": ["q_proj", "up_proj"]}.get(name, ["query", "value"])
    config = peft.LoraConfig(r=2, target_modules=maps, task_type=task, fan_in_fan_out=name == "gpt2")
    opened = peft.get_peft_model(base, config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in opened.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    opened.save_pretrained(tmp_path / "peft")
    loaded = load_checkpoint(tmp_path / "peft")
    assert loaded.imported is not None and not any("left out" in remark for remark in loaded.imported.remarks)
    heads: list[Any] = [one for one in loaded.heads.values() if len(one.state_dict().get("head.output.weight", ())) == 3]
    with torch.no_grad():
        states = loaded.network(want=frozenset({"hidden"}), order=loaded.order, tokens=TOKENS)["hidden"]
        pooled = states[:, 0 if name == "bert" else -1]
        found = heads[0].head.output(states) if task == "TOKEN_CLS" else heads[0].head(pooled)
        theirs = opened(input_ids=TOKENS).logits
    torch.testing.assert_close(found, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "kind", "cls"), [
    ("bert", "wordpiece", "BertModel"), ("gpt2", "gpt2", "GPT2LMHeadModel"), ("t5-small", "t5", "T5ForConditionalGeneration"),
])  # fmt: skip
def test_peft_opens_a_prompt_on_the_base_and_cloze_opens_it_again(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, peft: ModuleType
) -> None:
    pieces = systems.tokenizer(kind)
    start = publish_start(tmp_path / "base", name, pieces)
    run = publish_changed(tmp_path / "run", start, name, pieces, {"prompt": {"tokens": 4}})
    write_change(run, tmp_path / "peft", base=start, peft=True)

    base = getattr(transformers, cls).from_pretrained(start)
    plain, expected = read_by_transformers(base), read_by_cloze(run)
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "peft")
    theirs = read_by_transformers(opened)
    theirs = theirs if name == "t5-small" else theirs[:, 4:]  # the states of the prompt come first
    assert not torch.allclose(plain, expected, atol=3e-3)
    torch.testing.assert_close(theirs, expected, atol=1e-4, rtol=0)
    opened.save_pretrained(tmp_path / "again")
    assert torch.equal(read_by_cloze(tmp_path / "peft"), expected) and torch.equal(read_by_cloze(tmp_path / "again"), expected)
