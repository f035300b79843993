"""Prefixes in peft's layout: transformers computes the same with the keys and values of the file, and cloze opens it again."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from cloze.checkpoint.saved_change import write_change
from cloze.errors import CheckpointError
from cloze.interop.files import read_json

from .conftest import TOKENS, publish_changed, publish_start, read_by_cloze, read_by_transformers

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]  # peft asks transformers in old ways


def test_transformers_reads_a_prefix_as_keys_and_values_of_the_past_and_cloze_opens_it_again(
    systems: ModuleType, tmp_path: Path
) -> None:
    pieces = systems.tokenizer("gpt2")
    start = publish_start(tmp_path / "base", "gpt2", pieces)
    run = publish_changed(tmp_path / "run", start, "gpt2", pieces, {"prefix": {"tokens": 4}})
    write_change(run, tmp_path / "peft", base=start, peft=True)
    config = read_json(tmp_path / "peft" / "adapter_config.json", "the configuration")
    assert (config["peft_type"], config["task_type"], config["prefix_projection"]) == ("PREFIX_TUNING", "CAUSAL_LM", False)

    # What `get_prompt` of peft does: a view (B, K, 2 N, H, W), permuted to (2 N, B, H, K, W), two for each layer.
    rows = load_file(tmp_path / "peft" / "adapter_model.safetensors")["prompt_embeddings"]
    heads, layers, batch = config["num_attention_heads"], config["num_layers"], len(TOKENS)
    assert rows.shape == (4, 2 * layers * config["token_dim"])
    past = rows.repeat(batch, 1, 1).view(batch, 4, 2 * layers, heads, -1).permute(2, 0, 3, 1, 4).split(2)
    cache = transformers.DynamicCache()
    for number, (key, value) in enumerate(past):
        cache.update(key, value, number)
    base, expected = transformers.GPT2Model.from_pretrained(start).eval(), read_by_cloze(run)
    plain = read_by_transformers(base)
    with torch.no_grad():
        theirs = base(input_ids=TOKENS, past_key_values=cache).last_hidden_state
    assert not torch.allclose(plain, expected, atol=3e-3)
    torch.testing.assert_close(theirs, expected, atol=1e-4, rtol=0)
    assert torch.equal(read_by_cloze(tmp_path / "peft"), expected)

    peft = pytest.importorskip("peft")
    opened = peft.PeftModel.from_pretrained(transformers.GPT2LMHeadModel.from_pretrained(start), tmp_path / "peft").eval()
    with torch.no_grad():
        found = opened(input_ids=TOKENS, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    opened.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(read_by_cloze(tmp_path / "again"), expected, atol=1e-5, rtol=0)


def test_a_prefix_of_an_encoder_is_for_cloze_alone(systems: ModuleType, tmp_path: Path) -> None:
    pieces = systems.tokenizer("wordpiece")
    start = publish_start(tmp_path / "base", "bert", pieces)
    run = publish_changed(tmp_path / "run", start, "bert", pieces, {"prefix": {"tokens": 4}})
    with pytest.raises(CheckpointError, match="read from left to right, and this one reads open"):
        write_change(run, tmp_path / "peft", base=start, peft=True)
    write_change(run, tmp_path / "change", base=start)
    assert torch.equal(read_by_cloze(tmp_path / "change"), read_by_cloze(run))
