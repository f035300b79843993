"""Prefix tuning: keys and values in front of each layer's are the same as tokens whose keys and values these are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cloze.changes import Prefix, SoftPrompt
from cloze.changes.prefix import _widened
from cloze.decoding.generating.writing import Continuing
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError
from cloze.networks import Clock
from cloze.networks.blocks.stack import Cache
from cloze.networks.blocks.visibility import Visibility
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.reading import Reading
from tests.making import network_of

FRONT = torch.tensor([[7, 3, 7]])
TEXT = torch.tensor([[1, 2, 5, 6], [8, 9, 2, 0]])
BLOCK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
HIDDEN = frozenset({"hidden"})


def made(**sizes: Any) -> tuple[Any, Any]:
    """A left-to-right network, and the same one whose prefix holds the keys and values of `FRONT`."""
    found = []
    for prefixed in (False, True):
        torch.manual_seed(0)
        values = {"layers": 2, "width": 8, "heads": 2, "positions.max_length": 16, **sizes}
        network: Any = network_of("transformer", **values, vocab_size=12, clock=Clock())
        if prefixed:
            Prefix(tokens=3).apply(network)
            cache = Cache(2)
            with torch.no_grad():
                found[0](want=HIDDEN, tokens=FRONT, order="left_to_right", cache=cache)
                for layer, (key, value) in zip(network.layers, cache.layers, strict=True):
                    layer.around["attention"].rows.copy_(torch.stack([key[0], value[0]]).permute(2, 0, 1, 3))
        found.append(network.eval())
    return found[0], found[1]


@pytest.mark.parametrize("sizes", [{}, {"norm": "pre"}, {"positions": "rotary"}])
def test_a_prefix_of_the_keys_and_values_of_tokens_is_read_like_these_tokens(sizes: dict[str, Any]) -> None:
    plain, prefixed = made(**sizes)
    long = torch.cat([FRONT.expand(2, -1), TEXT], dim=1)
    expected = plain(want=HIDDEN | {"attention", "keys"}, tokens=long, order="left_to_right")
    found = prefixed(want=HIDDEN | {"attention", "keys"}, tokens=TEXT, order="left_to_right")
    torch.testing.assert_close(found["hidden"], expected["hidden"][:, 3:])
    torch.testing.assert_close(found["attention"], expected["attention"][..., 3:, 3:])
    torch.testing.assert_close(found["keys"], expected["keys"][..., 3:, :])


def test_the_mask_of_a_prefix_is_made_on_the_device_of_the_text() -> None:
    made = _widened(Visibility("causal"), 2, 3, torch.device("meta"))
    assert made.mask is not None and made.mask.device.type == "meta" and made.mask.shape == (1, 1, 3, 5)


def test_padding_and_unread_positions_change_nothing() -> None:
    _, prefixed = made()
    whole = prefixed(want=HIDDEN, tokens=TEXT[1:, :3], order="left_to_right")["hidden"]
    padded = prefixed(want=HIDDEN, tokens=TEXT, block=BLOCK, order="left_to_right")["hidden"]
    torch.testing.assert_close(padded[1:, :3], whole)
    some = prefixed(want=HIDDEN, tokens=TEXT, block=BLOCK, order="left_to_right", positions=torch.tensor([6]))["hidden"]
    torch.testing.assert_close(some[1, 2], whole[0, 2])


def test_a_text_is_continued_behind_its_prefix() -> None:
    _, prefixed = made()
    whole = prefixed(want=HIDDEN, tokens=TEXT, order="left_to_right")["hidden"]
    cache, parts = Cache(2), []
    for at in (0, 2, 3):
        new = TEXT[:, at : 2 if at == 0 else at + 1]
        assert cache.length == at  # the cache holds the text alone
        ids = torch.arange(at, at + new.shape[1]).expand(2, -1)
        parts.append(prefixed(want=HIDDEN, tokens=new, order="left_to_right", cache=cache, position_ids=ids)["hidden"])
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_a_prefix_is_all_that_is_trained_and_shortens_what_can_be_read() -> None:
    _, prefixed = made()
    trained = [name for name, p in prefixed.named_parameters() if p.requires_grad]
    assert trained == [f"layers.{number}.around.attention.rows" for number in range(2)]
    prefixed(want=HIDDEN, tokens=TEXT)["hidden"].square().sum().backward()
    assert all(bool(p.grad.any()) for p in prefixed.parameters() if p.requires_grad)
    assert prefixed.max_length == 13
    with pytest.raises(CheckpointError, match="prefix: 16 tokens, but the network reads 13"):
        Prefix(tokens=16).apply(prefixed)


@pytest.mark.parametrize("change", [None, Prefix(3), SoftPrompt(3, "random")])
def test_a_generator_writes_behind_what_stands_in_front_of_the_text(change: Any) -> None:
    torch.manual_seed(1)
    network = network_of("transformer", layers=2, width=8, heads=2, vocab_size=12, clock=Clock(), **{"positions.max_length": 16})
    if change is not None:
        change.apply(network)
    tokenizer = SimpleNamespace(size=12, special_ids=[], roles={})
    reader = Reader(network.eval(), tokenizer, Reading("{A}"), "left_to_right")
    head = token_prediction(width=8, vocab_size=12)
    torch.nn.init.normal_(head.head.output.weight)  # type: ignore[operator, union-attr]
    writer, tokens = Continuing(reader, head), torch.tensor([[4, 2], [7, 7]])
    for _ in range(4):
        whole = reader.states(reader.continued(tokens, 0), head.reads)
        last = torch.arange(1, 3) * tokens.shape[1] - 1
        expected = reader.token_scores(head, whole, reader.continued(tokens, 0), last)
        found = writer.scores(tokens)
        torch.testing.assert_close(found, expected)
        tokens = torch.cat([tokens, found.argmax(-1, keepdim=True)], dim=1)
