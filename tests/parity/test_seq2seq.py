"""T5, BART and their kin with random weights: logits and gradients of padded batches, folders in both directions, caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.interop import Card, PortableHead, PortableModel, complete, export_folder, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.export import tensors_there
from cloze.networks import Clock
from cloze.networks.network import TokenSequence
from cloze.reading import Reading
from tests.making import completed, data, network_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

T5: dict[str, Any] = {"layers": 2, "decoder_layers": 3, "width": 16, "heads": 3, "head_width": 4, "feed_forward.inner": 24,
    "norm": "pre", "norm.kind": "rms", "norm.epsilon": 1e-6, "positions": "buckets", "attention.biases": False,
        "feed_forward.biases": False, "attention.scaled": False, "feed_forward.activation": "relu", "positions.buckets": 8,
        "positions.farthest": 12, "initial": "t5", "dropout.attention": 0.1, "dropout.inner": 0.1}  # fmt: skip
BART: dict[str, Any] = {"layers": 2, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward.inner": 24,
    "positions.max_length": 20, "norm.epsilon": 1e-5, "initial": "normal", "dropout.attention": 0.0}  # fmt: skip
PRE = {**BART, "norm": "pre", "dropout.final": 0.0}
HALVES = {"positions": "sinusoid", "positions.layout": "halves", "norm.embedding": False}
PLAIN = {"transform": None, "bias": False}
SYSTEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "t5": (T5, {**PLAIN, "tie": True, "scale": True}, "unigram", "T5ForConditionalGeneration"),
    "t5-v1.1": (
        {**T5, "feed_forward": "gated", "feed_forward.activation": "gelu_tanh"}, {**PLAIN,
            "tie": False}, "unigram", "T5ForConditionalGeneration"
    ),
    "bart": (BART, {**PLAIN, "tie": True}, "roberta", "BartForConditionalGeneration"),
    "bart-scaled": (
        {**BART, "embedding.scaled": True, "feed_forward.activation": "gelu_tanh"}, {**PLAIN, "tie": True}, "roberta",
        "BartForConditionalGeneration",
    ),
    "umt5": (
        {**T5, "feed_forward": "gated", "feed_forward.activation": "gelu_tanh", "positions.shared": False},
        {**PLAIN, "tie": True, "scale": True}, "unigram", "UMT5ForConditionalGeneration",
    ),
    "mbart": ({**PRE, "norm.embedding": True}, {**PLAIN, "tie": True}, "unigram", "MBartForConditionalGeneration"),
    "m2m_100": (
        {**PRE, "positions": "sinusoid", "positions.layout": "tensor2tensor", "positions.first": 1, "embedding.scaled": True,
            "feed_forward.activation": "relu"},
        {**PLAIN, "tie": True}, "unigram", "M2M100ForConditionalGeneration",
    ),
    "pegasus": ({**PRE, **HALVES}, {**PLAIN, "tie": True}, "unigram", "PegasusForConditionalGeneration"),
    "marian": (
        {**BART, **HALVES, "feed_forward.activation": "silu", "embedding.scaled": True}, {**PLAIN, "tie": True, "bias": True},
        "unigram", "MarianMTModel",
    ),
}  # fmt: skip
STARTS = {"t5": "[PAD]", "umt5": "[PAD]", "bart": "[SEP]", "mbart": "[EOS]", "m2m_100": "[EOS]", "pegasus": "[PAD]",
          "marian": "[PAD]"}  # fmt: skip
#: What remarks say of a folder.
SAID = {"umt5": ["transformers 5 multiplies"]}


def system(systems: ModuleType, name: str, **changes: Any) -> Any:
    """A random encoder-decoder with its head, as a checkpoint gives them."""
    arguments, head, kind, _ = SYSTEMS[name]
    arguments = {**arguments, **changes}
    pieces = systems.tokenizer(kind)
    generator = torch.Generator().manual_seed(0)
    clock = Clock()
    network = network_of("encoder_decoder", **arguments, vocab_size=pieces.size, clock=clock).eval()
    given = {"width": network.width, "vocab_size": pieces.size, "table": network.token_tables["tokens"], "clock": clock}
    objective = systems.objective("token_prediction", head, given)
    for module in (network, objective):
        shake(module, generator)
    model = PortableModel(
        data("encoder_decoder", **arguments), "open", network.state_dict(), {"lm": PortableHead("token_prediction", head,
            objective.state_dict())},
        "encoder_decoder",
    )  # fmt: skip
    return SimpleNamespace(
        network=network, objective=objective, tokenizer=pieces, model=model, arguments=completed(arguments, "encoder_decoder")
    )


def shake(module: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter, gains around one."""
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            parameter.normal_(std=0.3, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)


def write(folder: Path, made: Any, systems: ModuleType, name: str) -> list[str]:
    reading = Reading("{A} [EOS]" if name.startswith("t5") else "[CLS] {A} [SEP]", None, "last")
    return export_folder(
        folder, model=made.model, tokenizer=made.tokenizer, reading=reading, card=Card("test"),
        architecture=name.partition("-")[0],
    )  # fmt: skip


def batch(size: int) -> dict[str, Any]:
    """Three rows, padded on both sides of the model."""
    generator = torch.Generator().manual_seed(5)
    source, target = torch.randint(8, size, (3, 11), generator=generator), torch.randint(8, size, (3, 7), generator=generator)
    lengths, targets = torch.tensor([11, 4, 8]), torch.tensor([7, 2, 5])
    return {
        "tokens": source, "block": (torch.arange(11) < lengths[:, None]).long(),
        "decoder": TokenSequence(target, block=(torch.arange(7) < targets[:, None]).long()),
    }  # fmt: skip


def their_logits(model: Any, fields: dict[str, Any]) -> Tensor:
    return model(
        input_ids=fields["tokens"], attention_mask=fields["block"], decoder_input_ids=fields["decoder"].tokens,
        decoder_attention_mask=fields["decoder"].block,
    ).logits  # fmt: skip


def our_logits(made: Any, fields: dict[str, Any]) -> Tensor:
    states = made.network(want=frozenset({"decoder_hidden"}), **fields)
    return made.objective.head(states["decoder_hidden"])


@pytest.mark.parametrize("name", SYSTEMS)
def test_transformers_opens_the_folder_with_the_same_logits_and_gradients(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    made = system(systems, name)
    remarks = write(tmp_path, made, systems, name)
    assert [remark.partition(" what ")[0] for remark in remarks] == SAID.get(name, [])
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == SYSTEMS[name][3]
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    model.eval()
    fields = batch(made.tokenizer.size)
    real = fields["decoder"].block.bool()
    ours, theirs = our_logits(made, fields)[real], their_logits(model, fields)[real]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1)) / ours.numel() ** 0.5
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    gradients = PortableModel(
        complete(made.model.arguments, "encoder_decoder"), "open", gradient(made.network),
        {"lm": replace(made.model.heads["lm"], state=gradient(made.objective))}, "encoder_decoder",
    )  # fmt: skip
    choice = choose(gradients, tokenizer_kind=made.tokenizer.kind, pad=0, hint=name.partition("-")[0])
    assert isinstance(choice, ArchitectureChoice)
    mapped = tensors_there(gradients, choice, vocab_size=made.tokenizer.size, pad=0)
    named = dict(model.named_parameters())
    assert mapped.keys() - {"final_logits_bias"} == named.keys() - {"lm_head.weight"} | (mapped.keys() & {"lm_head.weight"})
    for key, value in mapped.items():
        if key == "final_logits_bias":
            torch.testing.assert_close(value[0], weights.sum(0), atol=1e-5, rtol=0)  # there it is a buffer
            continue
        if named[key].grad is None:  # a table of sines
            assert "embed_positions" in key and not value.any()
            continue
        if "embed_positions" in key:
            value, other = value[2:], named[key].grad[2:]
        else:
            other = named[key].grad
        if key.endswith("shared.weight"):
            value, other = value[8:], other[8:]  # transformers gives [PAD] no gradient
        torch.testing.assert_close(value, other, atol=1e-4, rtol=2e-5, msg=lambda text, key=key: f"{key}: {text}")


def gradient(module: nn.Module) -> dict[str, Tensor]:
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in held.items() if name in module.state_dict()}


@pytest.mark.parametrize("name", SYSTEMS)
def test_writing_and_reading_gives_the_same_model(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = system(systems, name)
    write(tmp_path, made, systems, name)
    back = import_folder(tmp_path)
    assert [remark.partition(" what ")[0] for remark in back.remarks] == SAID.get(name, [])
    assert back.model.part == "encoder_decoder"
    assert back.reading.start == STARTS[name.partition("-")[0]]
    assert dict(back.model.flat) == made.arguments
    assert_same_tensors(back.model, made.model)


def assert_same_tensors(first: PortableModel, second: PortableModel) -> None:
    assert first.network.keys() == second.network.keys()
    for key, tensor in second.network.items():
        assert torch.equal(first.network[key], tensor), key
    mine, other = (next(iter(model.heads.values())).state for model in (first, second))
    assert mine.keys() == other.keys() and all(torch.equal(mine[key], other[key]) for key in other)


@pytest.mark.parametrize("name", SYSTEMS)
def test_folders_of_transformers_are_read_whole(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = system(systems, name)
    write(tmp_path / "ours", made, systems, name)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    made.tokenizer.save(tmp_path / "theirs", length=20, frame_single="{A}", frame_pair=None)
    back = import_folder(tmp_path / "theirs")
    assert [remark.partition(" what ")[0] for remark in back.remarks] == SAID.get(name, [])
    assert_same_tensors(back.model, made.model)
    for key in made.arguments.keys() - {"initial", "initial.std", "initial.positions", "initial.residual",
        "positions.max_length"}:
        assert back.model.flat[key] == made.arguments[key], key


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_cache_changes_nothing(systems: ModuleType, name: str) -> None:
    made = system(systems, name)
    fields = batch(made.tokenizer.size)
    target = fields.pop("decoder").tokens
    cache = made.network.cache()
    with torch.no_grad():
        whole = our_logits(made, {**fields, "decoder": TokenSequence(target)})
        parts = [
            our_logits(made, {**fields, "decoder": TokenSequence(part), "cache": cache})
            for part in target.split([1, 3, 1, 2], dim=1)
        ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=0)


def test_classification_reads_the_decoder_at_the_last_end(systems: ModuleType, tmp_path: Path) -> None:
    made = system(systems, "bart")
    head = {"classes": 3, "set": "label", "pool": True}
    given = {"width": 16, "vocab_size": 1, "table": None, "clock": Clock()}
    objective = systems.objective("relation_prediction", head, given)
    shake(objective, torch.Generator().manual_seed(2))
    model = replace(made.model, heads={"class": PortableHead("relation_prediction", head, objective.state_dict())})
    roles = made.tokenizer.roles
    assert write(tmp_path, SimpleNamespace(**{**vars(made), "model": model}), systems, "bart") == []
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    fields = batch(made.tokenizer.size)
    tokens = fields["tokens"].masked_fill(fields["block"] == 0, roles["[PAD]"])
    for row, length in enumerate((11, 4, 8)):
        tokens[row, length - 1] = roles["[SEP]"]
    with torch.no_grad():
        state = made.network(want=frozenset({"summary"}), tokens=tokens, block=fields["block"])["summary"]
        ours = objective.head(state)
        expected = theirs(input_ids=tokens, attention_mask=fields["block"]).logits
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)


def test_buckets_equal_theirs_everywhere() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    from cloze.networks.blocks.positions.buckets import bucket

    distance = torch.arange(-300, 301)
    for both in (True, False):
        theirs = T5Attention._relative_position_bucket(distance, bidirectional=both)
        assert torch.equal(bucket(distance, both=both), theirs)


T5_SIZES = {
    "small": (512, 2048, 8, 6, 64), "base": (768, 3072, 12, 12, 64), "large": (1024, 4096, 16, 24, 64),
    "3b": (1024, 16384, 32, 24, 128), "11b": (1024, 65536, 128, 24, 128),
}  # fmt: skip
BART_SIZES = {"base": (768, 3072, 12, 6), "large": (1024, 4096, 16, 12)}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("size", T5_SIZES)
def test_t5_has_as_many_parameters_as_theirs(size: str, gated: bool) -> None:
    width, inner, heads, layers, head_width = T5_SIZES[size]
    config = transformers.T5Config(
        vocab_size=32128, d_model=width, d_ff=inner, num_heads=heads, num_layers=layers, d_kv=head_width,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )  # fmt: skip
    arguments = {**T5, "feed_forward": "gated" if gated else "plain", "positions.buckets": 32, "positions.farthest": 128,
        "decoder_layers": None, "layers": layers}
    arguments |= {"width": width, "heads": heads, "head_width": head_width, "feed_forward.inner": inner}
    with torch.device("meta"):
        theirs = transformers.T5ForConditionalGeneration(config)
        ours = network_of("encoder_decoder", **arguments, vocab_size=32128, clock=Clock())
    assert count(ours) == count(theirs)


@pytest.mark.parametrize("size", BART_SIZES)
def test_bart_has_as_many_parameters_as_theirs_without_the_spare_positions(size: str) -> None:
    width, inner, heads, layers = BART_SIZES[size]
    config = transformers.BartConfig(
        d_model=width, encoder_ffn_dim=inner, decoder_ffn_dim=inner, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_layers=layers, decoder_layers=layers,
    )  # fmt: skip
    with torch.device("meta"):
        theirs = transformers.BartForConditionalGeneration(config)
        ours = network_of("encoder_decoder", layers=layers, width=width, heads=heads, vocab_size=50265, clock=Clock(),
            **{"feed_forward.inner": inner, "positions.max_length": 1024})
    assert count(ours) + 2 * 2 * width == count(theirs)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
