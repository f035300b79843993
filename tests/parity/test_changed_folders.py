"""A network that was changed, published as a run does it, opens in transformers and computes the same there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from .conftest import publish_changed, publish_start, read_by_cloze, read_by_transformers

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
    pieces = systems.tokenizer(kind)
    start = publish_start(tmp_path / "start", name, pieces)
    run = publish_changed(tmp_path / "run", start, name, pieces, change, noise=0.3)
    model, info = getattr(transformers, cls).from_pretrained(run, output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "pooler" not in key] and not info["mismatched_keys"]
    torch.testing.assert_close(read_by_cloze(run), read_by_transformers(model), atol=1e-4, rtol=0)
