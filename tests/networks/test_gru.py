"""Skip-thought's networks: torch's GRU with one bias, published sizes, both ways to be given a sentence, what they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks import GRU, Clock
from cloze.networks.blocks.recurrence.gru import GRULayer
from cloze.objectives import token_prediction

WANT = frozenset({"hidden", "summary"})


def network(**changed: Any) -> GRU:
    torch.manual_seed(0)
    return GRU(**{"width": 8, "embedding_width": 5, "vocab_size": 30, "clock": Clock(), **changed})


def tokens(rows: int = 3, length: int = 6) -> Tensor:
    return torch.randint(0, 30, (rows, length), generator=torch.Generator().manual_seed(1))


def torchs(layer: GRULayer) -> Any:
    """torch's GRU with the same weights and a hidden bias of zero."""
    theirs: Any = nn.GRU(layer.input.in_features, layer.width, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(layer.input.weight)
        theirs.weight_hh_l0.copy_(layer.recurrent.weight)
        theirs.bias_ih_l0.copy_(layer.input.bias)
        theirs.bias_hh_l0.zero_()
    return theirs


def test_an_encoder_is_torchs_gru_without_the_hidden_bias() -> None:
    made = network(width=40, bound=0.5)
    nn.init.uniform_(made.layers[0].input.bias, -1, 1)
    states = made(want=WANT, tokens=tokens())
    hidden, last = torchs(made.layers[0])(made.embeddings(tokens()))
    assert float((states["hidden"] - hidden).detach().abs().max()) < 3e-7
    assert torch.equal(states["summary"], states["hidden"][:, -1])
    assert float((states["summary"] - last[0]).detach().abs().max()) < 3e-7


def test_a_layer_written_out_has_the_codes_gates() -> None:
    layer = network(width=4, bound=0.7).layers[0].double()
    x, h = torch.randn(2, 5).double(), torch.randn(2, 4).double()
    given, moved = layer.input(x).chunk(3, 1), layer.recurrent(h).chunk(3, 1)
    reset, update = (given[0] + moved[0]).sigmoid(), (given[1] + moved[1]).sigmoid()
    candidate = (moved[2] * reset + given[2]).tanh()  # reset behind the product
    torch.testing.assert_close(layer(x[:, None], (h,))[1][0], update * h + (1 - update) * candidate)


def test_uni_skip_has_the_published_size() -> None:
    with torch.device("meta"):
        encoder = GRU(width=2400, embedding_width=620, vocab_size=20_000, clock=Clock())
        decoder = GRU(width=2400, embedding_width=620, condition="initial", vocab_size=20_000, clock=Clock())
        words = token_prediction(width=2400, vocab_size=20_000)
    recurrent = sum(p.numel() for p in encoder.layers[0].parameters())
    assert recurrent == 21_751_200 == sum(p.numel() for p in decoder.layers[0].parameters())
    table = encoder.embeddings.tokens.weight.numel()
    assert table + 3 * recurrent + sum(p.numel() for p in words.parameters()) == 125_673_600


def test_a_condition_at_every_step_is_a_term_of_every_gate() -> None:
    made = network(condition="every_step")
    condition = torch.randn(3, 8)
    layer = made.layers[0]
    words, also = layer.input.weight.split([5, 8], 1)
    theirs: Any = nn.GRU(5, 8, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(words)
        theirs.weight_hh_l0.copy_(layer.recurrent.weight)
        theirs.bias_hh_l0.zero_()
    for row in range(3):
        with torch.no_grad():
            theirs.bias_ih_l0.copy_(layer.input.bias + also @ condition[row])
        hidden, _ = theirs(made.embeddings(tokens()[row : row + 1]))
        found = made(want=WANT, tokens=tokens()[row : row + 1], condition=condition[row : row + 1])["hidden"]
        torch.testing.assert_close(found, hidden, atol=1e-6, rtol=1e-5)


def test_an_initial_condition_is_the_first_state_and_no_more() -> None:
    made, condition = network(condition="initial"), torch.randn(3, 8)
    hidden, _ = torchs(made.layers[0])(made.embeddings(tokens()), condition[None])
    found = made(want=WANT, tokens=tokens(), condition=condition)["hidden"]
    torch.testing.assert_close(found, hidden, atol=1e-6, rtol=1e-5)


def test_the_first_token_can_be_a_vector_of_zeros() -> None:
    made = network(first="zero")
    x = made.embeddings(tokens())
    x[:, 0] = 0
    hidden, _ = torchs(made.layers[0])(x)
    torch.testing.assert_close(made(want=WANT, tokens=tokens())["hidden"], hidden, atol=1e-6, rtol=1e-5)


def test_both_directions_end_at_both_ends_of_the_text() -> None:
    made, lengths = network(both_directions=True), torch.tensor([6, 4, 1])
    block = (torch.arange(6) < lengths[:, None]).long()
    states = made(want=WANT, tokens=tokens(), order="open", block=block)
    for row, length in enumerate(lengths.tolist()):
        x = made.embeddings(tokens()[row : row + 1, :length])
        (ahead, one), (back, other) = (torchs(layer)(side) for layer, side in zip(made.layers, (x, x.flip(1)), strict=True))
        torch.testing.assert_close(states["summary"][row], torch.cat([one[0, 0], other[0, 0]]), atol=1e-6, rtol=1e-5)
        both = torch.cat([ahead, back.flip(1)], 2)[0]
        torch.testing.assert_close(states["hidden"][row, :length], both, atol=1e-6, rtol=1e-5)


def test_recurrent_maps_begin_orthogonal_and_all_else_within_the_bound() -> None:
    made = network(width=20)
    for gate in made.layers[0].recurrent.weight.chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(20), atol=1e-5, rtol=0)
    for weight in (made.embeddings.tokens.weight, made.layers[0].input.weight):
        assert 0.09 < float(weight.detach().abs().max()) <= 0.1
    assert not made.layers[0].input.bias.any() and made.layers[0].recurrent.bias is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match="even"):
        network(both_directions=True, width=7)
    with pytest.raises(RecipeError, match="take: "):
        network(condition="initial")(want=WANT, tokens=tokens())
    with pytest.raises(RecipeError, match="order: left_to_right"):
        network()(want=WANT, tokens=tokens(), order="open")


def learnt(neighbour: str, condition: str, steps: int = 220) -> float:
    """The last loss of an encoder and a decoder where the next sentence is a `copy`, or any other."""
    torch.manual_seed(3)
    encoder = GRU(width=48, embedding_width=12, vocab_size=7, clock=Clock())
    decoder = GRU(width=48, embedding_width=12, condition=condition, first="zero", vocab_size=7, clock=Clock())  # type: ignore[arg-type]
    out = nn.Linear(48, 7)
    parts = nn.ModuleList([encoder, decoder, out])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        text = torch.randint(1, 7, (64, 3))
        after = text if neighbour == "copy" else text[torch.randperm(64)]
        summary = encoder(want=frozenset({"summary"}), tokens=text)["summary"]
        shown = torch.cat([torch.zeros(64, 1, dtype=torch.long), after[:, :-1]], 1)
        hidden = decoder(want=frozenset({"hidden"}), tokens=shown, condition=summary)["hidden"]
        loss = F.cross_entropy(out(hidden).flatten(0, 1), after.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses[-10:]) / 10


@pytest.mark.parametrize("condition", ["every_step", "initial"])
def test_a_neighbour_that_is_a_copy_is_learnt_and_one_out_of_order_is_not(condition: str) -> None:
    assert learnt("copy", condition) < 0.1
    assert learnt("shuffled", condition, 80) > 1.6  # ln 6 = 1.79


@pytest.mark.parametrize("condition", [None, "every_step", "initial"])
def test_in_bfloat16_states_stay_float32_and_near(condition: Any) -> None:
    made, given = network(condition=condition), {} if condition is None else {"condition": torch.randn(3, 8)}
    exact = made(want=WANT, tokens=tokens(), **given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = made(want=WANT, tokens=tokens(), **{name: value.bfloat16() for name, value in given.items()})
    for name in WANT:
        assert short[name].dtype == torch.float32
        torch.testing.assert_close(short[name], exact[name], atol=0.02, rtol=0.02)
    short["summary"].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())
