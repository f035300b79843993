"""Tokens without their padding: as many rows as a multiple of 64, of which those that repeat are neither read nor taught."""

from __future__ import annotations

import pytest
import torch

from cloze.networks import EncoderDecoder, Transformer
from cloze.networks.blocks import selected
from cloze.networks.blocks.selected import ROWS, Selected, rows_to_add
from cloze.networks.clock import Clock
from cloze.networks.network import TokenSequence


@pytest.fixture(autouse=True)
def evened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are evened out like many."""
    monkeypatch.setattr(selected, "_FEW", 1)


def block_of(*lengths: int) -> torch.Tensor:
    """Blocks (B, L): 1 at a row's tokens, 0 behind them."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).int()


def test_rows_are_a_multiple_and_the_last_token_is_repeated() -> None:
    for lengths in ((50, 20, 3), (64,), (64, 1), (1,)):
        block = block_of(*lengths)
        real = Selected.real(block)
        assert len(real.flat) % ROWS == 0 and real.count == sum(lengths) and len(real.flat) - real.count < ROWS
        assert torch.equal(real.flat[: real.count], block.flatten().nonzero().view(-1))
        assert (real.flat[real.count :] == real.flat[real.count - 1]).all()


def test_without_tokens_there_are_no_rows() -> None:
    real = Selected.real(torch.zeros(2, 5, dtype=torch.int32))
    assert real.count == 0 and len(real.flat) == 0


def test_gathering_and_spreading_give_back_tokens_and_their_gradient_once() -> None:
    block = block_of(5, 3)
    real = Selected.real(block)
    x = torch.randn(2, 5, 4, dtype=torch.double, requires_grad=True)
    back = real.put_back(real.take(x))
    assert torch.equal(back, x * (block > 0)[..., None])
    (gradient,) = torch.autograd.grad((back * 2).sum(), x)
    assert torch.equal(gradient, 2.0 * (block > 0)[..., None].expand(x.shape))


def test_heads_are_put_together_with_zeros_in_what_repeats() -> None:
    real = Selected.real(block_of(5, 3))
    rows = torch.randn(len(real.flat), 3 * 2 * 4)
    rows[real.count :] = rows[real.count - 1]
    together = real.merge_heads(real.split_heads(rows, 3, 2), 2)
    assert torch.equal(together[: real.count], rows[: real.count]) and (together[real.count :] == 0).all()


def test_places_that_nobody_asked_for_change_no_gradient() -> None:
    torch.manual_seed(0)
    network = Transformer(layers=2, width=16, heads=2, vocab_size=30, clock=Clock()).double().train()
    tokens, positions = torch.randint(0, 30, (4, 40)), torch.tensor([0, 7, 41, 85, 159])
    found = []
    for chosen in (positions, None):
        hidden = network(want=frozenset({"hidden"}), tokens=tokens, positions=chosen)["hidden"].flatten(0, 1)
        if chosen is not None:
            assert int((hidden != 0).any(1).sum()) == ROWS
        read = hidden[positions]
        found.append((read, torch.autograd.grad((read**2).sum(), list(network.parameters()), allow_unused=True)))
    (rows, gradients), (wanted_rows, wanted) = found
    torch.testing.assert_close(rows, wanted_rows)
    for one, other in zip(gradients, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_few_rows_stay_as_they_are_and_many_grow_by_an_eighth_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [rows_to_add(count) for count in (0, 1, 65, 511, 512, 513, 4095)] == [0, 0, 0, 0, 0, 63, 1]
    assert Selected.real(block_of(50, 20, 3)).count == len(Selected.real(block_of(50, 20, 3)).flat) == 73


def test_rows_that_are_added_change_nothing_in_an_encoder_and_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = EncoderDecoder(layers=1, width=16, heads=2, vocab_size=30, dropout=0.2, clock=Clock()).double().train()
    source, target = torch.randint(0, 30, (3, 9)), torch.randint(0, 30, (3, 7))
    found = []
    for few in (1, 1 << 40):
        monkeypatch.setattr(selected, "_FEW", few)
        made = network(
            want=frozenset({"decoder_hidden"}), tokens=source, block=block_of(9, 4, 6),
            decoder=TokenSequence(target, block=block_of(3, 7, 5)),
        )["decoder_hidden"]
        found.append([made, *torch.autograd.grad((made**2).sum(), list(network.parameters()), allow_unused=True)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
