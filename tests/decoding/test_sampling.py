"""Choosing the next token."""

from __future__ import annotations

import pytest
import torch

from cloze.decoding.generating.sampling import Sampling
from cloze.errors import UserError

P = torch.tensor([0.1, 0.4, 0.2, 0.3])


def drawn(sampling: Sampling, count: int = 4000) -> torch.Tensor:
    uniform = (torch.arange(count) + 0.5) / count
    return sampling.choose(P.log().expand(count, -1), uniform).bincount(minlength=4) / count


def test_all_tokens_come_with_their_probability() -> None:
    assert torch.allclose(drawn(Sampling()), P, atol=1e-3)


def test_top_k_keeps_the_k_most_probable() -> None:
    assert torch.allclose(drawn(Sampling(top_k=2)), torch.tensor([0, 4 / 7, 0, 3 / 7]), atol=1e-3)


def test_top_p_includes_the_token_that_crosses() -> None:
    assert torch.allclose(drawn(Sampling(top_p=0.5)), torch.tensor([0, 4 / 7, 0, 3 / 7]), atol=1e-3)
    assert torch.allclose(drawn(Sampling(top_p=0.39)), torch.tensor([0.0, 1, 0, 0]))
    assert torch.allclose(drawn(Sampling(top_p=1.0)), P, atol=1e-3)


def test_temperature_sharpens_and_zero_is_greedy() -> None:
    expected = P**2 / (P**2).sum()
    assert torch.allclose(drawn(Sampling(temperature=0.5)), expected.float(), atol=1e-3)
    assert torch.allclose(drawn(Sampling(temperature=0.0)), torch.tensor([0.0, 1, 0, 0]))


def test_extreme_random_numbers_choose_a_legal_token() -> None:
    scores = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]]).expand(2, -1)
    chosen = Sampling(top_k=3).choose(scores, torch.tensor([0.0, 1 - 2**-32], dtype=torch.float64))
    assert set(chosen.tolist()) == {0, 2}


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"min_p": 0.0}, {"typical_p": 2.0}]
)
def test_impossible_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong)).replace("_", "-")):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_min_p_keeps_what_is_at_least_so_many_times_as_probable_as_the_best() -> None:
    assert torch.allclose(drawn(Sampling(min_p=0.45)), torch.tensor([0, 4 / 9, 2 / 9, 3 / 9]), atol=1e-3)
    assert torch.allclose(drawn(Sampling(min_p=0.76)), torch.tensor([0.0, 1, 0, 0]))
    assert torch.allclose(drawn(Sampling(top_p=0.5, min_p=0.5)), torch.tensor([0, 4 / 7, 0, 3 / 7]), atol=1e-3)


def test_typical_p_prefers_the_tokens_whose_information_is_nearest_to_the_entropy() -> None:
    """The entropy of P is 1.28 nats; -log P is 2.30, 0.92, 1.61 and 1.20."""
    assert torch.allclose(drawn(Sampling(typical_p=0.2)), torch.tensor([0.0, 0, 0, 1]))
    assert torch.allclose(drawn(Sampling(typical_p=0.4)), torch.tensor([0, 0, 2 / 5, 3 / 5]), atol=1e-3)
    assert torch.allclose(drawn(Sampling(typical_p=0.6)), torch.tensor([0, 4 / 9, 2 / 9, 3 / 9]), atol=1e-3)
