"""MobileBERT both ways: our folder opens as transformers' `MobileBertModel`, theirs opens here, with equal states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import share
from cloze.interop import Card, PortableHead, PortableModel, Reading, complete, export_folder
from cloze.networks.clock import Clock
from tests.making import data, network_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SIZES: dict[str, Any] = {
    "layers": 2, "width": 16, "heads": 2, "bottleneck.width": 8, "feed_forwards": 3, "feed_forward.inner": 12,
    "embedding.width": 6, "positions.max_length": 20, "segments": 2,
}
READING = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
KINDS: list[dict[str, Any]] = [
    {}, {"feed_forwards": 1, "segments": 1}, {"bottleneck.reads": "layer", "feed_forward.activation": "gelu"},
    {"norm.kind": "layer", "norm.epsilon": 1e-5},
]  # fmt: skip


def exported(systems: ModuleType, folder: Path, **changes: Any) -> tuple[Any, list[str]]:
    """A network with random weights, but zero for [PAD], and the remarks of its export."""
    pieces = systems.tokenizer("wordpiece")
    arguments = {**SIZES, **changes}
    network = network_of("mobile_transformer", **arguments, vocab_size=pieces.size, clock=Clock()).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
        network.embeddings.tokens.weight[pieces.roles["[PAD]"]] = 0.0
    made = complete(data("mobile_transformer", **arguments), "mobile_transformer")
    model = PortableModel(made, "open", network.state_dict(), {}, "mobile_transformer")
    return network, export_folder(folder, model=model, tokenizer=pieces, reading=READING, card=Card("test"))


def rows(size: int, segments: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    block = torch.ones(2, 7, dtype=torch.long)
    block[1, 5:] = 0
    tokens = torch.where(block > 0, torch.randint(5, size, (2, 7), generator=generator), 0)
    return {"tokens": tokens, "block": block, "segments": torch.randint(segments, (2, 7), generator=generator)}


def theirs(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    return model(
        input_ids=batch["tokens"], attention_mask=batch["block"], token_type_ids=batch["segments"], output_hidden_states=True
    )


@pytest.mark.parametrize("changes", KINDS, ids=lambda changes: ",".join(changes) or "published")
def test_our_folder_has_the_states_of_transformers_model_and_comes_back(
    systems: ModuleType, tmp_path: Path, changes: dict[str, Any]
) -> None:
    network, remarks = exported(systems, tmp_path, **changes)
    assert [remark for remark in remarks if "the vector of [PAD]" not in remark] == []
    model, info = transformers.MobileBertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = rows(network.vocab_size, network.embeddings.segments.num_embeddings)
    with torch.no_grad():
        own, other = network(want=frozenset({"layers"}), **batch)["layers"], theirs(model.eval(), batch)
    real = batch["block"] > 0
    for ours, states in zip(own, other.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], states[real], rtol=0, atol=1e-5)
    back = load_checkpoint(tmp_path)
    assert back.imported.architecture == "mobilebert"
    assert all(torch.equal(tensor, back.network.state_dict()[name]) for name, tensor in network.state_dict().items())


def test_transformers_folder_opens_here(systems: ModuleType, tmp_path: Path) -> None:
    exported(systems, tmp_path / "ours")
    config = transformers.MobileBertConfig.from_pretrained(tmp_path / "ours")
    torch.manual_seed(0)
    model = transformers.MobileBertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "theirs" / name).write_bytes((tmp_path / "ours" / name).read_bytes())
    opened = load_checkpoint(tmp_path / "theirs")
    assert list(opened.heads) == ["token_prediction"] and not any("carried" in said for said in opened.imported.remarks)
    batch = rows(config.vocab_size)
    whole = {name: tensor[:1] for name, tensor in batch.items()}  # a row without padding
    with torch.no_grad():
        own = opened.network(want=frozenset({"hidden"}), **whole)["hidden"]
        torch.testing.assert_close(own, theirs(model.mobilebert, whole).last_hidden_state, rtol=0, atol=1e-5)


def test_a_teacher_that_reads_the_layers_input_is_no_folder_of_transformers(systems: ModuleType, tmp_path: Path) -> None:
    _, remarks = exported(systems, tmp_path, **{"bottleneck.reads": "input"})
    assert any("makes queries and keys of a bottleneck" in remark for remark in remarks)
    assert load_checkpoint(tmp_path).imported.architecture is None


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("cls", ["MobileBertForPreTraining", "MobileBertForNextSentencePrediction", "MobileBertForMultipleChoice",
                                 "MobileBertForSequenceClassification", "MobileBertForTokenClassification",
                                 "MobileBertForQuestionAnswering"])  # fmt: skip
def test_every_class_comes_back_with_the_same_tensors_and_its_head(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, cls: str, pooled: bool
) -> None:
    kind = foreign.KINDS["mobilebert"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, cls=cls, classifier_activation=pooled)
    share(foreign.save(model, pieces, tmp_path / "theirs"), tmp_path / "ours")
    heads = load_checkpoint(tmp_path / "ours").imported.model.heads.values()
    assert len(heads) == (2 if "PreTraining" in cls else 1)
    assert [bool(head.argument("pool")) for head in heads if head.argument("pool") is not None] in ([], [pooled])
    again, info = getattr(transformers, cls).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.state_dict().items())


def test_output_rows_of_its_own_come_back_and_a_narrow_table_alone_is_no_head_of_it(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path
) -> None:
    kind = foreign.KINDS["mobilebert"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, cls="MobileBertForMaskedLM", tie_word_embeddings=False)
    share(foreign.save(model, pieces, tmp_path / "theirs"), tmp_path / "ours")
    opened = load_checkpoint(tmp_path / "ours")
    assert opened.imported.model.heads["token_prediction"].argument("tie") is False
    foreign.assert_equal(transformers.MobileBertForMaskedLM.from_pretrained(tmp_path / "ours").eval(), tmp_path / "theirs")
    head = systems.objective(
        "token_prediction", {"transform": "relu", "tie": True},
        {"width": 64, "vocab_size": pieces.size, "table": opened.network.embeddings.tokens},
    )
    narrow = PortableHead("token_prediction", {"transform": "relu", "tie": True}, head.state_dict())
    changed = replace(opened.imported.model, heads={"token_prediction": narrow})
    remarks = export_folder(tmp_path / "narrow", model=changed, tokenizer=pieces, reading=READING, card=Card("test"))
    assert any("MobileBERT widens them: write tie: widened" in remark for remark in remarks)
