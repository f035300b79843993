"""`attention` is transformers' `output_attentions`: BERT, GPT-2, ModernBERT, XLNet, and T5 with its decoder."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.networks.network import TokenSequence

pytest.importorskip("transformers")
pytestmark = pytest.mark.parity


@pytest.fixture
def models(systems: ModuleType, foreign: ModuleType, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A random model of transformers that returns its attention, and the network that is read from its folder."""
    kind = foreign.KINDS[request.param]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces).eval()
    loaded = load_checkpoint(foreign.save(model, pieces, tmp_path))
    model.set_attn_implementation("eager")
    return model, loaded.network.eval()


def ids(rows: int, length: int) -> Tensor:
    return torch.randint(5, 15, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("models", "order"), [("bert", "open"), ("gpt2", "left_to_right"), ("modernbert", "open"), ("xlnet", "open")],
    indirect=["models"],
)
def test_probabilities_are_those_of_transformers(models: tuple[Any, Any], order: str) -> None:
    model, network = models
    tokens = ids(2, 11)
    with torch.no_grad():
        theirs = model(tokens, output_attentions=True).attentions
        ours = network(want=frozenset({"attention"}), tokens=tokens, order=order)["attention"]
    assert ours.std() > 0.01
    torch.testing.assert_close(ours, torch.stack(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("models", ["t5"], indirect=True)
def test_probabilities_of_encoder_decoder_and_between_them_are_those_of_transformers(models: tuple[Any, Any]) -> None:
    model, network = models
    source, target = ids(2, 7), ids(2, 4)
    names = {
        "attention": "encoder_attentions", "decoder_attention": "decoder_attentions", "crossing_attention": "cross_attentions",
    }
    with torch.no_grad():
        theirs = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
        ours = network(want=frozenset(names), tokens=source, decoder=TokenSequence(target))
    for name, known in names.items():
        torch.testing.assert_close(ours[name], torch.stack(theirs[known]), atol=1e-5, rtol=0)
