"""What networks with a memory promise: segments equal one long pass, nobody sees ahead, unread states are not computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Cache, Clock, TransformerXL, TwoStream
from cloze.networks.blocks.positions.distances import distances_down, shift, shift_at
from cloze.networks.blocks.selected import Selected
from tests.making import network_of

SIZE = 20
HIDDEN = frozenset({"hidden"})
BOTH = frozenset({"hidden", "carry"})


def random(network: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" not in name:
                parameter.normal_(std=0.3, generator=generator)
    return network.eval()


def xl(**changes: Any) -> TransformerXL:
    arguments = {"layers": 3, "width": 12, "heads": 2, "dropout": 0.0, **changes}
    return random(network_of("transformer_xl", **arguments, vocab_size=SIZE, clock=Clock()))


def two(**changes: Any) -> TwoStream:
    arguments = {"layers": 3, "width": 12, "heads": 2, "dropout": 0.0, **changes}
    return random(network_of("two_stream", **arguments, vocab_size=SIZE, clock=Clock()))


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(SIZE, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_shift_is_the_oracle_of_the_papers() -> None:
    causal = torch.tensor([[1.0, 2, 3, 9], [4, 5, 6, 9]])  # memory 1, distances 2, 1, 0 and one ahead
    assert shift(causal, 3).tolist() == [[2, 3, 9], [4, 5, 6]]
    open_ = torch.tensor([[0.0, 1, 2, 3, 4], [10, 11, 12, 13, 14]])  # XLNet's table begins one distance earlier
    assert shift(open_[:, 1:], 3).tolist() == [[2, 3, 4], [11, 12, 13]]


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_shift_gives_every_pair_its_distance(queries: int) -> None:
    keys = queries + 3
    down = distances_down(queries, keys, ahead=True, clamp=None, device=torch.device("cpu"))
    moved = shift(down.expand(2, 1, queries, -1).contiguous(), keys)
    expected = torch.arange(3, keys)[:, None] - torch.arange(keys)
    assert torch.equal(moved[1, 0], expected)
    columns = torch.tensor([[queries - 1, 0], [0, queries - 1]])
    chosen = shift_at(down.expand(2, 1, 2, -1), columns, queries, keys)
    assert torch.equal(chosen[:, 0], expected[columns])


def test_selected_tokens_fill_a_block_row_by_row() -> None:
    chosen = Selected.of(torch.tensor([7, 1, 3, 7]), batch=3, length=4)
    assert chosen.flat.tolist() == [1, 3, 7] and chosen.columns.tolist() == [[1, 3, *[0] * 6], [3, *[0] * 7], [0] * 8]
    block = chosen.lay_out(torch.tensor([[1.0], [2.0], [3.0]]))
    assert block.squeeze(-1).tolist() == [[1, 2, *[0] * 6], [3, *[0] * 7], [0] * 8]
    assert chosen.collect(block).tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("untie", [False, True])
def test_segment_by_segment_is_one_long_pass_at_any_depth(depth: int, untie: bool) -> None:
    network, tokens = xl(layers=depth, **{"memory.size": 32, "positions.untie": untie}), ids(2, 24)
    whole = network(want=HIDDEN, tokens=tokens)["hidden"]
    carry, found = None, []
    for part in tokens.split([7, 1, 9, 7], dim=1):
        states = network(want=BOTH, tokens=part, carry=carry)
        found.append(states["hidden"])
        carry = states["carry"]
    torch.testing.assert_close(torch.cat(found, dim=1), whole, atol=1e-5, rtol=0)
    assert carry is not None and not carry["states"].requires_grad


def test_a_cache_reads_on_token_by_token_as_one_pass() -> None:
    network, tokens = xl(), ids(2, 9)
    whole = network(want=HIDDEN, tokens=tokens)["hidden"]
    cache = Cache(3)
    found = [network(want=HIDDEN, tokens=part, cache=cache)["hidden"] for part in tokens.split([4, 1, 1, 3], dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), whole, atol=1e-5, rtol=0)
    assert cache.length == 9


def test_tokens_that_come_again_are_remembered_once() -> None:
    network, tokens = xl(**{"memory.size": 32, "memory.reuse": 3}), ids(2, 17)
    whole = network(want=HIDDEN, tokens=tokens)["hidden"]
    carry = None
    for start in (0, 7):
        states = network(want=BOTH, tokens=tokens[:, start : start + 10], carry=carry)
        torch.testing.assert_close(states["hidden"], whole[:, start : start + 10], atol=1e-5, rtol=0)
        carry = states["carry"]


@pytest.mark.parametrize("make", [xl, two])
def test_a_lane_that_restarts_remembers_nothing_and_leaves_the_others_alone(make: Any) -> None:
    network, first, second = make(**{"memory.size": 6}), ids(2, 5), ids(2, 5, 1)
    carry = network(want=BOTH, tokens=first)["carry"]
    cut = network(want=BOTH, tokens=second, carry=carry, restarts=torch.tensor([True, False]))
    fresh = network(want=HIDDEN, tokens=second)["hidden"]
    kept = network(want=HIDDEN, tokens=second, carry=carry)["hidden"]
    torch.testing.assert_close(cut["hidden"][0], fresh[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(cut["hidden"][1], kept[1], atol=1e-5, rtol=0)
    assert cut["carry"]["known"].tolist() == [[False, True, True, True, True, True], [True] * 6]


def test_memory_keeps_the_last_tokens_and_knows_padding() -> None:
    network = xl(**{"memory.size": 4})
    block = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    carry = network(want=BOTH, tokens=ids(2, 5), block=block)["carry"]
    assert carry["states"].shape == (2, 3, 4, 12)
    assert carry["known"].tolist() == [[True] * 4, [True, False, False, False]]


def test_same_length_sees_exactly_the_memory_at_every_token() -> None:
    network, tokens = xl(layers=1, **{"memory.size": 3, "memory.same_length": True}), ids(1, 8)
    moved = [
        torch.nonzero(changed(network, tokens, place) > 1e-6).view(-1).tolist() for place in range(8)
    ]
    assert moved == [[p for p in range(place, place + 3) if p < 8] for place in range(8)]


def changed(network: Any, tokens: Tensor, place: int, state: str = "hidden", **fields: Any) -> Tensor:
    """How far each row of a state moves when one token becomes another."""
    other = tokens.clone()
    other[:, place] = (other[:, place] + 1) % SIZE
    want = frozenset({state})
    before, after = (network(want=want, tokens=rows, **fields)[state] for rows in (tokens, other))
    return (before - after).abs().amax((0, 2))


def test_transformer_xl_never_sees_ahead_through_any_depth() -> None:
    network, tokens = xl(layers=4), ids(1, 8)
    for place in range(8):
        difference = changed(network, tokens, place)
        assert not difference[:place].any()
        assert bool((difference[place:] > 0).all())


def test_transformer_xl_scales_its_embeddings_by_the_root_of_the_width() -> None:
    network, tokens = xl(), ids(2, 5)
    first = network(want=frozenset({"layers"}), tokens=tokens, order="left_to_right")["layers"][0]
    torch.testing.assert_close(first, network.token_tables["tokens"].weight[tokens] * 12**0.5)


def test_without_relative_terms_plain_causal_attention_is_left() -> None:
    network, tokens = xl(layers=1), ids(1, 6)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "distances" in name or name.endswith("_bias"):
                parameter.zero_()
    swapped = tokens.clone()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    last = [network(want=HIDDEN, tokens=rows)["hidden"][:, -1] for rows in (tokens, swapped)]
    torch.testing.assert_close(last[0], last[1], atol=1e-6, rtol=0)  # no position is left to tell them apart


ORDER = torch.tensor([[3, 1, 0, 2]])  # the order of prediction 3-2-4-1 of the paper's figure, tokens counted from one


@pytest.mark.parametrize(("state", "rows"), [
    ("hidden", [[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 1, 1]]),
    ("query", [[0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0]]),
])
def test_streams_see_what_the_worked_example_says_through_any_depth(state: str, rows: list[list[int]]) -> None:
    network, tokens = two(layers=4), ids(1, 4)
    found = torch.stack([changed(network, tokens, place, state, order=ORDER) > 0 for place in range(4)], dim=1)
    assert found.int().tolist() == rows


def test_queries_are_the_same_whatever_else_is_read() -> None:
    network, tokens = two(**{"memory.size": 5}), ids(3, 7)
    order = torch.stack([torch.randperm(7, generator=torch.Generator().manual_seed(row)) for row in range(3)])
    carry = network(want=BOTH, tokens=ids(3, 7, 1), order=order)["carry"]
    fields = {"tokens": tokens, "order": order, "carry": carry, "segments": (tokens > 9).long()}
    everywhere = network(want=frozenset({"query", "hidden"}), **fields)["query"].flatten(0, 1)
    positions = torch.tensor([13, 2, 3, 20, 2])
    few = network(want=frozenset({"query"}), positions=positions, **fields)["query"].flatten(0, 1)
    torch.testing.assert_close(few[positions], everywhere[positions], atol=1e-5, rtol=0)
    others = torch.ones(21, dtype=torch.bool)
    others[positions] = False
    assert not few[others].any()
    nothing = network(want=frozenset({"query"}), positions=positions[:0], **fields)["query"]
    assert nothing.shape == (3, 7, 12) and not nothing.any()


def test_the_first_vector_of_queries_begins_as_tensorflow_leaves_it() -> None:
    """zihangdai/xlnet, modeling.py:529: a variable (1, 1, D) without initializer, so uniform in ±√(6 / (1 + D))."""
    torch.manual_seed(0)
    network = TwoStream(layers=1, width=600, heads=2, vocab_size=SIZE, clock=Clock())
    bound = (6 / 601) ** 0.5
    unknown = network.unknown.detach()
    assert 0.98 * bound < float(unknown.abs().max()) <= bound
    assert float(unknown.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert float(network.embeddings.tokens.weight.detach().std()) == pytest.approx(0.02, rel=0.05)


def test_dropout_falls_alike_whatever_else_is_read() -> None:
    network = two(dropout=0.3).train()
    tokens, order = ids(2, 6), torch.stack([torch.randperm(6), torch.randperm(6)])
    positions = torch.tensor([1, 8])
    whole = network(want=frozenset({"query"}), tokens=tokens, order=order)["query"].flatten(0, 1)
    few = network(want=frozenset({"query"}), tokens=tokens, order=order, positions=positions)["query"].flatten(0, 1)
    torch.testing.assert_close(few[positions], whole[positions], atol=1e-5, rtol=0)


def test_a_reversed_row_is_read_as_the_row_from_its_end() -> None:
    network, tokens = two(), ids(2, 6)
    forwards = network(want=HIDDEN, tokens=tokens)["hidden"]
    turned = network(want=HIDDEN, tokens=tokens.flip(1), reversed=torch.tensor([True, True]))["hidden"]
    torch.testing.assert_close(turned.flip(1), forwards, atol=1e-5, rtol=0)
    mixed = network(want=HIDDEN, tokens=tokens, reversed=torch.tensor([False, True]))["hidden"]
    torch.testing.assert_close(mixed[0], forwards[0], atol=1e-5, rtol=0)
    assert not torch.allclose(mixed[1], forwards[1], atol=1e-3)


@pytest.mark.parametrize("make", [xl, two])
def test_padding_changes_nothing_and_the_summary_is_the_last_real_token(make: Any) -> None:
    network, tokens = make(), ids(2, 5)
    block = torch.ones(2, 8, dtype=torch.long)
    block[:, 5:] = 0
    padded = torch.cat([tokens, ids(2, 3, 4)], dim=1)
    want = frozenset({"hidden", "summary"})
    short, long = network(want=want, tokens=tokens), network(want=want, tokens=padded, block=block)
    torch.testing.assert_close(long["hidden"][:, :5], short["hidden"], atol=1e-5, rtol=0)
    torch.testing.assert_close(long["summary"], short["hidden"][:, -1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", [xl, two])
def test_texts_that_share_a_row_do_not_see_each_other(make: Any) -> None:
    network, tokens = make(), ids(2, 7)
    packed = network(want=HIDDEN, tokens=tokens, block=torch.tensor([[1, 1, 1, 2, 2, 2, 2]] * 2))["hidden"]
    for part in (slice(0, 3), slice(3, 7)):
        alone = network(want=HIDDEN, tokens=tokens[:, part])["hidden"]
        torch.testing.assert_close(packed[:, part], alone, atol=1e-5, rtol=0)


def test_adaptive_input_gives_rare_ids_projected_narrow_vectors() -> None:
    network = xl(width=16, heads=2, **{"embedding.cutoffs": [5, 12], "embedding.divide": 2})
    shapes = [tuple(table.weight.shape) for table in network.embeddings.tables]
    assert shapes == [(5, 16), (7, 8), (8, 4)]
    tokens = torch.tensor([[0, 5, 12, 19]])
    vectors = network.embeddings(tokens)[0]
    for place, (cluster, row) in enumerate([(0, 0), (1, 0), (2, 0), (2, 7)]):
        table, project = network.embeddings.tables[cluster], network.embeddings.projections[cluster]
        torch.testing.assert_close(vectors[place], project(table.weight[row]))


@pytest.mark.parametrize(("arguments", "says"), [
    ({"heads": 5}, "not a multiple of heads"),
    ({"embedding.cutoffs": [30], "embedding.divide": 2}, "size of the vocabulary"),
])
def test_impossible_arguments_are_refused_in_plain_words(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        xl(**arguments)


def test_transformer_xl_refuses_another_order() -> None:
    with pytest.raises(RecipeError, match="left_to_right"):
        xl()(want=HIDDEN, tokens=ids(1, 3), order="open")


@pytest.mark.parametrize(("make", "parameters"), [
    (lambda: TwoStream(layers=12, width=768, heads=12, vocab_size=32000, clock=Clock()), 116_718_336),
    (lambda: TwoStream(layers=24, width=1024, heads=16, vocab_size=32000, clock=Clock()), 360_268_800),
])
def test_parameter_counts_are_the_published_ones(make: Any, parameters: int) -> None:
    with torch.device("meta"):
        network = make()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_the_released_base_has_151_million_parameters() -> None:
    with torch.device("meta"):
        network = network_of("transformer_xl", layers=16, width=410, heads=10, vocab_size=267735, clock=Clock(),
            **{"feed_forward.inner": 2100})
    total = sum(parameter.numel() for parameter in network.parameters())
    assert round((total + 267735 + 3 * 411) / 1e6, 1) == 151.1  # with the adaptive softmax's biases and cluster vectors
