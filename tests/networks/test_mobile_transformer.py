"""MobileBERT's network: the published sizes, trigrams that stay in their text, and its gain and offset in place of norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.checkpoint.build import plain_arguments
from cloze.errors import RecipeError
from cloze.networks.clock import Clock
from cloze.networks.mobile_transformer import MobileTransformer, NoNorm
from cloze.recipe.load import load_recipe
from tests.making import network_of

SMALL: dict[str, Any] = {
    "layers": 2, "width": 16, "heads": 2, "bottleneck.width": 8, "feed_forwards": 2, "feed_forward.inner": 12,
    "embedding.width": 6, "positions.max_length": 20, "segments": 2, "vocab_size": 30,
}


def made(**changes: Any) -> MobileTransformer:
    network: MobileTransformer = network_of("mobile_transformer", **{**SMALL, **changes}, clock=Clock()).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return network


def hidden(network: MobileTransformer, rows: list[list[int]], **fields: Any) -> torch.Tensor:
    states: torch.Tensor = network(want=frozenset({"hidden"}), tokens=torch.tensor(rows), **fields)["hidden"]
    return states


def test_it_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        network = network_of(
            "mobile_transformer", layers=24, width=512, heads=4, segments=2, vocab_size=30522, clock=Clock(),
            **{"feed_forward.inner": 512, "embedding.width": 128},
        )
    assert sum(parameter.numel() for parameter in network.parameters()) == 24_581_888
    assert sum(parameter.numel() for parameter in network.layers[0].parameters()) == 842_240


def test_mobilebert_tiny_has_the_parameters_of_its_configuration() -> None:
    """google-research/mobilebert, config/uncased_L-24_H-128_B-512_A-4_F-2_tiny_OPT.json, counted by hand from `modeling.py`."""
    student = "stages.transfer.networks.student"
    recipe = load_recipe("mobilebert", overrides=[f"{student}.feed_forwards=2", f"{student}.bottleneck.reads=layer"])
    part = recipe.stages[0].recipe.networks["student"].part
    assert part is not None
    with torch.device("meta"):
        network = network_of(part.name, **plain_arguments(part.arguments), vocab_size=30522, clock=Clock())
    embeddings = 30522 * 128 + (3 * 128 * 512 + 512) + 512 * 512 + 2 * 512 + 2 * 512
    attention = 3 * (128 * 128 + 128) + (128 * 128 + 128) + 256
    feed_forward = (128 * 512 + 512) + (512 * 128 + 128) + 256
    layer = (512 * 128 + 128 + 256) + attention + 2 * feed_forward + (128 * 512 + 512 + 2 * 512)
    assert sum(parameter.numel() for parameter in network.parameters()) == embeddings + 24 * layer == 15_485_696


def test_a_gain_of_one_and_an_offset_of_zero_change_nothing() -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(NoNorm(4)(x), x)


@pytest.mark.parametrize("reads", ["shared", "input", "layer"])
def test_padding_and_the_text_beside_it_in_a_packed_row_change_nothing(reads: str) -> None:
    network = made(**{"bottleneck.reads": reads})
    first, second = hidden(network, [[1, 2, 3]]), hidden(network, [[4, 5]])
    padded = hidden(network, [[1, 2, 3, 0, 0]], block=torch.tensor([[1, 1, 1, 0, 0]]))
    torch.testing.assert_close(padded[:, :3], first)
    block, places = torch.tensor([[1, 1, 1, 2, 2]]), torch.tensor([[0, 1, 2, 0, 1]])
    packed = hidden(network, [[1, 2, 3, 4, 5]], block=block, position_ids=places)
    torch.testing.assert_close(packed, torch.cat([first, second], dim=1))


def test_the_embedding_of_a_token_is_made_of_its_neighbours_too() -> None:
    embeddings = made().embeddings
    with torch.no_grad():
        base, other = (embeddings(torch.tensor([row]), None, None, None, None) for row in ([1, 2, 3, 4], [1, 2, 7, 4]))
    assert torch.equal(base[:, 0], other[:, 0]) and not any(torch.equal(base[:, i], other[:, i]) for i in (1, 2, 3))


def test_it_reads_in_the_open_order_alone() -> None:
    with pytest.raises(RecipeError, match="mobile_transformer reads in the order open alone"):
        hidden(made(), [[1, 2]], order="left_to_right")


def test_heads_that_do_not_divide_the_bottleneck_are_refused() -> None:
    with pytest.raises(RecipeError, match="a bottleneck of 9 is not a multiple of 2 heads"):
        made(**{"bottleneck.width": 9})
