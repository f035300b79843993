"""A network that was changed, published as a run does it, opens in transformers and computes the same there."""

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
from cloze.networks.blocks.computed import is_added
from cloze.networks.network import TokenSequence

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity


LORA = {"lora": {"rank": 2, "on": ["query", "value", "outer"]}}


@pytest.mark.parametrize(("name", "kind", "cls", "change"), [
    ("bert", "wordpiece", "BertModel", LORA), ("roberta", "roberta", "RobertaModel", LORA), ("gpt2", "gpt2", "GPT2Model", LORA),
    ("t5-small", "t5", "T5Model", LORA), ("xlnet-base", "unigram", "XLNetModel", LORA),
    ("gpt2", "gpt2", "GPT2Model", {"sparsify": {"share": 0.5}}),
    ("roberta", "roberta", "RobertaModel", {"keep_layers": {"layers": [1]}}),
    ("t5-small", "t5", "T5Model", {"keep_layers": {"layers": [1, 2]}}),
])  # fmt: skip
def test_a_changed_network_opens_in_transformers_with_the_same_states(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, change: dict[str, Any]
) -> None:
    pieces, base = systems.tokenizer(kind), load_recipe(name, size="tiny")
    Publisher(base, pieces)(tmp_path / "start", build_step(base, vocab_size=pieces.size).state_dict(), 0)
    networks = {"main": {"from": "start", "change": [change]}}
    recipe = load_recipe({**base.canonical(), "networks": networks}, checkpoints={"start": tmp_path / "start"})
    step = build_step(recipe, vocab_size=pieces.size, filled=frozenset({"main"}))
    load_origins(step, recipe, {"main": tmp_path / "start"}, pieces, resumes=False, say=lambda line: None)
    with torch.no_grad():
        for parameter_name, parameter in step.named_parameters():
            if is_added(parameter_name):
                parameter.add_(0.3 * torch.randn_like(parameter))
    Publisher(recipe, pieces)(tmp_path / "run", step.state_dict(), 1)
    loaded = load_checkpoint(tmp_path / "run")
    model, info = getattr(transformers, cls).from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "pooler" not in key] and not info["mismatched_keys"]
    tokens = torch.arange(5, 17)[None]
    further = {"decoder": TokenSequence(tokens[:, :4])} if name == "t5-small" else {}
    theirs_further = {"decoder_input_ids": tokens[:, :4]} if further else {}
    state = "decoder_hidden" if further else "hidden"
    with torch.no_grad():
        ours = loaded.network(want=frozenset({state}), order=loaded.order, tokens=tokens, **further)[state]
        theirs = model.eval()(input_ids=tokens, **theirs_further).last_hidden_state
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
