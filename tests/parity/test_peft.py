"""Folders of LoRA: peft opens what cloze writes and computes the same, and cloze opens what peft writes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.assembly.beginning import load_origins
from cloze.assembly.build import build_step, load_checkpoint
from cloze.assembly.load import load_recipe
from cloze.assembly.publish import Publisher
from cloze.assembly.saved_change import write_change
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import is_added
from cloze.networks.network import TokenSequence

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]  # peft asks transformers in old ways
#: Recipe, tokenizer, the class of transformers, and which maps are updated.
CASES = [
    ("bert", "wordpiece", "BertForNextSentencePrediction", ["query", "value"]),
    ("bert", "wordpiece", "BertForNextSentencePrediction", None),
    ("gpt2", "gpt2", "GPT2Model", ["query", "value", "outer"]), ("t5-small", "t5", "T5Model", ["query", "value"]),
]  # fmt: skip


def last(output: Any) -> torch.Tensor:
    """The last states of a model of transformers, of the decoder where there is one."""
    states = output.get("decoder_hidden_states", None)
    found: torch.Tensor = (output.hidden_states if states is None else states)[-1]
    return found


@pytest.mark.parametrize(("name", "kind", "cls", "on"), CASES)
def test_peft_opens_the_updates_on_the_base_and_cloze_opens_them_again(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, on: list[str] | None
) -> None:
    pieces, start = systems.tokenizer(kind), load_recipe(name, size="tiny")
    Publisher(start, pieces)(tmp_path / "base", build_step(start, vocab_size=pieces.size).state_dict(), 0)
    networks = {"main": {"from": "start", "change": [{"lora": {"rank": 3, "alpha": 5.0, "on": on}}]}}
    recipe = load_recipe({**start.canonical(), "networks": networks}, checkpoints={"start": tmp_path / "base"})
    step = build_step(recipe, vocab_size=pieces.size, filled=frozenset({"main"}))
    load_origins(step, recipe, {"main": tmp_path / "base"}, pieces, resumes=False, say=lambda line: None)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter_name, parameter in step.named_parameters():
            if is_added(parameter_name):
                parameter.add_(0.1 * torch.randn_like(parameter))
    Publisher(recipe, pieces)(tmp_path / "run", step.state_dict(), 1)
    write_change(tmp_path / "run", tmp_path / "peft", base=tmp_path / "base", peft=True)

    tokens = torch.arange(5, 17)[None]
    further = {"decoder": TokenSequence(tokens[:, :4])} if name == "t5-small" else {}
    theirs_further = {"decoder_input_ids": tokens[:, :4]} if further else {}
    state = "decoder_hidden" if further else "hidden"

    def ours(folder: Path) -> torch.Tensor:
        loaded = load_checkpoint(folder)
        with torch.no_grad():
            found: torch.Tensor = loaded.network(want=frozenset({state}), order=loaded.order, tokens=tokens, **further)[state]
        return found

    base = getattr(transformers, cls).from_pretrained(tmp_path / "base").eval()
    with torch.no_grad():
        plain = last(base(input_ids=tokens, output_hidden_states=True, **theirs_further))
        opened = peft.PeftModel.from_pretrained(base, tmp_path / "peft").eval()
        theirs = last(opened(input_ids=tokens, output_hidden_states=True, **theirs_further))
    expected = ours(tmp_path / "run")
    assert not torch.allclose(plain, expected, atol=3e-3)
    torch.testing.assert_close(theirs, expected, atol=1e-4, rtol=0)
    assert torch.equal(ours(tmp_path / "peft"), expected)

    opened.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(ours(tmp_path / "again"), expected, atol=1e-5, rtol=0)


def test_a_folder_of_peft_that_cloze_cannot_compute_is_refused(systems: ModuleType, tmp_path: Path) -> None:
    pieces, start = systems.tokenizer("wordpiece"), load_recipe("bert", size="tiny")
    Publisher(start, pieces)(tmp_path / "base", build_step(start, vocab_size=pieces.size).state_dict(), 0)

    def saved(folder: str, **settings: Any) -> Path:
        base = transformers.BertModel.from_pretrained(tmp_path / "base")
        config = peft.LoraConfig(r=2, **settings)
        peft.get_peft_model(base, config).save_pretrained(tmp_path / folder)
        return tmp_path / folder

    with pytest.raises(CheckpointError, match="use_dora is True; cloze reads folders of peft with use_dora False"):
        load_checkpoint(saved("dora", target_modules=["query"], use_dora=True))
    with pytest.raises(CheckpointError, match="cloze updates a kind of map in every layer or in none; layers.1"):
        load_checkpoint(saved("one", target_modules=["query"], layers_to_transform=[0]))


@pytest.mark.parametrize(("name", "kind", "cls", "task"), [
    ("bert", "wordpiece", "BertForSequenceClassification", "SEQ_CLS"),
    ("bert", "wordpiece", "BertForTokenClassification", "TOKEN_CLS"),
    ("gpt2", "gpt2", "GPT2ForSequenceClassification", "SEQ_CLS"),
])  # fmt: skip
def test_the_head_that_peft_saved_opens_with_its_updates(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, task: str
) -> None:
    pieces, start = systems.tokenizer(kind), load_recipe(name, size="tiny")
    Publisher(start, pieces)(tmp_path / "base", build_step(start, vocab_size=pieces.size).state_dict(), 0)
    base = getattr(transformers, cls).from_pretrained(tmp_path / "base", num_labels=3, pad_token_id=0)
    maps = ["c_attn"] if name == "gpt2" else ["query", "value"]
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
    tokens = torch.arange(5, 17)[None]
    with torch.no_grad():
        states = loaded.network(want=frozenset({"hidden"}), order=loaded.order, tokens=tokens)["hidden"]
        pooled = states[:, -1 if name == "gpt2" else 0]
        found = heads[0].head.output(states) if task == "TOKEN_CLS" else heads[0].head(pooled)
        theirs = opened(input_ids=tokens).logits
    torch.testing.assert_close(found, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "kind", "cls"), [
    ("bert", "wordpiece", "BertModel"), ("gpt2", "gpt2", "GPT2LMHeadModel"), ("t5-small", "t5", "T5ForConditionalGeneration"),
])  # fmt: skip
def test_peft_opens_a_prompt_on_the_base_and_cloze_opens_it_again(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str
) -> None:
    pieces, start = systems.tokenizer(kind), load_recipe(name, size="tiny")
    Publisher(start, pieces)(tmp_path / "base", build_step(start, vocab_size=pieces.size).state_dict(), 0)
    networks = {"main": {"from": "start", "change": [{"prompt": {"tokens": 4}}]}}
    recipe = load_recipe({**start.canonical(), "networks": networks}, checkpoints={"start": tmp_path / "base"})
    step = build_step(recipe, vocab_size=pieces.size, filled=frozenset({"main"}))
    load_origins(step, recipe, {"main": tmp_path / "base"}, pieces, resumes=False, say=lambda line: None)
    Publisher(recipe, pieces)(tmp_path / "run", step.state_dict(), 1)
    write_change(tmp_path / "run", tmp_path / "peft", base=tmp_path / "base", peft=True)

    tokens = torch.arange(5, 17)[None]
    further = {"decoder": TokenSequence(tokens[:, :4])} if name == "t5-small" else {}
    theirs_further: dict[str, Any] = {"decoder_input_ids": tokens[:, :4]} if further else {}
    state = "decoder_hidden" if further else "hidden"

    def ours(folder: Path) -> torch.Tensor:
        loaded = load_checkpoint(folder)
        with torch.no_grad():
            found: torch.Tensor = loaded.network(want=frozenset({state}), order=loaded.order, tokens=tokens, **further)[state]
        return found

    base = getattr(transformers, cls).from_pretrained(tmp_path / "base").eval()
    expected = ours(tmp_path / "run")
    with torch.no_grad():
        plain = last(base(input_ids=tokens, output_hidden_states=True, **theirs_further))
        opened = peft.PeftModel.from_pretrained(base, tmp_path / "peft").eval()
        found = opened(input_ids=tokens, output_hidden_states=True, **theirs_further)
        theirs = last(found) if further else found.hidden_states[-1][:, 4:]
    assert not torch.allclose(plain, expected, atol=3e-3)
    torch.testing.assert_close(theirs, expected, atol=1e-4, rtol=0)
    opened.save_pretrained(tmp_path / "again")
    assert torch.equal(ours(tmp_path / "peft"), expected) and torch.equal(ours(tmp_path / "again"), expected)
