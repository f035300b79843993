"""Heads over all tokens of a text: padding has no part in them, and the published numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.blocks.dropout import name_dropouts
from cloze.objectives.pooled import PooledClassification, attention_weights, pooled, pooled_classification

HEADS: dict[str, dict[str, Any]] = {
    "concat": {"pool": "concat", "hidden": 5, "norm": True, "pooled_dropout": 0.4, "dropout": 0.1},
    "attention": {"pool": "attention", "energy_dropout": 0.3},
    "siatl": {"pool": "attention", "recurrent": 6, "energy_dropout": 0.3},
    "mean": {"pool": "mean"},
    "max": {"pool": "max"},
    "last": {"pool": "last", "recurrent": 4},
    "ends": {"pool": "ends", "hidden": 5, "dropout": 0.1},
}


def head(name: str, classes: int = 3) -> PooledClassification:
    torch.manual_seed(0)
    made = pooled_classification(**HEADS[name], classes=classes, width=4, clock=Clock(seed=1))
    name_dropouts(made)
    return made.eval()


def batch(rows: int, lengths: list[int], length: int) -> Batch:
    block = (torch.arange(length) < torch.tensor(lengths)[:, None]).long()
    return Batch({"block": block, "positions/label": torch.arange(rows), "targets/label": torch.arange(rows) % 3})


def test_siatls_attention_has_its_published_weights() -> None:
    energies = torch.tanh(torch.tensor([[0.0, 1.0, 5.0]]))
    weights = attention_weights(energies, torch.tensor([[True, True, False]]))
    assert weights[0].tolist() == pytest.approx([0.318300, 0.681700, 0.0], abs=1e-6) and weights[0, 2] == 0
    assert float(weights.sum()) == pytest.approx(1.0)


def test_concat_pooling_is_last_max_and_mean_of_real_tokens() -> None:
    states = torch.tensor([[[1.0, -3.0], [4.0, -1.0], [9.0, 9.0]], [[2.0, 2.0], [8.0, 8.0], [5.0, 5.0]]])
    real = torch.tensor([[True, True, False], [True, True, True]])
    assert pooled(states, real, "concat").tolist() == [[4, -1, 4, -1, 2.5, -2], [5, 5, 8, 8, 5, 5]]


def test_the_ends_of_two_directions_are_what_torchs_lstm_returns_as_its_last_states() -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(3, 2, batch_first=True, bidirectional=True)
    rows, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    packed = torch.nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True)
    states, (last, _) = lstm(packed)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True, padding_value=9.0)
    real = torch.arange(5) < lengths[:, None]
    torch.testing.assert_close(pooled(padded, real, "ends"), last.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("name", HEADS)
def test_padding_and_neighbours_change_nothing(name: str) -> None:
    made = head(name)
    states = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(2))
    lengths = [5, 2, 3]
    whole = made.scores({"hidden": states}, batch(3, lengths, 5))
    longer = torch.cat([states, torch.full((3, 4, 4), 99.0)], dim=1)
    assert torch.allclose(made.scores({"hidden": longer}, batch(3, lengths, 9)), whole, atol=1e-6)
    for row, length in enumerate(lengths):
        alone = Batch({"positions/label": torch.tensor([0])})
        assert torch.allclose(made.scores({"hidden": states[row : row + 1, :length]}, alone)[0], whole[row], atol=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_a_text_without_tokens_and_a_batch_of_one_are_no_trouble(name: str) -> None:
    made = head(name).train()
    for rows, lengths in ((2, [0, 3]), (1, [2])):
        states = torch.randn(rows, 3, 4, requires_grad=True)
        loss = made({"hidden": states}, batch(rows, lengths, 3))
        loss.total.backward()
        assert torch.isfinite(loss.total) and torch.isfinite(states.grad).all()
        assert rows == 1 or (states.grad[0] == 0).all()


@pytest.mark.parametrize("name", HEADS)
def test_zero_answers_give_a_zero_connected_to_every_parameter(name: str) -> None:
    made = head(name)
    empty = {"positions/label": torch.zeros(0, dtype=torch.long), "targets/label": torch.zeros(0, dtype=torch.long)}
    loss = made({"hidden": torch.randn(2, 3, 4)}, Batch(empty))
    assert loss.total.item() == 0 and float(made.count(Batch(empty))) == 0
    loss.total.backward()
    assert all(p.grad is not None for p in made.parameters())


def test_ulmfits_head_has_its_shape() -> None:
    made = pooled_classification(pool="concat", hidden=50, norm=True, width=400, clock=Clock())
    assert made.head.dense.in_features == 1200 and made.head.output.weight.shape == (2, 50)
    assert sum(p.numel() for p in made.parameters()) == 1200 * 2 + 1200 * 50 + 50 + 50 * 2 + 50 * 2 + 2


def test_dropout_of_energies_leaves_a_dropped_token_in_the_mean() -> None:
    """Its energy becomes 0, as in the authors' code, not minus infinity."""
    made = head("attention").train()
    attention = made.head.attention
    attention.dropout.threshold, attention.dropout.scale = 1 << 15, 1.0  # everything falls
    states = torch.randn(2, 3, 4)
    assert torch.allclose(attention(states, torch.ones(2, 3, dtype=torch.bool)), states.mean(1), atol=1e-6)


def test_normalisation_without_anything_to_normalise_is_refused() -> None:
    with pytest.raises(RecipeError, match="needs `hidden`"):
        pooled_classification(pool="attention", norm=True, width=4, clock=Clock())


def test_a_head_that_normalises_over_the_batch_says_that_its_rows_stay_together() -> None:
    assert pooled_classification(width=4, clock=Clock(), norm=True).scope == "batch"
    assert pooled_classification(width=4, clock=Clock()).scope == "row"
