"""Objectives about items: deviations of numbers, optimal transport against linear programs, the right item among others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import ContrastItems, ContrastPairs, Embedding, Transport, classify, regress
from cloze.objectives.distances.transport import transport_plan
from cloze.objectives.transforms import Gelu

WIDTH, NUMBERS = 6, 5


def made(**changed: Any) -> Any:
    arguments = {"set": "features", "numbers": NUMBERS, "reading": "hidden", **changed}
    return regress(**arguments, width=WIDTH, clock=Clock(1)).double()


def example(seed: int = 0) -> tuple[dict[str, Tensor], Tensor, Batch]:
    """States of items, the values of three of them, and the batch."""
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(2, 4, WIDTH, generator=draw, dtype=torch.double)
    values = torch.rand(3, NUMBERS, generator=draw, dtype=torch.double)
    return {"hidden": states}, values, Batch({"values/features": values.float(), "positions/features": torch.tensor([1, 4, 7])})


@pytest.mark.parametrize("deviation", ["squared", "smooth_l1", "kl", "kl_mean"])
def test_the_numbers_of_items_are_read_at_their_positions(deviation: str) -> None:
    objective = made(deviation=deviation)
    states, values, batch = example()
    scores = objective.head(states["hidden"].flatten(0, 1)[[1, 4, 7]])
    shares = values.float().double()
    expected = {
        "squared": (scores - shares).square().mean(1),
        "smooth_l1": nn.functional.smooth_l1_loss(scores, shares, reduction="none").mean(1),
        "kl": torch.distributions.kl_divergence(
            torch.distributions.Categorical(shares / shares.sum(1, keepdim=True)), torch.distributions.Categorical(logits=scores)
        ),
        # UNITER's code (model/pretrain.py, forward_mrc; pretrain.py) takes the mean of this over rows and classes.
        "kl_mean": nn.functional.kl_div(
            scores.log_softmax(1), shares / shares.sum(1, keepdim=True), reduction="none"
        ).mean(1),
    }[deviation]
    torch.testing.assert_close(objective(states, batch).total, expected.sum(), rtol=1e-6, atol=1e-6)
    weighed = Batch({**batch, "weights/features": torch.tensor([1.0, 0.5, 0.0])})
    torch.testing.assert_close(objective(states, weighed).total, expected[0] + 0.5 * expected[1], rtol=1e-6, atol=1e-6)
    assert objective.count(weighed).item() == 1.5 and objective.at == ("positions/features",)


@pytest.mark.parametrize(
    "head",
    [
        lambda law: classify(classes=50, transform=Gelu(), width=64, clock=Clock(), initial=law),
        lambda law: regress(numbers=50, transform=Gelu(), width=64, clock=Clock(), initial=law),
        lambda law: regress(
            numbers=50, transform=Gelu(), tied_map="items", maps={"items": nn.Linear(50, 64)}, width=64, clock=Clock(),
            initial=law,
        ),
        lambda law: ContrastPairs(width=4000, initial=law),
        lambda law: Embedding(project="same", width=64, initial=law),
    ],
)
def test_weights_of_heads_are_cut_at_two_deviations_or_not(head: Any) -> None:
    """`init_weights` of LXMERT, ViLBERT, VL-BERT, UNITER, UniVL and SimCSE is `normal_(std=0.02)` for heads, too."""
    torch.manual_seed(0)
    largest = {
        law: min(float(weight.detach().abs().max()) for weight in head(law).parameters() if weight.dim() == 2)
        for law in ("truncated", "normal")
    }
    assert largest["truncated"] <= 0.04 < largest["normal"]


def test_a_distribution_is_no_distance_from_itself() -> None:
    objective, (_, values, batch) = made(deviation="kl"), example()
    values = torch.cat([values[:2].float().double(), torch.eye(NUMBERS, dtype=torch.double)[:1]])
    batch = Batch({**batch, "values/features": values.float()})
    loss = objective.loss(values.clamp(min=1e-12).log(), batch)
    assert float(loss.total) == pytest.approx(0, abs=1e-6)


def test_a_tied_head_is_the_networks_map_turned_round() -> None:
    source = nn.Linear(NUMBERS, WIDTH).double()
    objective = made(tied_map="regions", transform=Gelu(norm_epsilon=1e-12), maps={"regions": source})
    states, _, batch = example()
    rows = states["hidden"].flatten(0, 1)[[1, 4, 7]]
    expected = objective.head.norm(nn.functional.gelu(objective.head.dense(rows))) @ source.weight
    torch.testing.assert_close(objective.scores(states, batch), expected)
    assert [name for name, _ in objective.named_parameters()] == [
        "head.bias", "head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias",
    ]
    with pytest.raises(RecipeError, match=r"the network has no map 'frames'; it has regions"):
        made(tied_map="frames", maps={"regions": source})
    with pytest.raises(RecipeError, match=r"from 5 numbers to width 6; the head goes from width 6 to 4 numbers"):
        made(tied_map="regions", numbers=4, maps={"regions": source})


def cheapest(costs: Tensor) -> float:
    """The linear program of optimal transport between (M,) and (N,) equal weights: each point is split into lcm(M, N) / M copies,
    and the best of all permutations moves them."""
    m, n = costs.shape
    copies = math.lcm(m, n)
    spread = costs.repeat_interleave(copies // m, 0).repeat_interleave(copies // n, 1)
    if copies <= 6:
        ways = [list(order) for order in itertools.permutations(range(copies))]
        return min(float(spread[range(copies), order].sum()) for order in ways) / copies
    from scipy.optimize import linear_sum_assignment

    row, column = linear_sum_assignment(spread.numpy())
    return float(spread[row, column].sum()) / copies


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (2, 3), (3, 3), (4, 5), (5, 4), (5, 5)])
def test_the_plan_costs_what_a_linear_program_finds(m: int, n: int) -> None:
    costs = torch.rand(1, m, n, generator=torch.Generator().manual_seed(m * 10 + n), dtype=torch.double)
    sides = torch.ones(1, m, dtype=torch.bool), torch.ones(1, n, dtype=torch.bool)
    plan = transport_plan(costs, *sides, beta=0.1, steps=1000)
    torch.testing.assert_close(plan.sum(2), torch.full((1, m), 1 / m, dtype=torch.double), rtol=0, atol=1e-12)
    torch.testing.assert_close(plan.sum(1), torch.full((1, n), 1 / n, dtype=torch.double), rtol=0, atol=1e-6)
    assert float((plan * costs).sum()) == pytest.approx(cheapest(costs[0]), abs=1e-5)


def transport(seed: int = 0, **changed: Any) -> tuple[Transport, dict[str, Tensor], Batch]:
    draw = torch.Generator().manual_seed(seed)
    text, items = (torch.randn(2, n, WIDTH, generator=draw, dtype=torch.double) for n in (5, 4))
    fields = {
        "targets/match": torch.tensor([1, 0]), "positions/match": torch.arange(2),
        "block": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]), "item_length/regions": torch.tensor([4, 2]),
    }
    return Transport(width=WIDTH, **changed), {"hidden": text, "item_hidden": items}, Batch(fields, checked=True)


def test_matching_pairs_pay_and_others_are_paid_without_padding() -> None:
    objective, states, batch = transport()
    scores = objective.scores(states, batch)
    short = Batch({"targets/match": torch.tensor([0]), "positions/match": torch.tensor([0])})
    alone = objective.scores({"hidden": states["hidden"][1:, :3], "item_hidden": states["item_hidden"][1:, :2]}, short)
    torch.testing.assert_close(scores[1:], alone)
    assert objective(states, batch).total.item() == pytest.approx(float(scores[0] - scores[1]))
    assert float(objective.count(batch)) == 2


def test_equal_sequences_cost_nothing_and_rows_without_items_neither() -> None:
    objective, states, batch = transport(beta=0.05, steps=200)
    same = {"hidden": states["hidden"][:, :4], "item_hidden": states["hidden"][:, :4]}
    whole = Batch({name: value for name, value in batch.items() if name.startswith(("targets", "positions"))})
    torch.testing.assert_close(objective.scores(same, whole), torch.zeros(2, dtype=torch.double), rtol=0, atol=1e-3)
    none = Batch({**batch, "item_length/regions": torch.tensor([0, 0])}, checked=True)
    assert objective.scores(states, none).eq(0).all()


def test_the_plan_has_no_gradient_and_the_costs_have_one() -> None:
    objective, states, batch = transport()
    text = states["hidden"].requires_grad_()
    objective({**states, "hidden": text}, batch).total.backward()
    assert text.grad is not None and text.grad[0].abs().sum() > 0 and text.grad[1, 3:].eq(0).all()


@pytest.mark.parametrize("targets", [1, 2, 9])
def test_keys_that_tell_nothing_lose_the_logarithm_of_their_number(targets: int) -> None:
    objective = ContrastItems(numbers=NUMBERS, project=3, width=WIDTH).double()
    nn.init.zeros_(objective.head["key"].weight)
    batch = Batch({"values/features": torch.rand(targets, NUMBERS), "positions/features": torch.arange(targets)})
    loss = objective({"hidden": torch.randn(1, targets, WIDTH, dtype=torch.double)}, batch)
    assert loss.total.item() / targets == pytest.approx(math.log(targets))


def test_queries_that_are_their_keys_are_right_and_padding_is_no_negative() -> None:
    objective = ContrastItems(numbers=WIDTH, project=WIDTH, width=WIDTH).double()
    for map_ in objective.head.values():
        nn.init.eye_(map_.weight)
    states = 5 * torch.eye(WIDTH, dtype=torch.double)[None]
    batch = Batch({"values/features": states[0].float(), "positions/features": torch.arange(WIDTH)})
    assert float(objective({"hidden": states}, batch).metrics["correct"]) == WIDTH
    weights = torch.tensor([1.0, 1, 0, 0, 0, 0])
    padded = objective({"hidden": states}, Batch({**batch, "weights/features": weights})).total
    two = Batch({name: value[:2] for name, value in batch.items()})
    torch.testing.assert_close(padded, objective({"hidden": states}, two).total)
