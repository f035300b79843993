"""The adaptive softmax: a distribution over all tokens, whose loss needs only the clusters of its answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks.blocks.inputs.adaptive import AdaptiveEmbedding
from cloze.objectives.tokens.adaptive import adaptive_prediction
from cloze.objectives.tokens.token_prediction import token_prediction

V, D = 30, 8


def made(cutoffs: tuple[int, ...] = (6, 15), divide: int = 1, **changes: Any) -> Any:
    torch.manual_seed(0)
    table = AdaptiveEmbedding(vocab_size=V, width=D, cutoffs=cutoffs, divide=divide)
    given = {"width": D, "vocab_size": V, "table": table.single or table, **changes}
    head = adaptive_prediction(cutoffs=cutoffs, divide=divide, **given)
    with torch.no_grad():
        for parameter in [*table.parameters(), *head.parameters()]:
            parameter.normal_(std=0.5)
    return head, table


def asked(rows: int = 12) -> tuple[dict[str, torch.Tensor], Batch]:
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, 10, D, generator=g)
    positions = torch.randperm(20, generator=g)[:rows]
    return {"hidden": hidden}, Batch({"positions/main": positions, "targets/main": torch.randint(V, (rows,), generator=g)})


@pytest.mark.parametrize("divide", [1, 2])
@pytest.mark.parametrize("tie", [True, False])
def test_scores_are_a_distribution_and_the_loss_is_theirs(divide: int, tie: bool) -> None:
    head, _ = made(divide=divide, tie=tie)
    states, batch = asked()
    scores = head.scores(states, batch)
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(12))
    expected = -scores.gather(1, batch["targets/main"][:, None]).sum()
    found = head(states, batch)
    torch.testing.assert_close(found.total, expected)
    assert float(found.metrics["beyond"]) == float((batch["targets/main"] >= 6).sum())
    torch.testing.assert_close(head.loss(scores, batch).total, expected)


def test_weights_belong_to_their_answers() -> None:
    head, _ = made()
    states, batch = asked()
    weights = torch.arange(12.0)
    losses = -head.scores(states, batch).gather(1, batch["targets/main"][:, None]).squeeze(1)
    torch.testing.assert_close(head(states, Batch({**batch, "weights/main": weights})).total, (losses * weights).sum())


def test_without_cutoffs_it_is_the_plain_softmax() -> None:
    head, table = made(cutoffs=())
    plain = token_prediction(tie=True, width=D, vocab_size=V, table=table.single)
    with torch.no_grad():
        plain.head.bias.copy_(head.head.bias)
    states, batch = asked()
    torch.testing.assert_close(head(states, batch).total, plain(states, batch).total)


def test_zero_answers_give_a_zero_connected_to_every_parameter() -> None:
    head, table = made(divide=2)
    states, batch = asked(0)
    total = head(states, batch).total
    total.backward()
    assert float(total.detach()) == 0.0
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_tied_vectors_are_stored_by_the_network_alone() -> None:
    head, _ = made(divide=2)
    names = [name for name, _ in head.named_parameters()]
    assert names == ["head.bias", "head.cluster_weight", "head.cluster_bias", "head.projections.0"]
    untied, _ = made(divide=2, tie_projections=False)
    assert {f"head.projections.{n}" for n in range(3)} <= {name for name, _ in untied.named_parameters()}


def test_the_first_loss_of_small_weights_is_that_of_equal_shares() -> None:
    head, table = made()
    with torch.no_grad():
        for parameter in [*table.parameters(), *head.parameters()]:
            parameter.zero_()
    states, batch = asked()
    sizes = [6, 9, 15]
    expected = sum(
        math.log(8) + (math.log(sizes[cluster]) if cluster else 0.0)
        for cluster in [0 if t < 6 else 1 if t < 15 else 2 for t in batch["targets/main"].tolist()]
    )
    assert float(head(states, batch).total.detach()) == pytest.approx(expected, rel=1e-5)


def test_what_does_not_fit_is_refused_in_plain_words() -> None:
    with pytest.raises(RecipeError, match="must ascend"):
        made(cutoffs=(15, 6))
    with pytest.raises(RecipeError, match="has no token table"):
        adaptive_prediction(cutoffs=(5,), width=D, vocab_size=V, table=None)
    table = AdaptiveEmbedding(vocab_size=V, width=D, cutoffs=(6,), divide=2)
    with pytest.raises(RecipeError, match="other clusters"):
        adaptive_prediction(cutoffs=(7,), divide=2, width=D, vocab_size=V, table=table)
    with pytest.raises(RecipeError, match="adaptive_prediction"):
        token_prediction(tie=True, width=D, vocab_size=V, table=table)  # type: ignore[arg-type]
