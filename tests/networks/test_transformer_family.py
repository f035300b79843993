"""The arguments that make GPT, XLM and ModernBERT of the transformer: norms, biases, gates, further ids, beginnings, sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks import Clock, Transformer
from cloze.objectives import token_prediction
from tests.making import network_of

HIDDEN = frozenset({"hidden"})
MODERN: dict[str, Any] = {"norm": "pre", "norm.embedding": True, "norm.first": False, "positions": "rotary",
    "attention.band.width": 4, "attention.band.dense_every": 3, "attention.biases": False, "feed_forward.biases": False,
        "norm.kind": "layer_without_biases", "feed_forward": "gated", "positions.local_base": 100.0}


def build(**changed: Any) -> Transformer:
    arguments: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "positions.max_length": 16, "dropout": 0.0,
        "initial.std": 0.4}
    torch.manual_seed(1)
    return network_of("transformer", **{**arguments, **changed}, vocab_size=13, clock=Clock(3)).double()


def ids(rows: int = 2, length: int = 7, below: int = 13, seed: int = 0) -> Tensor:
    return torch.randint(0, below, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_further_ids_are_summed_into_the_embedding_and_absent_ones_are_zero() -> None:
    network, tokens, language = build(**{"embedding.inputs": {"language": 3, "task": 2}}), ids(), ids(below=3, seed=5)
    assert {"inputs/language", "inputs/task"} < network.takes and network.needs == {"tokens"}
    both = {"language": language, "task": torch.zeros_like(language)}
    states = [network(want=HIDDEN, tokens=tokens, inputs=inputs)["hidden"] for inputs in (both, {"language": language}, None)]
    assert torch.equal(states[0], states[1]) and not torch.allclose(states[1], states[2])
    zero = {"language": torch.zeros_like(language)}
    assert torch.equal(states[2], network(want=HIDDEN, tokens=tokens, inputs=zero)["hidden"])
    assert network.state_dict()["embeddings.inputs.language.weight"].shape == (3, 16)


@pytest.mark.parametrize("changed", [
    {"embedding.inputs": {"language": 2}}, {"feed_forward": "gated"}, {"attention.biases": False,
        "feed_forward.biases": False}, {"norm.kind": "rms", "norm": "pre"},
    {"norm.kind": "layer_without_biases"}, {"positions": "functional"}, {**MODERN,
        "layers": 4}, {"share.weights": "all"}, {"embedding.project": True},
])  # fmt: skip
def test_every_parameter_receives_a_gradient(changed: dict[str, Any]) -> None:
    network = build(**changed)
    tokens = torch.arange(13)[None]
    inputs = dict.fromkeys(changed.get("embedding.inputs", ()), tokens % 2)
    hidden = network(want=HIDDEN, tokens=tokens, inputs=inputs)["hidden"]
    (hidden * torch.randn_like(hidden)).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_gated_layer_is_the_published_formula() -> None:
    layer, x = build(norm="pre", **{"feed_forward": "gated", "feed_forward.inner": 24}).layers[0], torch.randn(3, 16,
        dtype=torch.double)
    active, gate = F.linear(x, layer.inner.weight, layer.inner.bias).chunk(2, dim=-1)
    expected = F.linear(F.gelu(active) * gate, layer.outer.weight, layer.outer.bias)
    torch.testing.assert_close(layer.outer(layer.feed_forward.between(layer, x)), expected)


def test_without_biases_there_are_none_and_the_first_norm_can_be_missing() -> None:
    names = set(build(**MODERN).state_dict())
    assert not any(name.endswith("bias") for name in names)
    assert "layers.0.attention_norm.weight" not in names and "layers.1.attention_norm.weight" in names
    assert {"embeddings.norm.weight", "norm.weight"} < names
    kinds = [m for m in build(norm="pre", **{"norm.kind": "rms"}).modules() if isinstance(m, (nn.LayerNorm, nn.RMSNorm))]
    assert kinds and all(isinstance(module, nn.RMSNorm) for module in kinds)


@pytest.mark.parametrize("changed", [MODERN, {"attention.biases": False, "feed_forward.biases": False},
    {"norm.kind": "layer_without_biases"}, {"norm.kind": "rms"}])
def test_gradients_agree_with_finite_differences(changed: dict[str, Any]) -> None:
    network = build(**{**changed, "layers": 2, "width": 4})
    vectors = torch.randn(1, 4, 4, dtype=torch.double, requires_grad=True)

    def run(vectors: Tensor) -> Tensor:
        return network(want=HIDDEN, tokens=ids(1, 4), vectors=vectors)["hidden"]

    assert torch.autograd.gradcheck(run, (vectors,))


def test_weights_start_as_in_the_code_of_xlm() -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=1, width=64, heads=2, initial="uniform", vocab_size=900, clock=Clock())
    layer = network.layers[0]
    assert network.embeddings.tokens.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    for linear, inputs in ((layer.inner, 64), (layer.outer, 256)):
        for tensor in (linear.weight, linear.bias):
            assert 0.9 * inputs**-0.5 < tensor.abs().max().item() <= inputs**-0.5
    assert layer.inner_norm.bias.abs().max() == 0


def test_positions_can_start_with_a_deviation_of_their_own() -> None:
    torch.manual_seed(0)
    network = network_of("transformer", layers=1, width=64, heads=2, initial="normal", vocab_size=900, clock=Clock(),
        **{"initial.positions": 0.01})
    assert network.embeddings.positions.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert network.embeddings.tokens.weight.std().item() == pytest.approx(0.02, rel=0.02)


def meta(vocab_size: int, **arguments: Any) -> tuple[Transformer, int]:
    """A network and its number of parameters."""
    with torch.device("meta"):
        network = network_of("transformer", **arguments, vocab_size=vocab_size, clock=Clock(0, "cpu"))
    return network, sum(p.numel() for p in network.parameters())


def test_gpt_has_the_published_number_of_parameters() -> None:
    _, found = meta(40478, layers=12, width=768, heads=12, **{"norm.embedding": False})
    assert found == 116_534_784


@pytest.mark.parametrize(("layers", "width", "heads", "published"), [
    (12, 768, 12, 124_439_808), (24, 1024, 16, 354_823_168), (36, 1280, 20, 774_030_080), (48, 1600, 25, 1_557_611_200),
])  # fmt: skip
def test_gpt2_has_the_published_number_of_parameters(layers: int, width: int, heads: int, published: int) -> None:
    assert meta(50257, layers=layers, width=width, heads=heads, norm="pre", **{"positions.max_length": 1024})[1] == published


@pytest.mark.parametrize(("arguments", "vocabulary", "millions"), [
    ({"layers": 12, "width": 1024, "heads": 8, "embedding.inputs": {"language": 15}}, 95_000, 249.1),
    ({"layers": 12, "width": 2048, "heads": 16}, 30_145, 667.1),
])  # fmt: skip
def test_xlm_has_the_published_size(arguments: dict[str, Any], vocabulary: int, millions: float) -> None:
    network, found = meta(vocabulary, **arguments)
    with torch.device("meta"):
        head = token_prediction(tie=True, width=network.width, vocab_size=vocabulary, table=network.token_tables["tokens"])
    assert round((found + sum(p.numel() for p in head.parameters())) / 1e6, 1) == millions
