"""KEPLER's loss: its value by hand, its halves, several wrong triples, where relations start."""

from __future__ import annotations

import math

import pytest
import torch

from cloze.batch import Batch
from cloze.objectives import TripleContrast


def made(margin: float = 4.0, norm: int = 2, relations: int = 1, width: int = 2) -> TripleContrast:
    objective = TripleContrast(margin=margin, norm=norm, relations=[f"P{n}" for n in range(relations)], width=width)  # type: ignore[arg-type]
    torch.nn.init.zeros_(objective.head.weight)
    return objective


def batch(*, facts: int = 1, wrong: int = 1) -> Batch:
    """Facts of entities 0 and 1 and relation 0, and wrong triples whose tails are the entities from 2 on."""
    rows = 2 + wrong
    triple = torch.full((rows, 3), -1)
    triple[0] = torch.tensor([0, 0, 1])
    for n in range(wrong):
        triple[1 + n] = torch.tensor([0, 0, 2 + n])
    return Batch({"owner": torch.arange(facts).repeat_interleave(rows), "triple": triple.repeat(facts, 1)})


def loss(objective: TripleContrast, vectors: list[list[float]], given: Batch) -> float:
    with torch.no_grad():
        return float(objective({"summary": torch.tensor(vectors)}, given).total)


def test_a_fact_at_distance_0_and_a_wrong_triple_at_8_lose_0_01815() -> None:
    found = loss(made(), [[1.0, 1.0], [1.0, 1.0], [1.0, 9.0]], batch())
    assert found == pytest.approx(0.01815, abs=5e-6) and found == pytest.approx(math.log(1 + math.exp(-4)), rel=1e-5)


def test_fact_and_wrong_triples_count_half_each() -> None:
    soft = lambda x: math.log(1 + math.exp(x))  # noqa: E731
    found = loss(made(margin=1.0), [[0.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 0.5]], batch(wrong=2))
    assert found == pytest.approx(0.5 * soft(5 - 1) + 0.5 * (soft(1 - 2) + soft(1 - 0.5)) / 2, rel=1e-5)


def test_the_norm_may_be_one_and_relations_move_the_head() -> None:
    objective = made(norm=1)
    nothing, tail = torch.zeros(2), torch.tensor([3.0, 4.0])
    assert objective.distances(nothing, nothing, tail).item() == 7.0
    assert objective.distances(nothing, tail, tail).item() == 0.0


def test_facts_are_counted_and_losses_of_a_batch_are_the_sum_of_theirs() -> None:
    torch.manual_seed(0)
    objective, given = made(relations=3), batch(facts=3, wrong=2)
    vectors = torch.randn(12, 2)
    assert objective.count(given) == 3
    each = [loss(objective, vectors[4 * n : 4 * n + 4].tolist(), batch(wrong=2)) for n in range(3)]
    with torch.no_grad():
        whole = objective({"summary": vectors}, given)
    assert float(whole.total) == pytest.approx(sum(each), rel=1e-5)
    d = objective.scores({"summary": vectors}, given).view(3, 4)[:, :3]
    assert float(whole.metrics["correct"]) == float((d[:, :1] < d[:, 1:]).all(1).sum())


def test_relations_start_in_the_range_of_the_authors() -> None:
    weight = TripleContrast(margin=4.0, relations=[str(n) for n in range(400)], width=8).head.weight
    assert weight.shape == (400, 8) and weight.abs().max() <= 6 / 8 and weight.abs().max() > 0.98 * 6 / 8


def test_the_loss_is_computed_in_32_bits() -> None:
    vectors = torch.tensor([[300.0, 300.0], [300.0, 300.0], [300.0, 308.0]], dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        found = made()({"summary": vectors}, batch())
    assert found.total.dtype == torch.float32 and float(found.total) == pytest.approx(0.01815, abs=5e-6)


def test_described_relations_are_the_summaries_of_their_rows() -> None:
    objective = TripleContrast(margin=1.0, describe=True, width=2)
    assert not list(objective.parameters()) and "relation_row" in objective.takes
    given = batch(facts=2, wrong=1)
    triple = torch.cat([torch.cat([given["triple"][3 * n : 3 * n + 3], torch.full((1, 3), -1)]) for n in range(2)])
    rows = Batch({
        "owner": torch.arange(2).repeat_interleave(4), "triple": triple, "relation_row": torch.where(triple[:, 0] >= 0, 3, -1),
    })
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0], [9.0, 4.0], [3.0, 4.0]] * 2)  # head, tail, wrong tail, relation
    assert objective.scores({"summary": vectors}, rows).tolist() == [0.0, 6.0, 0.0, 0.0] * 2


def test_a_conditioned_fact_has_the_mean_of_two_distances() -> None:
    """p = ((γ - |h_r + r - t|) + (γ - |h + r - t_r|)) / 2 (fairseq/models/roberta/model.py of THU-KEG/KEPLER)."""
    objective = TripleContrast(margin=1.0, conditioned=True, relations=["P"], width=2)
    torch.nn.init.zeros_(objective.head.weight)
    triple = torch.tensor([[4, 0, 1], [0, 0, 5], [2, 0, 5], [4, 0, 3], [-1, -1, -1], [-1, -1, -1]])  # of h t nh nt h_r t_r
    vectors = [[0.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 0.5], [3.0, 3.0], [0.0, 4.0]]
    given = Batch({"owner": torch.arange(2).repeat_interleave(6), "triple": triple.repeat(2, 1)})
    soft = lambda x: math.log(1 + math.exp(x))  # noqa: E731
    nearest_tail = math.hypot(3.0, 2.5)
    expected = 0.5 * soft((1 + 4) / 2 - 1) + 0.5 * (soft(1 - 2) + soft(1 - nearest_tail)) / 2
    with torch.no_grad():
        found = objective({"summary": torch.tensor(vectors * 2)}, given)
    assert objective.count(given) == 2 and float(found.total) == pytest.approx(2 * expected, rel=1e-5)
    assert float(found.metrics["correct"]) == 0  # the wrong head is at 2, nearer than the fact, at 2.5
