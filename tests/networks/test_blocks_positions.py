"""Positions inside attention: sinusoids, rotary angles, NEZHA's vectors of distances; and their use in the transformer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Cache, Clock, Transformer
from cloze.networks.blocks.attention import Attention, AttentionInputs, QueryKeyValue
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.positions.functional import functional
from cloze.networks.blocks.positions.rotary import frequencies, rotation
from cloze.networks.blocks.positions.sinusoid import sinusoids
from cloze.networks.blocks.visibility import Restricted, Visibility
from tests.making import network_of

CPU = torch.device("cpu")
HIDDEN = frozenset({"hidden"})
KINDS = ["sinusoid", "rotary", "functional", "learned_with_buckets", "rotary_table"]


def build(positions: str, **changed: Any) -> Transformer:
    arguments: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "positions.max_length": 32, "dropout": 0.0,
        "initial.std": 0.4}
    torch.manual_seed(1)
    network = network_of("transformer", **{**arguments, "positions": positions, **changed}, vocab_size=13, clock=Clock(3))
    return network.double()


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 13, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_the_table_of_nezha_has_the_published_values() -> None:
    row = sinusoids(129, 64)[64]
    assert row[0].item() == pytest.approx(0.920026, abs=1e-6) and row[1].item() == pytest.approx(0.391857, abs=1e-6)


def test_sines_and_cosines_alternate_and_odd_widths_are_cut() -> None:
    table = sinusoids(7, 6)
    for place in range(7):
        for pair in range(3):
            angle = place / 10000 ** (2 * pair / 6)
            assert table[place, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[place, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)
    assert sinusoids(7, 5).shape == (7, 5)


def test_attention_divides_what_it_asks_of_keys_and_of_distances_alike() -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.double) for _ in range(3))
    relative = functional(2, 4, length=6, past=0, device=CPU)
    vectors = relative.table.double()[relative.index]
    scores = torch.einsum("bhid,bhijd->bhij", query, key[:, :, None] + vectors) / 4**0.5
    expected = torch.einsum("bhij,bhijd->bhid", scores.softmax(3), value[:, :, None] + vectors)
    attention = Attention(width=12, heads=3, dropout=Dropout(0.0, Clock()))
    found = attention._attend(QueryKeyValue(query, key, value, relative), AttentionInputs(Visibility("all")), attention.dropout)
    torch.testing.assert_close(found, expected)


def test_functional_positions_are_the_definition_with_every_vector_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    query, shares = (torch.randn(2, 3, 6, size, generator=generator, dtype=torch.double) for size in (4, 6))
    relative = functional(2, 4, length=6, past=0, device=CPU)
    table = sinusoids(5, 4).double()
    vectors = torch.stack([torch.stack([table[max(-2, min(2, j - i)) + 2] for j in range(6)]) for i in range(6)])
    torch.testing.assert_close(relative.scores(query, query, 1.0), torch.einsum("bhid,ijd->bhij", query, vectors))
    torch.testing.assert_close(relative.values(shares), torch.einsum("bhij,ijd->bhid", shares, vectors))


def test_new_tokens_stand_after_the_kept_ones() -> None:
    whole, last = functional(3, 4, length=9, past=0, device=CPU), functional(3, 4, length=2, past=7, device=CPU)
    assert torch.equal(last.index, whole.index[7:])


def test_a_rotation_turns_pairs_by_the_published_angles() -> None:
    x = torch.zeros(1, 1, 2, 4)
    x[..., 0], x[..., 1] = 1.0, 1.0
    turned = rotation(torch.tensor([[0, 3]]), 4, 100.0).rotate(x, x)[0][0, 0]
    assert torch.equal(turned[0], x[0, 0, 0])
    expected = torch.tensor([math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3)])
    torch.testing.assert_close(turned[1], expected, rtol=0, atol=1e-6)


def test_rotary_positions_count_by_their_differences_alone() -> None:
    network, tokens = build("rotary"), ids(2, 9)
    near = network(want=HIDDEN, tokens=tokens)["hidden"]
    far = network(want=HIDDEN, tokens=tokens, position_ids=torch.arange(5, 14).expand(2, -1))["hidden"]
    torch.testing.assert_close(far, near, rtol=0, atol=1e-5)
    assert not torch.allclose(network(want=HIDDEN, tokens=tokens, position_ids=torch.zeros(2, 9).long())["hidden"], near)


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_order_of_words_matters_and_nothing_leaks(positions: str, norm: str) -> None:
    network, tokens = build(positions, norm=norm), ids(1, 8)
    before = network(want=HIDDEN, tokens=tokens, order="left_to_right")["hidden"]
    last = [network(want=HIDDEN, tokens=t)["hidden"][:, 7] for t in (tokens, tokens[:, [1, 0, *range(2, 8)]])]
    assert not torch.allclose(*last)
    for place in range(8):
        other = tokens.clone()
        other[0, place] = (tokens[0, place] + 1) % 13
        moved = (network(want=HIDDEN, tokens=other, order="left_to_right")["hidden"] - before).abs().amax(-1)[0]
        assert moved[:place].eq(0).all() and moved[place:].gt(1e-9).all()


@pytest.mark.parametrize("positions", KINDS)
def test_cached_generation_equals_the_full_forward(positions: str) -> None:
    network, tokens = build(positions).eval(), ids(2, 9)
    full = network(want=HIDDEN, tokens=tokens, order="left_to_right")["hidden"]
    cache, parts = Cache(2), []
    for start, stop in ((0, 4), (4, 5), (5, 8), (8, 9)):
        place = torch.arange(start, stop).expand(2, -1)
        states = network(want=HIDDEN, tokens=tokens[:, start:stop], position_ids=place, order="left_to_right", cache=cache)
        parts.append(states["hidden"])
    torch.testing.assert_close(torch.cat(parts, dim=1), full, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", KINDS)
def test_packed_and_padded_rows_equal_single_ones(positions: str) -> None:
    network, first, second = build(positions), ids(1, 4, seed=2), ids(1, 3, seed=3)
    packed = network(
        want=HIDDEN, tokens=torch.cat([first, second, ids(1, 2)], dim=1), block=torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0, 0]]),
        position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 0]]),
    )["hidden"]
    for part, tokens in ((packed[:, :4], first), (packed[:, 4:7], second)):
        torch.testing.assert_close(part, network(want=HIDDEN, tokens=tokens)["hidden"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_chosen_positions_get_the_states_and_gradients_of_the_full_run(positions: str, dropout: float) -> None:
    network, tokens, chosen = build(positions, dropout=dropout), ids(3, 7), torch.tensor([20, 1, 9, 0])
    results = []
    for read_at in (None, chosen):
        network.zero_grad()
        read = network(want=HIDDEN, tokens=tokens, positions=read_at)["hidden"].flatten(0, 1)[chosen]
        (read * torch.linspace(-1, 1, 16)).sum().backward()
        results.append((read, {name: parameter.grad for name, parameter in network.named_parameters()}))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-10)


def test_tokens_of_branches_are_as_far_apart_as_their_positions() -> None:
    network, tokens = build("learned_with_buckets", layers=1), ids(1, 5)
    places = torch.tensor([[0, 1, 2, 2, 3]])  # the last two columns are a branch at column 1
    order = Restricted("open", torch.ones(1, 5, 5, dtype=torch.bool))
    states = frozenset({"scores", "queries", "keys"})
    found = network(want=states, tokens=tokens, position_ids=places, order=order)
    table = network.distances.table.weight
    without = found["queries"][0] @ found["keys"][0].transpose(-1, -2) / 8**0.5
    added = (found["scores"][0] - without)[0]
    torch.testing.assert_close(added[:, 1, 4], table[16 + 2], rtol=0, atol=1e-12)
    torch.testing.assert_close(added[:, 4, 1], table[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("last", [False, True])
def test_where_summaries_alone_are_read_the_last_layer_is_computed_there_alone(last: bool) -> None:
    network, tokens = build("rotary"), ids(3, 7)
    where = {"summaries": torch.tensor([6, 13, 20])} if last else {}
    rows: list[int] = []
    network.layers[-1].inner.register_forward_hook(lambda module, given, made: rows.append(made.shape[:-1].numel()))
    alone = network(want=frozenset({"summary"}), tokens=tokens, positions=torch.arange(0), **where)["summary"]
    both = network(want=HIDDEN | {"summary"}, tokens=tokens, **where)
    torch.testing.assert_close(alone, both["summary"], rtol=0, atol=1e-12)
    assert rows == [3, 21]


def test_fixed_tables_are_neither_trained_nor_drawn_but_saved() -> None:
    network = build("sinusoid").float()
    assert "embeddings.positions.weight" not in dict(network.named_parameters())
    assert torch.equal(network.state_dict()["embeddings.positions.weight"], sinusoids(32, 16))
    assert not any("position" in name for name in build("functional").state_dict())
    assert not any("position" in name for name in build("rotary").state_dict())
    kept = build("rotary_table").float()
    assert "distances.frequencies" not in dict(kept.named_parameters())
    assert torch.equal(kept.state_dict()["distances.frequencies"], frequencies(8, 10000.0))


def test_the_angles_of_a_table_are_those_that_the_checkpoint_holds() -> None:
    tokens, rotary, table = ids(2, 9), build("rotary"), build("rotary_table")
    state = {**rotary.state_dict(), "distances.frequencies": frequencies(8, 10000.0)}
    table.load_state_dict(state)
    expected = rotary(want=HIDDEN, tokens=tokens)["hidden"]
    torch.testing.assert_close(table(want=HIDDEN, tokens=tokens)["hidden"], expected, rtol=0, atol=1e-6)
    table.load_state_dict({**state, "distances.frequencies": frequencies(8, 10000.0).half().float()})
    rounded = table(want=HIDDEN, tokens=tokens)["hidden"]
    assert 1e-5 < (rounded - expected).abs().max() < 0.1


def test_values_are_rotated_by_the_positions_of_their_tokens() -> None:
    network, plain, tokens = build("rotary", **{"positions.values": True}, layers=1), build("rotary", layers=1), ids(1, 6)
    plain.load_state_dict(network.state_dict())
    states = frozenset({"values"})
    values, unturned = (one(want=states, tokens=tokens)["values"][0] for one in (network, plain))
    expected = rotation(torch.arange(6)[None], 8, 10000.0).rotate(unturned, unturned)[0]
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(values[:, :, 1:], unturned[:, :, 1:])


def test_the_buckets_of_distances_add_a_number_to_every_score_of_their_head() -> None:
    network, tokens = build("learned_with_buckets"), ids(2, 5)
    states = frozenset({"scores", "queries", "keys"})
    found = network(want=states, tokens=tokens)
    table = network.distances.table.weight
    for i in range(5):
        for j in range(5):
            row = abs(i - j) + 16 * (j > i)
            without = (found["queries"][:, :, :, i] * found["keys"][:, :, :, j]).sum(-1) / 8**0.5
            torch.testing.assert_close(found["scores"][:, :, :, i, j], without + table[row], rtol=0, atol=1e-12)


def test_they_declare_whether_positions_are_read() -> None:
    assert {kind for kind in (*KINDS, "learned", "none") if "position_ids" in build(kind).takes} == {
        "sinusoid", "rotary", "learned", "functional", "learned_with_buckets", "rotary_table"
    }


def test_rotary_heads_of_odd_width_are_refused() -> None:
    with pytest.raises(RecipeError, match="heads are 3 wide"):
        build("rotary", width=6, heads=2)
