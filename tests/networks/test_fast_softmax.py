"""The softmax of attention: compiled code and torch's passes make the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cloze.networks.fast import switch
from cloze.networks.fast.softmax import soften


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code from the first number on."""
    pytest.importorskip("numba")
    monkeypatch.setattr(switch, "_MANY", 1)
    monkeypatch.setattr(switch, "_FEW_THREADS", 1 << 10)


def wanted(scores: Tensor, added: Tensor | None, heads: int) -> Tensor:
    """The softmax in float64."""
    wide = scores.double()
    if added is not None:
        wide = (wide.view(-1, heads, *scores.shape[1:]) + added.double()).view(wide.shape)
    return wide.softmax(-1)


SHAPES = [None, (7,), (5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7), (2, 3, 1, 7)]


@pytest.mark.parametrize("keys", [1, 7, 16, 31, 64, 111])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compiled_softmax_is_the_softmax_of_the_sum(keys: int, shape: tuple[int, ...] | None, compiled: None) -> None:
    torch.manual_seed(keys)
    scores = (2 * torch.randn(6, 5, keys)).bfloat16()
    added = None if shape is None else torch.randn(*shape[:-1], keys).bfloat16()
    right = wanted(scores, added, 3)
    shares, used = soften(scores, added, None, 3)
    assert shares is scores and used is scores
    torch.testing.assert_close(shares.double(), right, rtol=2**-8, atol=0)  # one rounding
    assert (shares.double() - right).abs().mean() < right.mean() * 2**-9


@pytest.mark.parametrize("keys", [7, 111])
def test_what_is_masked_is_exactly_zero_and_what_falls_is_left_out(keys: int, compiled: None) -> None:
    torch.manual_seed(0)
    scores = torch.randn(6, 5, keys).bfloat16()
    added = torch.zeros(2, 1, 1, keys).masked_fill_(torch.rand(2, 1, 1, keys) < 0.4, float("-inf")).bfloat16()
    added[..., 0] = 0
    keep = -(torch.rand(2, 3, 5, keys) < 0.5).short()
    right = wanted(scores, added, 3)
    shares, used = soften(scores, added, keep, 3)
    assert torch.equal(shares == 0, right == 0)
    assert torch.equal(used, torch.where(keep.view_as(used) == -1, shares, 0.0))
    torch.testing.assert_close(shares.double(), right, rtol=2**-8, atol=0)


@pytest.mark.parametrize("dropped", [False, True])
def test_without_compiled_code_the_numbers_are_near(dropped: bool, monkeypatch: pytest.MonkeyPatch, compiled: None) -> None:
    torch.manual_seed(1)
    scores, added = torch.randn(6, 5, 33).bfloat16(), torch.randn(1, 3, 5, 33).bfloat16()
    keep = -(torch.rand(2, 3, 5, 33) < 0.9).short() if dropped else None
    fast = soften(scores.clone(), added, keep, 3)
    monkeypatch.setattr(switch, "_MANY", 1 << 60)
    for one, other in zip(fast, soften(scores.clone(), added, keep, 3), strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0)
        assert torch.equal(one == 0, other == 0)


def test_a_row_with_what_is_not_a_number_is_none(compiled: None) -> None:
    scores = torch.zeros(3, 2, 20).bfloat16()
    scores[1, 0, 17] = float("nan")
    shares, _ = soften(scores, None, None, 3)
    assert shares.isnan().any(-1).tolist() == [[False, False], [True, False], [False, False]]
