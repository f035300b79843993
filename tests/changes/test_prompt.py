"""Soft prompts: a prompt of the rows of some tokens is the same as these tokens in front of the text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.changes import SoftPrompt
from cloze.errors import CheckpointError, RecipeError
from cloze.networks import Clock
from cloze.networks.blocks.stack import Cache
from cloze.networks.network import TokenSequence
from tests.making import network_of

FRONT = [7, 3, 7]
TEXT = torch.tensor([[1, 2, 5, 6], [8, 9, 2, 0]])
BLOCK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
LONG, LONG_BLOCK = (torch.cat([torch.full((2, 3), value), rest], dim=1) for value, rest in ((0, TEXT), (1, BLOCK)))
LONG[:, :3] = torch.tensor(FRONT)


def made(part: str = "transformer", **sizes: Any) -> tuple[Any, Any]:
    """A network, and the same one behind a prompt of the rows of `FRONT`."""
    found = []
    for tokens in (0, len(FRONT)):
        torch.manual_seed(0)
        values = {"layers": 2, "width": 8, "heads": 2, "positions.max_length": 16, **sizes}
        network: Any = network_of(part, **values, vocab_size=12, clock=Clock()).eval()
        if tokens:
            SoftPrompt(tokens=tokens).apply(network)
            with torch.no_grad():
                network.outside[0].rows.copy_(network.embeddings.tokens.weight[FRONT])
        found.append(network)
    return found[0], found[1]


@pytest.mark.parametrize("order", ["open", "left_to_right", torch.tensor([[2, 0, 1, 3], [0, 1, 2, 3]])])
def test_a_prompt_is_read_like_tokens_in_front(order: Any) -> None:
    plain, prompted = made(segments=2)
    want = frozenset({"hidden", "summary", "layers", "attention", "queries"})
    long = order if isinstance(order, str) else torch.cat([torch.zeros(2, 3, dtype=torch.long), order], dim=1)
    expected = plain(want=want, tokens=LONG, block=LONG_BLOCK, order=long)
    found = prompted(want=want, tokens=TEXT, block=BLOCK, order=order)
    real = BLOCK > 0
    torch.testing.assert_close(found["hidden"][real], expected["hidden"][:, 3:][real])
    torch.testing.assert_close(found["summary"], expected["hidden"][:, 3])
    torch.testing.assert_close(found["layers"][:, real], expected["layers"][:, :, 3:][:, real])
    torch.testing.assert_close(found["queries"], expected["queries"][:, :, :, 3:])
    assert found["attention"].shape == (2, 2, 2, 4, 4)
    given = {"summaries": torch.tensor([1, 6]), "position_ids": torch.arange(4).expand(2, -1)}
    other = prompted(want=frozenset({"summary"}), tokens=TEXT, block=BLOCK, order=order, **given)["summary"]
    torch.testing.assert_close(other, torch.stack([expected["hidden"][0, 4], expected["hidden"][1, 5]]))


def test_a_text_is_continued_behind_its_prompt() -> None:
    _, prompted = made()
    whole = prompted(want=frozenset({"hidden"}), tokens=TEXT, order="left_to_right")["hidden"]
    cache = Cache(2)
    parts = [
        prompted(
            want=frozenset({"hidden"}), tokens=TEXT[:, at : at + 2], order="left_to_right", cache=cache,
            position_ids=torch.arange(at, at + 2).expand(2, -1),
        )["hidden"]
        for at in (0, 2)
    ]  # fmt: skip
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_the_encoder_of_an_encoder_decoder_reads_the_prompt() -> None:
    plain, prompted = made("encoder_decoder")
    decoder = TokenSequence(torch.tensor([[4, 1], [4, 2]]))
    expected = plain(want=frozenset({"hidden", "decoder_hidden"}), tokens=LONG, block=LONG_BLOCK, decoder=decoder)
    found = prompted(want=frozenset({"hidden", "decoder_hidden"}), tokens=TEXT, block=BLOCK, decoder=decoder)
    torch.testing.assert_close(found["hidden"][BLOCK > 0], expected["hidden"][:, 3:][BLOCK > 0])
    torch.testing.assert_close(found["decoder_hidden"], expected["decoder_hidden"])


def test_a_prompt_is_all_that_is_trained_and_shortens_what_can_be_read() -> None:
    _, prompted = made()
    assert [name for name, p in prompted.named_parameters() if p.requires_grad] == ["outside.0.rows"]
    assert prompted.max_length == 13
    with pytest.raises(CheckpointError, match="prompt: 16 tokens, but the network reads 13"):
        SoftPrompt(tokens=16).apply(prompted)
    with pytest.raises(RecipeError, match="prompt: a row holds several examples"):
        prompted(want=frozenset({"hidden"}), tokens=TEXT, block=torch.tensor([[1, 1, 2, 2]] * 2))
