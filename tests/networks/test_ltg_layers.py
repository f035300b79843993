"""GPT-BERT's layers against a derivation of their own, written from the paper's formulas: every term for every pair of tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.changes.change import Shape
from cloze.changes.keep_layers import KeepLayers
from cloze.changes.prefix import Prefix
from cloze.errors import CheckpointError, RecipeError
from cloze.networks import EncoderDecoder, Transformer, choices
from cloze.networks.blocks.positions.disentangled import log_bucket
from cloze.networks.blocks.stack import Cache
from cloze.networks.clock import Clock
from cloze.networks.network import TokenSequence
from cloze.objectives.tokens.token_prediction import token_prediction
from tests.making import data

LAYERS, WIDTH, HEADS, INNER, BUCKETS, LONGEST, LENGTH = 3, 16, 2, 24, 4, 12, 10


#: Arguments of a Transformer of means.
DEEP: dict[str, Any] = {"layers": 3, "width": 16, "heads": 2, "norm": "pre", "norm.depth_means": True}


def ltg(*, gate: bool = True, means: bool = True, residual: Any = "as_drawn") -> Transformer:
    """A small network of GPT-BERT's kind."""
    return Transformer(
        layers=LAYERS, width=WIDTH, heads=HEADS, attention=choices.BandedAttention(gate=gate, norm=True),
        feed_forward=choices.GatedFeedForward(inner=INNER, activation="gelu_tanh", biases=False, norm=True),
        norm=choices.PreNorm(kind="layer_without_weights", epsilon=1e-5, embedding=True, depth_means=means),
        positions=choices.Disentangled(buckets=BUCKETS, max_length=LONGEST),
        initial=choices.Truncated(residual=residual), vocab_size=11, clock=Clock(),
    ).eval()


@pytest.fixture
def network() -> Transformer:
    """With weights of every size, so that each term counts."""
    torch.manual_seed(1)
    made = ltg()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(11, (2, LENGTH), generator=torch.Generator().manual_seed(2))


def row_of(distance: int, buckets: int, longest: int) -> int:
    """The row of a distance, number by number."""
    middle, away = buckets // 2, abs(distance)
    if away > middle:
        away = min(away, longest - 1)
        away = middle + math.ceil(math.log(away / middle) / math.log((longest - 1) / middle) * (middle - 1))
    return buckets - 1 + (away if distance > 0 else -away)


def derived(network: Transformer, tokens: Tensor, *, causal: bool) -> Tensor:
    """The states of the last layer, normed: pairs of tokens one by one, and a list of all states for the means."""
    weights: dict[str, Tensor] = dict(network.named_parameters())

    def normed(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()

    def mapped(x: Tensor, name: str) -> Tensor:
        bias = weights.get(f"{name}.bias")
        return x @ weights[f"{name}.weight"].t() + (0 if bias is None else bias)

    far = normed(weights["distances.table.weight"]) * weights["distances.norm.weight"] + weights["distances.norm.bias"]
    states = [normed(weights["embeddings.tokens.weight"][tokens])]
    x, across = states[0], WIDTH // HEADS
    for layer in range(LAYERS):
        name = f"layers.{layer}"
        read = normed(x)
        query, key, value = mapped(read, f"{name}.attention.projections").split(WIDTH, -1)
        far_query, far_key, _ = mapped(far, f"{name}.attention.projections").split(WIDTH, -1)
        outputs = torch.zeros_like(x)
        for text in range(len(tokens)):
            for head in range(HEADS):
                own = slice(head * across, (head + 1) * across)
                scores = torch.full((LENGTH, LENGTH), -math.inf)
                for i in range(LENGTH):
                    for j in range(i + 1 if causal else LENGTH):
                        row = row_of(i - j, BUCKETS, LONGEST)
                        terms = query[text, i, own] @ key[text, j, own] + query[text, i, own] @ far_key[row, own]
                        scores[i, j] = (terms + key[text, j, own] @ far_query[row, own]) / math.sqrt(3 * across)
                outputs[text, :, own] = scores.softmax(-1) @ value[text, :, own]
        if f"{name}.attention.gate.weight" in weights:
            outputs = outputs * F.gelu(mapped(read, f"{name}.attention.gate"))
        x = x + mapped(normed(outputs), f"{name}.attention.out")
        states.append(x)
        x = sum(w * state for w, state in zip(weights[f"{name}.means.attention.weight"], states, strict=True))  # type: ignore[assignment]
        active, gate = mapped(normed(x), f"{name}.inner").split(INNER, -1)
        x = x + mapped(normed(F.gelu(active, approximate="tanh") * gate), f"{name}.outer")
        states.append(x)
        x = sum(w * state for w, state in zip(weights[f"{name}.means.inner.weight"], states, strict=True))  # type: ignore[assignment]
    return normed(x)


@pytest.mark.parametrize("order", ["open", "left_to_right"])
def test_the_states_are_those_of_the_formulas(network: Transformer, tokens: Tensor, order: Any) -> None:
    with torch.no_grad():
        found = network(want=frozenset({"hidden"}), tokens=tokens, order=order)["hidden"]
        expected = derived(network, tokens, causal=order == "left_to_right")
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_every_weight_of_every_kind_changes_the_states(network: Transformer, tokens: Tensor) -> None:
    """So that the agreement above cannot be one of parts that do nothing."""
    network(want=frozenset({"hidden"}), tokens=tokens)["hidden"].square().mul(torch.arange(1.0, WIDTH + 1)).sum().backward()
    sizes = {name: float(p.grad.abs().max()) for name, p in network.named_parameters() if p.grad is not None}
    assert sizes.keys() == dict(network.named_parameters()).keys() and min(sizes.values()) > 1e-4


@pytest.mark.parametrize(("buckets", "longest"), [(32, 512), (4, 12), (5, 40)])
def test_every_distance_has_the_row_of_the_formula_and_far_ones_share_the_last(buckets: int, longest: int) -> None:
    distances = range(-2 * longest, 2 * longest + 1)
    found = log_bucket(torch.tensor(distances), buckets=buckets, max_length=longest).tolist()
    assert found == [row_of(distance, buckets, longest) for distance in distances]
    assert found == sorted(found) and found[0] == row_of(1 - longest, buckets, longest)
    assert found[0] >= 0 and found[-1] <= 2 * buckets - 2


def test_one_token_after_the_other_gives_the_states_of_the_whole_text(network: Transformer, tokens: Tensor) -> None:
    cache, want = Cache(LAYERS), frozenset({"hidden"})
    with torch.no_grad():
        whole = network(want=want, tokens=tokens, order="left_to_right")["hidden"]
        parts = [
            network(want=want, tokens=tokens[:, first:last], order="left_to_right", cache=cache)["hidden"]
            for first, last in ((0, 4), (4, 5), (5, LENGTH))
        ]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)


def test_a_last_layer_that_computes_some_tokens_gives_their_states(network: Transformer, tokens: Tensor) -> None:
    at, want = torch.tensor([3, 4, LENGTH + 7]), frozenset({"hidden"})
    with torch.no_grad():
        whole = network(want=want, tokens=tokens)["hidden"]
        some = network(want=want, tokens=tokens, positions=at)["hidden"]
    torch.testing.assert_close(some.flatten(0, 1)[at], whole.flatten(0, 1)[at], atol=1e-5, rtol=1e-5)


def test_distances_are_those_of_the_positions_where_these_are_given(network: Transformer) -> None:
    assert network.distances is not None
    device = torch.device("cpu")
    columns = network.distances.relation(length=4, past=0, device=device)
    same = network.distances.relation(length=4, past=0, device=device, position_ids=torch.arange(4)[None] + 7)
    assert torch.equal(columns.index, same.index)
    branch = network.distances.relation(length=3, past=0, device=device, position_ids=torch.tensor([[0, 1, 1]]))
    assert branch.index[0, 0].tolist() == [[3, 2, 2], [4, 3, 3], [4, 3, 3]]


def test_padding_changes_no_state(network: Transformer, tokens: Tensor) -> None:
    block, want = (torch.arange(LENGTH + 3) < LENGTH).long().expand(2, -1), frozenset({"hidden"})
    with torch.no_grad():
        padded = network(want=want, tokens=F.pad(tokens, (0, 3)), block=block)["hidden"]
        torch.testing.assert_close(padded[:, :LENGTH], network(want=want, tokens=tokens)["hidden"], atol=1e-5, rtol=1e-5)


def test_at_first_nothing_is_mixed_and_feed_forwards_shrink_with_their_depth(tokens: Tensor) -> None:
    torch.manual_seed(3)
    mixed = ltg(residual="feed_forward_by_depth")
    torch.manual_seed(3)
    plain = ltg(means=False, residual="feed_forward_by_depth")
    torch.manual_seed(3)
    drawn = ltg(means=False)
    want = frozenset({"hidden"})
    with torch.no_grad():
        assert torch.equal(mixed(want=want, tokens=tokens)["hidden"], plain(want=want, tokens=tokens)["hidden"])
    for number, (own, there) in enumerate(zip(plain.layers, drawn.layers, strict=True), 1):
        for name in ("inner", "outer"):
            scaled = there.get_submodule(name).weight / math.sqrt(2 * number)
            torch.testing.assert_close(own.get_submodule(name).weight, scaled)
        assert torch.equal(own.attention.out.weight, there.attention.out.weight)


def test_the_heads_norm_has_no_weights_and_its_map_a_bias() -> None:
    table = torch.nn.Embedding(11, WIDTH)
    head = token_prediction(
        transform="gelu", tie=True, biases="map", norm_epsilon=1e-5, width=WIDTH, vocab_size=11, table=table
    ).head
    assert sorted(name for name, _ in head.named_parameters()) == ["bias", "dense.bias", "dense.weight"]
    torch.nn.init.normal_(head.dense.bias)
    x = torch.randn(5, WIDTH)
    made = F.gelu(x @ head.dense.weight.t() + head.dense.bias)
    expected = (made - made.mean(-1, keepdim=True)) / (made.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(head(x), expected @ head.weight.t())


def test_changes_that_cannot_keep_its_means_or_distances_say_so() -> None:
    with pytest.raises(CheckpointError, match="every layer of this network reads a mean over all below it"):
        KeepLayers(2).shape(Shape("a run", "transformer", data("transformer", **DEEP)))
    with pytest.raises(CheckpointError, match="no relative distances"):
        Prefix().apply(ltg())
    with pytest.raises(RecipeError, match="32 buckets for texts of 16 tokens"):
        choices.Disentangled(max_length=16)


def test_a_decoder_reads_means_of_its_own_states_after_each_of_three_branches() -> None:
    torch.manual_seed(4)
    made = EncoderDecoder(
        layers=2, width=8, heads=2, norm=choices.PreNorm(epsilon=1e-5, depth_means=True),
        positions=choices.LearnedPositions(max_length=6),
        vocab_size=9, clock=Clock(),
    ).eval()
    states = {name: len(p) for name, p in made.named_parameters() if ".means." in name}
    assert [states[f"encoder.layers.{n}.means.{name}.weight"] for n in (0, 1) for name in ("attention", "inner")] == [2, 3, 4, 5]
    branches = ("attention", "crossing", "inner")
    assert [states[f"decoder.layers.{n}.means.{name}.weight"] for n in (0, 1) for name in branches] == [2, 3, 4, 5, 6, 7]
    tokens, want = torch.randint(9, (2, 5)), frozenset({"decoder_hidden"})
    shown = {"tokens": tokens, "decoder": TokenSequence(tokens.flip(1))}
    with torch.no_grad():
        before = made(want=want, **shown)["decoder_hidden"]
        made.get_parameter("decoder.layers.1.means.inner.weight")[0] = 0.5  # half of the decoder's input joins its output
        after = made(want=want, **shown)["decoder_hidden"]
    assert not torch.allclose(before, after, atol=1e-3)
