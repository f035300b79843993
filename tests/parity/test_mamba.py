"""Mamba against transformers: states, scores and gradients, folders both ways, a cache, and padding."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.cli.main import main
from cloze.recipe.load import load_recipe

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "state_size": 5}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {}, "biases": {"use_bias": True}, "no bias of the convolution": {"use_conv_bias": False},
    "rank": {"time_step_rank": 7}, "kernel and expansion": {"conv_kernel": 2, "expand": 3},
    "untied": {"tie_word_embeddings": False, "layer_norm_epsilon": 0.1},
}  # fmt: skip


def opened(systems: ModuleType, foreign: ModuleType, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """A shaken model of transformers, and what cloze reads of the folder that it writes."""
    pieces = systems.tokenizer("gpt2")
    model = foreign.model_of(foreign.KINDS["mamba"], pieces, **{**SIZES, **changes})
    return model, load_checkpoint(foreign.save(model, pieces, folder))


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_and_gradients_are_those_of_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, variant: str
) -> None:
    model, loaded = opened(systems, foreign, tmp_path, **VARIANTS[variant])
    foreign.assert_equal(model, tmp_path)
    tokens = torch.arange(3, 25).view(2, 11)
    hidden = loaded.network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
    expected = model.train().backbone(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    layer, other = loaded.network.layers[0], model.backbone.layers[0].mixer
    pairs = [
        (layer.in_proj.weight, other.in_proj.weight), (layer.out_proj.weight, other.out_proj.weight),
        (layer.forwards.x_proj.weight, other.x_proj.weight), (layer.forwards.dt_proj.weight, other.dt_proj.weight),
        (layer.forwards.dt_proj.bias, other.dt_proj.bias), (layer.forwards.D, other.D),
        (layer.forwards.conv1d.weight, other.conv1d.weight),
        (loaded.network.embeddings.tokens.weight, model.backbone.embeddings.weight),
    ]  # fmt: skip
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4 * float(theirs.grad.abs().max()))
    rates = layer.forwards.A_log.grad.view(5, -1).t()
    torch.testing.assert_close(rates, other.A_log.grad, rtol=1e-3, atol=1e-4 * float(rates.abs().max()))


def test_a_padded_row_has_the_states_that_transformers_masks(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> None:
    model, loaded = opened(systems, foreign, tmp_path)
    tokens, mask = torch.arange(3, 25).view(2, 11), torch.ones(2, 11, dtype=torch.long)
    mask[0, 6:] = 0
    with torch.no_grad():
        ours = loaded.network(want=frozenset({"hidden"}), tokens=tokens, block=mask)["hidden"]
        theirs = model.backbone(tokens, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], atol=1e-5, rtol=1e-5)


def test_greedy_texts_are_those_of_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, loaded = opened(systems, foreign, tmp_path)
    first = torch.tensor([loaded.tokenizer.encode("The cat sleeps").ids.tolist()])
    out = model.generate(first, max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=loaded.tokenizer.size)
    assert main(["generate", str(tmp_path), "The cat sleeps", "--greedy", "--tokens", "8"]) == 0
    assert loaded.tokenizer.decode(out[0].tolist()).strip() in capsys.readouterr().out


@pytest.mark.parametrize("values", [{}, {"bias": True, "conv_bias": False, "dt.rank": 3, "kernel": 3}])
def test_a_run_folder_opens_in_transformers_with_the_same_scores(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, values: dict[str, Any]
) -> None:
    pieces = systems.tokenizer("gpt2")
    overrides = [f"network.{name}={json.dumps(value)}" for name, value in values.items()]
    recipe = load_recipe("mamba", size="tiny", overrides=overrides)
    assert Publisher(recipe, pieces)(tmp_path, build_step(recipe, vocab_size=pieces.size).state_dict(), 3) == []
    model, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "MambaForCausalLM"
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    foreign.assert_equal(model.eval(), tmp_path)


def test_the_bidirectional_network_masks_every_token_by_a_draw_of_its_own() -> None:
    """kuleshov-group/caduceus, `src/dataloaders/utils/mlm.py`: `torch.bernoulli`."""
    edits = load_recipe("mamba-bidirectional").entries["main"].exercise
    (mask,) = [edit.part.arguments for edit in edits if edit.part.name == "mask"]
    assert (mask["rate"], mask["rounding"]) == (0.15, "independent")


def test_the_bidirectional_network_is_written_for_cloze_alone(systems: ModuleType, tmp_path: Path) -> None:
    pieces = systems.tokenizer("wordpiece")
    recipe = load_recipe("mamba-bidirectional", size="tiny")
    (remark,) = Publisher(recipe, pieces)(tmp_path, build_step(recipe, vocab_size=pieces.size).state_dict(), 3)
    assert remark.startswith("transformers has no architecture for this network: directions is 'both', transformers' Mamba has")
    assert not (tmp_path / "config.json").exists()
    assert load_checkpoint(tmp_path).network.order == "open"
