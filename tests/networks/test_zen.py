"""ZEN: without n-grams a plain Transformer; with them their states are added where they are linked, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Clock, Transformer, Zen
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.visibility import Visibility
from tests.making import network_of

VOCABULARY, LENGTH, GRAMS = 13, 7, 9
HIDDEN, LAYERS = frozenset({"hidden"}), frozenset({"layers"})
ARGUMENTS: dict[str, Any] = {
    "layers": 3, "width": 16, "heads": 2, "segments": 2, "max_length": 16, "dropout": 0.0, "initial.std": 0.4,
}
Links = list[tuple[int, int]]


def build(**changed: Any) -> Zen:
    torch.manual_seed(1)
    tables = {"ngrams": SimpleNamespace(size=GRAMS)}
    arguments = {**ARGUMENTS, "ngram_layers": 2, **changed}
    return network_of("zen", **arguments, vocab_size=VOCABULARY, clock=Clock(3), tables=tables).double()


def plain(network: Zen) -> Transformer:
    """The Transformer with the same weights over tokens."""
    given = {name: value for name, value in ARGUMENTS.items() if name != "max_length"}
    made = network_of("transformer", **given, **{"positions.max_length": 16}, vocab_size=VOCABULARY, clock=Clock(3)).double()
    made.load_state_dict(network.state_dict(), strict=False)
    return made


def ids(rows: int = 2, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def grams(items: list[list[int]], links: Links) -> dict[str, Any]:
    """One field per kind; links are (flat token place, flat item place)."""
    pairs = torch.tensor(links, dtype=torch.long).view(-1, 2)
    return {"items": {"ngram": torch.tensor(items, dtype=torch.long)}, "links": {"ngram": pairs}}


NONE = grams([[0, 0], [0, 0]], [])
BIGRAM = grams([[4, 0], [0, 0]], [(2, 0), (3, 0)])


@pytest.mark.parametrize("fields", [{}, NONE, grams([[], []], [])])
def test_without_ngrams_it_is_the_transformer_number_for_number(fields: dict[str, Any]) -> None:
    network = build()
    block = torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 3])
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    want = frozenset({"hidden", "summary", "layers"})
    rest: dict[str, Any] = {"want": want, "tokens": ids(), "block": block, "segments": segments}
    made, expected = network(**rest, **fields), plain(network)(**rest)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in made)


def test_one_bigram_changes_only_its_own_rows_after_the_first_layer() -> None:
    network = build()
    with_one, without = (network(want=LAYERS, tokens=ids(), **fields)["layers"] for fields in (BIGRAM, NONE))
    change = (with_one - without).abs().amax(-1)
    assert change[0].eq(0).all() and change[1].nonzero().tolist() == [[0, 2], [0, 3]]
    assert change[2][0].gt(0).all() and change[:, 1].eq(0).all()


def test_what_is_added_is_the_state_of_the_ngram_and_its_last_one_again_in_later_layers() -> None:
    network, tokens = build(), ids(1)
    made = network(want=LAYERS, tokens=tokens, **grams([[4, 6]], [(2, 0), (3, 0), (3, 1), (4, 1)]))["layers"]
    everyone = AttentionInputs(Visibility("all"))
    x, g = network.embeddings(tokens, None, None, None), network.ngrams(torch.tensor([[4, 6]]), None, None, None)
    covers = torch.zeros(LENGTH, 2, dtype=torch.double)
    covers[[2, 3], 0] = covers[[3, 4], 1] = 1  # token 3 gets the sum of both
    for number, layer in enumerate(network.layers):
        x = layer(x, everyone)
        g = network.ngram_layers[number](g, everyone) if number < 2 else g
        x = x + covers @ g
        torch.testing.assert_close(made[number + 1], x)


def test_ngrams_of_padding_and_of_other_examples_are_not_seen() -> None:
    network, tokens = build(), ids(1)
    block = torch.tensor([[1, 1, 1, 1, 2, 2, 2]])
    links: Links = [(1, 0), (2, 0), (5, 1), (6, 1)]
    first, second, padded = (
        network(want=HIDDEN, tokens=tokens, block=block, **grams(items, links))["hidden"][0]
        for items in ([[4, 6]], [[4, 7]], [[4, 6, 0, 0]])
    )
    assert torch.equal(first[:4], second[:4]) and not torch.equal(first[4:], second[4:])
    torch.testing.assert_close(padded, first, rtol=0, atol=1e-12)


def test_packing_does_not_change_outputs() -> None:
    network, one, two = build(), ids(1, 4, 2), ids(1, 3, 3)
    packed = network(
        want=HIDDEN, tokens=torch.cat([one, two], dim=1), block=torch.tensor([[1, 1, 1, 1, 2, 2, 2]]),
        position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2]]), **grams([[4, 6]], [(1, 0), (2, 0), (4, 1), (5, 1)]),
    )["hidden"]
    alone = [
        network(want=HIDDEN, tokens=one, **grams([[4]], [(1, 0), (2, 0)]))["hidden"],
        network(want=HIDDEN, tokens=two, **grams([[6]], [(0, 0), (1, 0)]))["hidden"],
    ]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1), rtol=0, atol=1e-12)


def test_an_ngram_has_the_segment_of_its_first_token() -> None:
    network, asked = build(), []
    network.ngrams.register_forward_pre_hook(lambda _, given: asked.append(given[2].tolist()))
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    network(want=HIDDEN, tokens=ids(1), segments=segments, **grams([[4, 6]], [(3, 0), (2, 0), (4, 1), (5, 1)]))
    assert asked == [[[0, 1]]]


def test_every_parameter_receives_a_gradient_and_none_is_left_out_without_ngrams() -> None:
    network = build()
    segments = (torch.arange(VOCABULARY) % 2)[None]
    fields = grams([[1, 2, 3, 4, 5, 6, 7, 8]], [(n, n) for n in range(8)] + [(n + 1, n) for n in range(8)])
    hidden = network(want=HIDDEN, tokens=torch.arange(VOCABULARY)[None], segments=segments, **fields)["hidden"]
    (hidden * torch.randn_like(hidden)).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    network.zero_grad()
    network(want=HIDDEN, tokens=ids(), **NONE)["hidden"].sum().backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if name.startswith("ngram"))


def test_state_dict_round_trip_gives_the_same_outputs() -> None:
    first, second = build(), build(**{"initial.std": 0.1})
    second.load_state_dict(first.state_dict(), strict=True)
    made = [network(want=HIDDEN, tokens=ids(), **BIGRAM)["hidden"] for network in (first, second)]
    torch.testing.assert_close(made[1], made[0])


def test_the_depth_groups_hold_every_parameter_once() -> None:
    network = build()
    groups = network.depth_groups()
    assert len(groups) == 4
    held = [id(p) for group in groups for p in group.parameters()]
    assert sorted(held) == sorted(id(p) for p in network.parameters())


def test_every_named_size_builds() -> None:
    tables = {"ngrams": SimpleNamespace(size=GRAMS)}
    for size in Zen.sizes.values():
        with torch.device("meta"):
            network = network_of("zen", **size, vocab_size=VOCABULARY, clock=Clock(), tables=tables)
        assert (len(network.layers), network.width) == (size["layers"], size["width"])


def test_a_table_that_is_not_there_and_too_many_layers_are_refused() -> None:
    with pytest.raises(RecipeError, match="ngram_layers"):
        build(ngram_layers=4)
    with pytest.raises(RecipeError, match="no table 'ngrms'.*ngrams"):
        build(ngrams="ngrms")
