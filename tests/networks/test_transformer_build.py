"""Published parameter counts, initialisation, sizes, what a network declares."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from cloze.networks import Clock, Network, Transformer
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.blocks.visibility import Visibility
from cloze.objectives import relation_prediction, token_labelling, token_prediction
from cloze.registry import GivenMark, lookup, mark_of, parameters
from tests.making import network_of


def meta(size: str, **changed: Any) -> Transformer:
    arguments = {**Transformer.sizes[size], "segments": 2, "vocab_size": 30522, **changed}
    with torch.device("meta"):
        return network_of("transformer", **arguments, clock=Clock(0, "cpu"))


def test_random_draws_leave_zeros_where_weights_are_loaded_next_and_nothing_else_changes() -> None:
    def network() -> Transformer:
        return network_of("transformer", layers=1, width=8, heads=2, vocab_size=30, positions="sinusoid", clock=Clock(0))

    drawn, state = network(), torch.get_rng_state()
    with SkipInit():
        zeros = network()
    assert torch.equal(torch.get_rng_state(), state)
    changed = {name for name, tensor in drawn.state_dict().items() if not torch.equal(tensor, zeros.state_dict()[name])}
    assert changed == {name for name, p in drawn.named_parameters() if p.dim() > 1}
    assert not any(zeros.state_dict()[name].any() for name in changed)


def count(*modules: torch.nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("size", "vocabulary", "published"),
    [
        ("base", 30522, 109_482_240), ("large", 30522, 335_141_888), ("mini", 30522, 11_170_560), ("tiny", 30522, 4_385_920),
        ("small", 30522, 28_763_648), ("medium", 30522, 41_373_184), ("base", 28996, 108_310_272),
        ("base", 21128, 102_267_648),
    ],
)
def test_bert_has_the_published_number_of_parameters(size: str, vocabulary: int, published: int) -> None:
    network = meta(size, vocab_size=vocabulary)
    pooler = network.width * network.width + network.width
    assert count(network) + pooler == published


@pytest.mark.parametrize(("size", "published"), [("base", 110_106_428), ("large", 336_226_108)])
def test_bert_with_both_heads_has_the_published_number(size: str, published: int) -> None:
    network = meta(size)
    with torch.device("meta"):
        masked = token_prediction(
            transform="gelu", tie=True, width=network.width, vocab_size=30522, table=network.token_tables["tokens"]
        )
        relation = relation_prediction(width=network.width, clock=network.clock)
    assert count(network, masked, relation) == published


@pytest.mark.parametrize(("size", "published"), [("base", 124_697_433), ("large", 355_412_057)])
def test_roberta_has_the_published_number(size: str, published: int) -> None:
    """Ours has neither the two unused position rows nor the single segment row that the published layout counts."""
    network = meta(size, vocab_size=50265, segments=0)
    with torch.device("meta"):
        masked = token_prediction(
            transform="gelu", tie=True, width=network.width, vocab_size=50265, table=network.token_tables["tokens"]
        )
    assert count(network, masked) + 3 * network.width == published


@pytest.mark.parametrize(("size", "published"), [("base", 124_439_808), ("large", 354_823_168)])
def test_gpt2_has_the_published_number(size: str, published: int) -> None:
    network = meta(size, vocab_size=50257, segments=0, norm="pre", **{"positions.max_length": 1024})
    with torch.device("meta"):
        following = token_prediction(
            tie=True, bias=False, width=network.width, vocab_size=50257, table=network.token_tables["tokens"]
        )
    assert count(network, following) == published


@pytest.mark.parametrize(
    ("arguments", "published"),
    [
        ({"layers": 12, "width": 256, "heads": 4, "embedding.width": 128}, 13_549_057),
        ({"layers": 12, "width": 768, "heads": 12}, 109_483_009),
        ({"layers": 24, "width": 1024, "heads": 16}, 335_142_913),
    ],
)
def test_electra_discriminators_have_the_published_number(arguments: dict[str, int], published: int) -> None:
    network = meta("base", **arguments)
    with torch.device("meta"):
        head = token_labelling(width=network.width, clock=network.clock)
    assert count(network, head) == published


def test_weights_start_as_published() -> None:
    network = Transformer(layers=2, width=64, heads=2, vocab_size=500, clock=Clock())
    weight = network.layers[0].inner.weight
    assert weight.abs().max() <= 0.04
    assert weight.std().item() == pytest.approx(0.8796 * 0.02, rel=0.03)
    assert network.layers[0].inner.bias.abs().max() == 0 and network.embeddings.norm is not None
    assert torch.equal(network.embeddings.norm.weight, torch.ones(64))


def test_residual_scaling_divides_by_the_root_of_the_number_of_residual_maps() -> None:
    network = network_of("transformer", layers=8, width=64, heads=2, norm="pre", initial="normal", vocab_size=50, clock=Clock(),
        **{"initial.residual": "scaled"})
    for layer in network.layers:
        assert layer.outer.weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.05)
        assert layer.inner.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_it_declares_what_it_takes_and_gives() -> None:
    network = meta("tiny")
    assert isinstance(network, Network)
    assert network.takes == {"tokens", "segments", "position_ids", "order", "block", "summaries", "vectors", "visible"}
    assert network.needs == {"tokens"} and "segments" not in meta("tiny", segments=0).takes
    assert {name: kind.shape for name, kind in network.gives.items()} == {
        "hidden": "B L D", "layers": "S B L D", "summary": "E D", "scores": "N B H L L", "attention": "N B H L L",
        "queries": "N B H L W", "keys": "N B H L W", "values": "N B H L W", "content": "N B H L W",
    }
    assert network.depth_groups() == [network.embeddings, *network.layers]


def test_recipes_may_write_everything_but_the_vocabulary_and_the_clock() -> None:
    given = {name for name, p in parameters(lookup("network", "transformer")).items() if isinstance(mark_of(p), GivenMark)}
    assert given == {"vocab_size", "clock"}


def test_flops_follow_the_usual_count() -> None:
    found = meta("mini").flops({"tokens": torch.zeros(1, 128)}, want=frozenset({"hidden"}))
    assert found == 128 * (6 * 4 * 12 * 256**2 + 12 * 4 * 256 * 128)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of heads 3"):
        meta("tiny", heads=3)


def test_the_clock_is_filled_in_place() -> None:
    clock = Clock(7)
    step, share = clock.step, clock.share
    clock.set(step=5, first_row=64, share=0.5)
    assert (clock.step is step and clock.share is share) and clock.numbers == (7, 5, 64)
    assert [int(clock.seed), int(step), int(clock.first_row), float(share)] == [7, 5, 64, 0.5]
    assert clock.to("cpu") is clock


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_norm_has_the_epsilon_that_is_asked_for(norm: str) -> None:
    network = network_of("transformer", layers=2, width=8, heads=2, norm=norm, dropout=0.0, vocab_size=11, clock=Clock(0),
        **{"norm.epsilon": 0.5, "positions.max_length": 8}).eval()
    norms = {name: module.eps for name, module in network.named_modules() if isinstance(module, torch.nn.LayerNorm)}
    assert {name.split(".")[-1] for name in norms} >= {"attention_norm", "inner_norm"} and set(norms.values()) == {0.5}
    layer = network.layers[0]
    with torch.no_grad():
        for dense in (layer.attention.out, layer.outer):  # the residual alone is left
            dense.weight.zero_()
            dense.bias.zero_()
        x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
        found = layer(x, AttentionInputs(Visibility("all")))
    once = torch.nn.functional.layer_norm(x, (8,), eps=0.5)
    expected = x if norm == "pre" else torch.nn.functional.layer_norm(once, (8,), eps=0.5)
    torch.testing.assert_close(found, expected)
