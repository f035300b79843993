"""The recurrent language model: published sizes, torch's layers without dropout, its five dropouts, its state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import LSTM, Clock
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.blocks.recurrence.locked import LockedDropout, WordDropout
from cloze.networks.network import state_width
from cloze.objectives import token_prediction
from tests.making import network_of

HIDDEN = frozenset({"hidden"})


def network(**changed: Any) -> LSTM:
    torch.manual_seed(0)
    arguments = {"layers": 3, "width": 8, "inner": 12, "vocab_size": 30, "clock": Clock(), **changed}
    return network_of("lstm", **arguments)


def tokens(rows: int = 2, length: int = 10) -> Tensor:
    return torch.randint(0, 30, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("vocabulary", "parameters"), [(10_000, 24_221_600), (33_278, 33_556_078)])
def test_awd_lstm_has_the_published_size(vocabulary: int, parameters: int) -> None:
    with torch.device("meta"):
        made = LSTM(layers=3, width=400, inner=1150, vocab_size=vocabulary, clock=Clock())
        head = token_prediction(tie=True, width=400, vocab_size=vocabulary, table=made.token_tables["tokens"])
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in made.layers]
    assert sizes == [7_139_200, 10_589_200, 2_483_200]
    assert sum(p.numel() for p in [*made.parameters(), *head.parameters()]) == parameters


def test_siatls_last_layer_is_mapped_down_to_the_table() -> None:
    made = network(layers=2, width=8, inner=20, down=True)
    assert made.down is not None and made.down.weight.shape == (8, 20)
    states = made.eval()(want=frozenset({"hidden", "undropped"}), tokens=tokens())
    assert states["hidden"].shape == (2, 10, 8) and states["undropped"].shape == (2, 10, 20)
    assert state_width(made, {"hidden": "undropped"}) == 20 and state_width(made, {}) == 8
    torch.testing.assert_close(states["hidden"], made.down(states["undropped"]))


def test_without_dropout_it_is_a_stack_of_torchs_layers() -> None:
    made = network()
    x = made.embeddings.tokens.weight[tokens()]  # type: ignore[union-attr]
    for layer in made.layers:
        theirs = nn.LSTM(x.shape[2], layer.cell, batch_first=True)
        own = [layer.input.weight, layer.recurrent.weight, layer.bias, layer.recurrent.bias]
        with torch.no_grad():
            for mine, other in zip(own, theirs.parameters(), strict=True):
                other.copy_(mine)  # type: ignore[arg-type]
        x, _ = theirs(x)
    for mode in (True, False):
        torch.testing.assert_close(made.train(mode)(want=HIDDEN, tokens=tokens())["hidden"], x, atol=1e-6, rtol=1e-5)


def test_everything_is_drawn_from_the_bound() -> None:
    made = network(bound=0.05, down=True)
    assert all(0.04 < float(p.detach().abs().max()) <= 0.05 for p in made.parameters())
    usual = network()
    assert 0.09 < float(usual.embeddings.tokens.weight.detach().abs().max()) <= 0.1  # type: ignore[union-attr]
    assert 0.2 < float(usual.layers[0].bias.detach().abs().max()) <= 12**-0.5


def test_a_character_aware_lstm_begins_between_its_bounds_in_every_parameter_and_drops_no_input_of_its_first_layer() -> None:
    from cloze.checkpoint.build import build_step
    from cloze.recipe.load import load_recipe

    recipe = load_recipe("lstm-char", size="tiny")
    step = build_step(recipe, vocab_size=40, seed=3)
    made: Any = step.networks["main"]
    gates = {name for name, _ in step.named_parameters() if name.endswith("gate.bias")}
    assert len(gates) == 2
    for name, parameter in step.named_parameters():
        middle = -2.0 if name in gates else 0.0
        spread = float((parameter.detach() - middle).abs().max())
        assert 0.035 < spread <= 0.05 + 1e-6, (name, spread)
    assert made.embeddings.characters.padding == "zero"
    assert made.input_dropout.rate == 0 and [one.rate for one in made.hidden_dropouts] == [0.5]
    assert made.final_dropout.rate == 0.5


def test_locked_dropout_drops_the_same_numbers_at_every_step_and_others_in_every_row() -> None:
    dropout = LockedDropout(0.4, Clock())
    name_dropouts(nn.ModuleDict({"d": dropout}))
    zero = dropout(torch.ones(3, 7, 50)) == 0
    assert torch.equal(zero, zero[:, :1].expand_as(zero)) and not torch.equal(zero[0], zero[1])
    assert dropout(torch.ones(1, 1, 50)).max() == pytest.approx(1 / 0.6, rel=1e-3)


def test_dropped_words_are_zero_wherever_they_stand_and_the_table_stays_whole() -> None:
    dropout, table = WordDropout(0.3, Clock()), nn.Embedding(40, 4)
    vectors = dropout.look_up(torch.arange(40).expand(2, 40), table.weight)
    dropped = (vectors == 0).all(-1)
    assert torch.equal(dropped[0], dropped[1]) and 3 < int(dropped[0].sum()) < 22
    kept = ~dropped[0]
    torch.testing.assert_close(vectors[0, kept], table.weight[kept] * dropout.scale)
    assert not (table.weight == 0).any()


def test_rows_drop_the_same_however_they_are_dealt() -> None:
    dropouts = {"dropout.word": 0.2, "dropout.input": 0.3, "dropout.weight": 0.5, "dropout.hidden": 0.3, "dropout.output": 0.4}
    clock = Clock()
    made = network(**dropouts, clock=clock)
    whole = made(want=HIDDEN, tokens=tokens(4))["hidden"]
    parts = []
    for first in (0, 2):
        clock.set(first_row=first)
        parts.append(made(want=HIDDEN, tokens=tokens(4)[first : first + 2])["hidden"])
    torch.testing.assert_close(torch.cat(parts), whole)
    assert not torch.allclose(whole, made.eval()(want=HIDDEN, tokens=tokens(4))["hidden"])


@pytest.mark.parametrize("reuse", [0, 1, 3])
def test_a_stream_in_pieces_is_the_stream_in_one(reuse: int) -> None:
    made, row = network(reuse=reuse).eval(), tokens(2, 20)
    whole = made(want=HIDDEN, tokens=row)["hidden"]
    carry, start, restarts = None, 0, torch.ones(2, dtype=torch.bool)
    while start + reuse < 20:
        piece = row[:, start : start + 7]
        states = made(want=HIDDEN | {"carry"}, tokens=piece, carry=carry, restarts=restarts)
        torch.testing.assert_close(states["hidden"], whole[:, start : start + 7], atol=1e-6, rtol=1e-5)
        carry, start, restarts = states["carry"], start + 7 - reuse, torch.zeros(2, dtype=torch.bool)


def test_restarts_forget_and_what_is_carried_has_no_gradient() -> None:
    made, row = network(), tokens(2, 6)
    carry = made(want=frozenset({"carry"}), tokens=row)["carry"]
    assert not any(state.requires_grad for state in carry.values()) and len(carry) == 6
    fresh = made(want=HIDDEN, tokens=row)["hidden"]
    gone_on = made(want=HIDDEN, tokens=row, carry=carry, restarts=torch.tensor([True, False]))["hidden"]
    torch.testing.assert_close(gone_on[0], fresh[0])
    assert not torch.allclose(gone_on[1], fresh[1])


def test_a_cache_continues_where_it_stopped() -> None:
    made, row = network(down=True).eval(), tokens()
    whole, cache = made(want=HIDDEN, tokens=row)["hidden"], made.cache()
    parts = [made(want=HIDDEN, tokens=part, cache=cache)["hidden"] for part in row.split([4, 1, 5], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-6, rtol=1e-5)
    assert cache.length == 10


def test_padding_changes_nothing_and_the_summary_is_the_last_token() -> None:
    made, row = network().eval(), tokens(2, 8)
    block = torch.tensor([[1] * 8, [1] * 3 + [0] * 5])
    states = made(want=HIDDEN | {"summary"}, tokens=row, block=block)
    alone = made(want=HIDDEN, tokens=row[1:, :3])["hidden"]
    torch.testing.assert_close(states["hidden"][1, :3], alone[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(states["summary"][1], alone[0, -1], atol=1e-6, rtol=0)


def test_what_it_cannot_read_is_refused() -> None:
    made = network()
    with pytest.raises(RecipeError, match="order: left_to_right"):
        made(want=HIDDEN, tokens=tokens(), order="open")
    with pytest.raises(RecipeError, match="several texts"):
        made(want=HIDDEN, tokens=tokens(1, 4), block=torch.tensor([[1, 1, 2, 2]]))
    with pytest.raises(RecipeError, match="at least one layer"):
        network(layers=0)


def test_it_learns_a_markov_chain_to_its_entropy_and_not_below() -> None:
    moves = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
    made = network(layers=1, width=16, vocab_size=3)
    head = token_prediction(tie=True, width=16, vocab_size=3, table=made.token_tables["tokens"])
    optimizer = torch.optim.Adam([*made.parameters(), *head.parameters()], lr=0.01)
    generator = torch.Generator().manual_seed(0)

    def loss(rows: int) -> Tensor:
        steps = [torch.multinomial(torch.tensor([0.3125, 0.520833, 0.166667]), rows, True, generator=generator)]
        for _ in range(32):
            steps.append(torch.multinomial(moves[steps[-1]], 1, generator=generator)[:, 0])
        row = torch.stack(steps, 1)
        positions = torch.arange(rows * 32)
        batch = Batch({"targets/main": row[:, 1:].flatten(), "positions/main": positions})
        return head({"hidden": made(want=HIDDEN, tokens=row[:, :-1])["hidden"]}, batch).total / len(positions)

    for _ in range(120):
        optimizer.zero_grad()
        loss(32).backward()
        optimizer.step()
    with torch.no_grad():
        perplexity = math.exp(float(loss(4000)))
    assert 2.131198 - 0.01 < perplexity < 2.16
