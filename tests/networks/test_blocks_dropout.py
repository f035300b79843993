"""Dropout by address: its rate, its independence, and that a row drops the same numbers wherever it is dealt."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from cloze.networks import Clock
from cloze.networks.blocks.dropout import Dropout, Positions, name_dropouts, uniform_by_row

CPU = torch.device("cpu")


def dropout(rate: float = 0.1, key: int = 17, **clock: int) -> Dropout:
    made = Clock(clock.pop("seed", 1))
    made.set(**clock)
    module = Dropout(rate, made)
    module.key = key
    return module


def kept(module: Dropout, shape: tuple[int, ...] = (16, 64, 64), scores: bool = False) -> Tensor:
    if scores:
        return module.keep_scores(*shape, CPU).bool()
    return module.keep_hidden(shape, CPU).bool()


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten().float(), b.flatten().float()]))[0, 1])


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("scores", [False, True])
def test_the_rate_is_met_in_every_field(rate: float, scores: bool) -> None:
    module = dropout(rate)
    share = 1 - kept(module, (16, 4, 64, 64) if scores else (16, 256, 64), scores).float()
    fields = share.reshape(-1, 4).mean(0)
    spread = (rate * (1 - rate) / (share.numel() / 4)) ** 0.5
    assert (fields - rate).abs().max() < 4.5 * spread
    assert share.mean().item() == pytest.approx(rate, abs=4.5 * spread / 2)


@pytest.mark.parametrize("other", [{"seed": 2}, {"step": 1}, {"key": 18}, {"first_row": 16}])
def test_seeds_steps_modules_and_rows_are_independent_at_every_shift(other: dict[str, int]) -> None:
    first, second = kept(dropout(0.5)).flatten(), kept(dropout(0.5, **other)).flatten()
    bound = 5 / len(first) ** 0.5
    for shift in (0, 1, 2, 3, 4, 8, 16, 64, 4096):
        assert abs(correlation(first, second.roll(shift))) < bound, shift


def test_rows_and_fields_of_one_mask_are_independent() -> None:
    words = kept(dropout(0.5), (32, 64, 64)).view(32, -1, 4)
    bound = 5 / words[0, :, 0].numel() ** 0.5
    for a, b in itertools.combinations(range(4), 2):
        assert abs(correlation(words[..., a], words[..., b])) < bound
    pairs = torch.corrcoef(words.flatten(1).float()) - torch.eye(32)
    assert pairs.abs().max() < 5.5 / words[0].numel() ** 0.5
    assert pairs.std().item() == pytest.approx(words[0].numel() ** -0.5, rel=0.2)


def test_the_number_of_drops_in_a_row_varies_as_chance_would_have_it() -> None:
    drops = (~kept(dropout(0.1), (512, 16, 64))).flatten(1).float().sum(1)
    assert drops.var().item() == pytest.approx(1024 * 0.1 * 0.9, rel=0.25)


@pytest.mark.parametrize("scores", [False, True])
def test_a_row_drops_the_same_numbers_in_any_micro_batch(scores: bool) -> None:
    shape = (4, 8, 8) if scores else (8, 16)
    whole = kept(dropout(step=3), (6, *shape), scores)
    parts = [kept(dropout(step=3, first_row=start), (2, *shape), scores) for start in (0, 2, 4)]
    assert torch.equal(whole, torch.cat(parts))


def test_padding_a_row_does_not_move_its_drops() -> None:
    short, long = kept(dropout(), (3, 5, 16)), kept(dropout(), (3, 9, 16))
    assert torch.equal(short, long[:, :5])
    narrow, wide = kept(dropout(), (3, 2, 5, 6), True), kept(dropout(), (3, 2, 9, 11), True)
    assert torch.equal(narrow, wide[:, :, :5, :6])


def test_gathered_rows_drop_what_they_drop_in_place() -> None:
    module = dropout(step=5, first_row=9)
    whole = module.keep_hidden((4, 6, 10), CPU)
    positions = Positions(torch.tensor([0, 3, 3, 1]), torch.tensor([5, 0, 2, 4]))
    assert torch.equal(module.keep_hidden((4, 10), CPU, positions), whole[positions.row, positions.column])


def test_gathered_queries_drop_what_they_drop_in_place() -> None:
    module = dropout(step=5)
    whole = module.keep_scores(2, 3, 8, 7, CPU)
    columns = torch.tensor([[1, 6], [0, 0]])
    some = module.keep_scores(2, 3, 8, 7, CPU, columns)
    assert all(torch.equal(some[row, :, k], whole[row, :, columns[row, k]]) for row in (0, 1) for k in (0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_stays_is_scaled_and_gradients_fall_alike(dtype: torch.dtype) -> None:
    module = dropout(0.25)
    x = torch.ones(4, 32, 16, dtype=dtype, requires_grad=True)
    y = module(x)
    assert set(y.detach().double().unique().tolist()) == {0.0, float(torch.tensor(4 / 3, dtype=dtype))}
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_eval_and_rate_zero_are_the_identity() -> None:
    x = torch.randn(2, 3, 4)
    assert dropout(0.5).eval()(x) is x and dropout(0.0)(x) is x


def test_the_element_hash_of_other_devices_has_the_rate_and_the_independence() -> None:
    one, two = (dropout(0.5, step=step)._by_element((16, 64, 64), CPU) for step in (0, 1))
    assert one.float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert abs(correlation(one, two)) < 0.02 and abs(correlation(one[:8], one[8:])) < 0.02
    part = dropout(0.5, first_row=8)._by_element((8, 64, 64), CPU)
    assert torch.equal(part, one[8:])


def test_names_give_every_dropout_its_own_key() -> None:
    root = nn.ModuleDict({name: Dropout(0.1, Clock()) for name in "abc"})
    name_dropouts(root)
    assert len({module.key for module in root.values()}) == 3
    again = nn.ModuleDict({name: Dropout(0.1, Clock()) for name in "abc"})
    name_dropouts(again)
    assert [module.key for module in again.values()] == [module.key for module in root.values()]


def test_uniform_numbers_follow_the_row_not_the_micro_batch() -> None:
    row, position = torch.tensor([0, 1, 1, 2]), torch.tensor([3, 3, 4, 0])
    clock, later = Clock(4), Clock(4)
    later.set(first_row=1)
    whole = uniform_by_row(clock, "x", row, position)
    assert torch.equal(whole[1:], uniform_by_row(later, "x", row[1:] - 1, position[1:]))
    many = uniform_by_row(clock, "x", torch.arange(20000), torch.zeros(20000, dtype=torch.long))
    assert many.mean().item() == pytest.approx(0.5, abs=0.01) and many.min() >= 0 and many.max() < 1


def test_an_impossible_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="not in"):
        Dropout(1.0, Clock())
