"""ELMo's network: the published count, a slow implementation number by number, directions, lanes, padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import BiLSTM, Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from tests.making import network_of

WORDS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "the", "cat", "saw", "a", "dog", "sleep")
EVERY = frozenset({"hidden", "forward_hidden", "backward_hidden", "layers"})


def build(characters: bool = True, scale: float = 1.0, **changed: Any) -> BiLSTM:
    arguments: dict[str, Any] = {"layers": 2, "width": 10, "inner": 7, "dropout": 0.0, "cell_clip": 0.4, "projection_clip": 0.25}
    torch.manual_seed(1)
    part = CharCNN(embedding_width=3, filters=[(1, 4), (2, 5)], per_word=9, vocab_size=len(WORDS), spellings=WORDS)
    network = network_of("bilstm", **{**arguments, **changed}, embedding=part if characters else None, vocab_size=len(WORDS),
        clock=Clock(3)).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5 * scale)
    return network.eval()


def read(network: BiLSTM, tokens: Any, want: frozenset[str] = EVERY, **fields: Any) -> dict[str, Any]:
    with torch.no_grad():
        return network(want=want, tokens=torch.as_tensor(tokens), **fields)


def cells(layer: Any, xs: list[Tensor], clips: tuple[float, float]) -> list[Tensor]:
    """A projected LSTM one number after the other: the formulas of the paper, with loops for sums."""
    size, width = layer.cell, layer.width
    h, c = [0.0] * width, [0.0] * size
    w, r, b, p = (t.tolist() for t in (layer.input.weight, layer.recurrent.weight, layer.bias, layer.projection.weight))
    sigmoid = lambda z: 1 / (1 + torch.exp(torch.tensor(-z, dtype=torch.float64)).item())  # noqa: E731
    tanh = lambda z: torch.tanh(torch.tensor(z, dtype=torch.float64)).item()  # noqa: E731
    outs = []
    for x in xs:
        gate = [
            b[n] + sum(w[n][k] * float(x[k]) for k in range(len(x))) + sum(r[n][k] * h[k] for k in range(width))
            for n in range(4 * size)
        ]
        shown = []
        for n in range(size):
            i, f, g, o = sigmoid(gate[n]), sigmoid(gate[size + n]), tanh(gate[2 * size + n]), sigmoid(gate[3 * size + n])
            c[n] = max(-clips[0], min(clips[0], f * c[n] + i * g))
            shown.append(o * tanh(c[n]))
        h = [max(-clips[1], min(clips[1], sum(p[n][k] * shown[k] for k in range(size)))) for n in range(width)]
        outs.append(torch.tensor(h, dtype=torch.float64))
    return outs


def test_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        part = CharCNN(vocab_size=100)
        network = network_of("bilstm", layers=2, width=1024, inner=4096, embedding=part, vocab_size=100, clock=Clock())
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    assert [count(part.table), count(part.filters), count(part.highways)] == [4_192, 199_168, 16_785_408]
    assert count(network.embeddings) - count(part) == 1_049_088
    assert count(network.layers[0].forwards) == 18_890_752
    assert count(network) == 93_600_864


@pytest.mark.parametrize("skip", [True, False])
def test_every_number_is_that_of_a_slow_implementation(skip: bool) -> None:
    network = build(skip=skip)
    tokens = [2, 4, 5, 6, 3]
    found = read(network, [tokens])
    words = network.embeddings(torch.tensor([tokens]), None)[0].detach()
    clipped = 0
    halves = []
    for name, xs in (("forwards", list(words)), ("backwards", list(words.flip(0)))):
        rows = [xs]
        for number, layer in enumerate(network.layers):
            out = cells(getattr(layer, name), rows[-1], (0.4, 0.25))
            clipped += sum(int((x.abs() == 0.25).sum()) for x in out)
            rows.append([o + x for o, x in zip(out, rows[-1], strict=True)] if skip and number else out)
        halves.append([torch.stack(row if name == "forwards" else row[::-1]) for row in rows])
    assert clipped > 5  # the clips bind
    for number in range(3):
        expected = torch.cat([halves[0][number], halves[1][number]], dim=1)
        torch.testing.assert_close(found["layers"][number, 0], expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found["hidden"], found["layers"][-1])
    torch.testing.assert_close(torch.cat([found["forward_hidden"], found["backward_hidden"]], 2), found["hidden"])


def test_each_direction_sees_what_it_has_read_and_no_more() -> None:
    network = build(cell_clip=None, projection_clip=None)
    tokens = [[2, 4, 5, 6, 7, 3]]
    before = read(network, tokens)
    for place in range(6):
        other = [list(tokens[0])]
        other[0][place] = 8
        after = read(network, other)
        moved = {name: (before[name] - after[name])[0].abs().amax(-1) > 1e-12 for name in ("forward_hidden", "backward_hidden")}
        assert moved["forward_hidden"].tolist() == [n >= place for n in range(6)]
        assert moved["backward_hidden"].tolist() == [n <= place for n in range(6)]
        alone = (before["layers"][0] - after["layers"][0])[0].abs().amax(-1) > 1e-12
        assert alone.tolist() == [n == place for n in range(6)]


def test_layer_0_is_the_same_wherever_a_word_stands_and_the_others_are_not() -> None:
    network = build()
    first, second = read(network, [[2, 4, 5, 3]])["layers"][:, 0, 2], read(network, [[2, 5, 6, 3]])["layers"][:, 0, 1]
    torch.testing.assert_close(first[0], second[0], rtol=1e-12, atol=1e-12)
    assert torch.equal(first[0, :5], first[0, 5:])
    assert not torch.allclose(first[1], second[1]) and not torch.allclose(first[2], second[2])


def test_a_sentence_read_backwards_by_exchanged_directions_gives_exchanged_halves() -> None:
    network, twin = build(), build()
    for ours, theirs in zip(network.layers, twin.layers, strict=True):
        theirs.forwards.load_state_dict(ours.backwards.state_dict())
        theirs.backwards.load_state_dict(ours.forwards.state_dict())
    found, other = read(network, [[4, 5, 6, 7]]), read(twin, [[7, 6, 5, 4]])
    torch.testing.assert_close(found["forward_hidden"], other["backward_hidden"].flip(1))
    torch.testing.assert_close(found["backward_hidden"], other["forward_hidden"].flip(1))


@pytest.mark.parametrize("characters", [True, False])
def test_padding_and_neighbours_change_nothing(characters: bool) -> None:
    network = build(characters)
    alone = read(network, [[2, 5, 3]])
    batch = read(network, [[2, 5, 3, 0, 0], [2, 4, 5, 6, 3]], block=torch.tensor([[1, 1, 1, 0, 0], [1] * 5]))
    for name in EVERY:
        torch.testing.assert_close(batch[name][..., :1, :3, :], alone[name], rtol=1e-12, atol=1e-12)


def test_rows_read_from_their_end_are_read_by_the_backward_lstm() -> None:
    network = build()
    straight = read(network, [[4, 5, 6, 7], [8, 7, 6, 5]])
    mixed = read(network, [[4, 5, 6, 7], [5, 6, 7, 8]], reversed=torch.tensor([False, True]))
    for name in EVERY - {"layers"}:
        torch.testing.assert_close(mixed[name][0], straight[name][0])
    torch.testing.assert_close(mixed["hidden"][1], straight["hidden"][1].flip(0))
    torch.testing.assert_close(mixed["layers"][:, 1], straight["layers"][:, 1].flip(1))
    torch.testing.assert_close(mixed["forward_hidden"][1], straight["backward_hidden"][1].flip(0))


@pytest.mark.parametrize("reuse", [0, 1])
def test_two_rows_of_a_lane_read_what_one_long_row_reads(reuse: int) -> None:
    network = build(reuse=reuse)
    want, turned = frozenset({"forward_hidden", "carry"}), torch.tensor([False, True])
    tokens = torch.tensor([[4, 5, 6, 7, 8], [9, 8, 7, 4, 5]])
    whole = read(network, tokens, want, reversed=turned)["forward_hidden"]
    first = read(network, tokens[:, : 3], want, reversed=turned)
    rest, carry = tokens[:, 3 - reuse :], first["carry"]
    second = read(network, rest, want, reversed=turned, carry=carry, restarts=torch.tensor([False, False]))
    torch.testing.assert_close(second["forward_hidden"], whole[:, 3 - reuse :])
    fresh = read(network, rest, want, reversed=turned, carry=carry, restarts=torch.tensor([True, False]))
    torch.testing.assert_close(fresh["forward_hidden"][1], whole[1, 3 - reuse :])
    torch.testing.assert_close(fresh["forward_hidden"][0], read(network, rest[:1], want)["forward_hidden"][0])


def test_rows_of_one_direction_give_the_other_no_gradient_but_zeros() -> None:
    network = build()
    states = network(want=frozenset({"forward_hidden"}), tokens=torch.tensor([[4, 5]]), reversed=torch.tensor([False]))
    states["forward_hidden"].sum().backward()
    assert network.layers[0].forwards.input.weight.grad.abs().sum() > 0
    assert network.layers[0].backwards.input.weight.grad.abs().sum() == 0


def test_the_skip_carries_the_dropped_input() -> None:
    network = build(dropout=0.5, cell_clip=None, projection_clip=None).train()
    for layer in network.layers:
        torch.nn.init.zeros_(layer.forwards.projection.weight)  # what is left of a layer is its skip
    network.clock.set(seed=1, step=0, first_row=0)
    with torch.no_grad():
        nothing = network(want=frozenset({"forward_hidden"}), tokens=torch.tensor([[4, 5, 6]]))["forward_hidden"]
    assert nothing.eq(0).all()  # the first layer has no skip
    torch.nn.init.normal_(network.layers[0].forwards.projection.weight)
    drop: Any = network.dropouts["along"]
    with torch.no_grad():
        given = drop[0](network.embeddings(torch.tensor([[4, 5, 6]]), None))
        first, _ = network.layers[0](given, None, None, None, False)
        found = network(want=frozenset({"forward_hidden"}), tokens=torch.tensor([[4, 5, 6]]))["forward_hidden"]
    torch.testing.assert_close(found, drop[2](drop[1](first)))
    assert (found == 0).float().mean() > 0.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RecipeError, match="two equal halves"):
        build(width=9)
    with pytest.raises(RecipeError, match="several texts"):
        read(build(), [[4, 5]], block=torch.tensor([[1, 2]]))
