"""A compressed folder opens in transformers, in the usual class, and computes the same there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.assembly.build import build_step, load_checkpoint
from cloze.assembly.compress import compress
from cloze.assembly.load import load_recipe
from cloze.assembly.publish import Publisher
from cloze.networks.network import TokenSequence

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

HEADS = ("prune_heads", {"heads": [[0, 1], [1, 0]]})
SPARSE = [("sparsify", {"share": 0.5, "embeddings": True}), ("quantise", {"bits": 8, "groups": 2})]


@pytest.mark.parametrize(("name", "kind", "cls", "changes"), [
    ("bert", "wordpiece", "BertModel", [("keep_layers", {"layers": [1]}), *SPARSE]), ("bert", "wordpiece", "BertModel", [HEADS]),
    ("gpt2", "gpt2", "GPT2Model", [HEADS, *SPARSE]), ("albert-base", "unigram", "AlbertModel", SPARSE),
    ("xlnet-base", "unigram", "XLNetModel", [HEADS, *SPARSE]),
    ("t5-small", "t5", "T5Model", [HEADS, ("prune_heads", {"heads": [[0, 0]], "of": "crossing"}), *SPARSE]),
])  # fmt: skip
def test_a_compressed_network_opens_in_transformers_with_the_same_states(
    systems: ModuleType, tmp_path: Path, name: str, kind: str, cls: str, changes: list[Any]
) -> None:
    pieces, recipe = systems.tokenizer(kind), load_recipe(name, size="tiny")
    Publisher(recipe, pieces)(tmp_path / "run", build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
    compress(tmp_path / "run", tmp_path / "small", changes)
    loaded = load_checkpoint(tmp_path / "small")
    model, info = getattr(transformers, cls).from_pretrained(tmp_path / "small", output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "pooler" not in key] and not info["mismatched_keys"]
    tokens = torch.arange(5, 17)[None]
    further = {"decoder": TokenSequence(tokens[:, :4])} if name == "t5-small" else {}
    theirs_further = {"decoder_input_ids": tokens[:, :4]} if further else {}
    state = "decoder_hidden" if further else "hidden"
    with torch.no_grad():
        ours = loaded.network(want=frozenset({state}), order=loaded.order, tokens=tokens, **further)[state]
        theirs = model.eval()(input_ids=tokens, **theirs_further).last_hidden_state
        before = load_checkpoint(tmp_path / "run").network(
            want=frozenset({state}), order=loaded.order, tokens=tokens, **further
        )[state]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert not torch.allclose(ours, before, atol=1e-3)
