"""A compressed folder opens in transformers, in the usual class, and computes the same there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.assembly.compress import compress

from .conftest import publish_start, read_by_cloze, read_by_transformers

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
    start = publish_start(tmp_path / "run", name, systems.tokenizer(kind))
    compress(start, tmp_path / "small", changes)
    model, info = getattr(transformers, cls).from_pretrained(tmp_path / "small", output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "pooler" not in key] and not info["mismatched_keys"]
    ours = read_by_cloze(tmp_path / "small")
    torch.testing.assert_close(ours, read_by_transformers(model), atol=1e-5, rtol=0)
    assert not torch.allclose(ours, read_by_cloze(start), atol=1e-3)
