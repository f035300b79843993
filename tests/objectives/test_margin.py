"""The margin between a fact and the wrong triples made from it, and the distances that it compares."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import GraphVectors
from cloze.objectives import Margin


def placed(norm: int, *rows: tuple[float, float], unit: str = "free") -> GraphVectors:
    """Entities 1 … n - 1 at these places and the relation (0, 1) as the last id."""
    vectors = torch.tensor([(0.0, 0.0), *rows, (0.0, 1.0)])
    network = GraphVectors(width=2, norm=norm, unit=unit, vocab_size=len(vectors), entity_count=len(rows))  # type: ignore[arg-type]
    with torch.no_grad():
        network.embeddings.weight.copy_(vectors)
    return network


def test_the_loss_is_that_of_the_worked_example() -> None:
    network = placed(1, (1.0, 0.0), (1.0, 1.0), (1.0, 0.5), (0.0, 0.0))
    tokens = torch.tensor([[1, 5, 2], [1, 5, 3], [1, 5, 2], [1, 5, 4]])
    distance = network(want=frozenset({"distance"}), tokens=tokens)["distance"]
    assert distance.tolist() == [0.0, 0.5, 0.0, 2.0]
    objective, batch = Margin(by=1.0), Batch({"owner": torch.tensor([0, 0, 1, 1])})
    found = objective({"distance": distance}, batch)
    assert found.total.item() == 0.5 and found.metrics["correct"].item() == 2 and objective.count(batch).item() == 2
    alone = objective({"distance": distance[:1]}, Batch({"owner": torch.tensor([0])}))
    assert alone.total.item() == 0.0


def test_the_second_norm_is_euclidean_and_only_close_negatives_have_a_gradient() -> None:
    network = placed(2, (0.0, 0.0), (3.0, 5.0), (0.0, 1.0))
    distance = network(want=frozenset({"distance"}), tokens=torch.tensor([[1, 4, 3], [1, 4, 2]]))["distance"]
    assert distance.tolist() == [0.0, 5.0]
    for margin, rows in ((4.0, 0), (6.0, 1)):
        network.zero_grad()
        distance = network(want=frozenset({"distance"}), tokens=torch.tensor([[1, 4, 3], [1, 4, 2]]))["distance"]
        Margin(by=margin)({"distance": distance}, Batch({"owner": torch.tensor([0, 0])})).total.backward()
        gradient = network.embeddings.weight.grad
        assert gradient is not None and int(gradient[2].abs().sum() > 0) == rows


def test_entities_have_length_one_as_the_argument_says() -> None:
    tokens = torch.tensor([[1, 3, 2]])
    updated = placed(1, (3.0, 4.0), (0.0, 2.0), unit="updated")
    relation = updated.embeddings.weight[3].clone()
    with torch.no_grad():
        updated.embeddings.weight[3] *= 2
    updated.eval()
    shown = updated(want=frozenset({"hidden"}), tokens=tokens)["hidden"][0]
    torch.testing.assert_close(shown, torch.tensor([[0.6, 0.8], [0.0, 2.0], [0.0, 1.0]]))
    assert updated.embeddings.weight[1].tolist() == [3.0, 4.0]  # reading changes nothing
    updated.train()
    updated(want=frozenset({"hidden"}), tokens=tokens)
    torch.testing.assert_close(updated.embeddings.weight[1], torch.tensor([0.6, 0.8]))
    assert torch.equal(updated.embeddings.weight[3], 2 * relation)
    read = placed(1, (3.0, 4.0), (0.0, 2.0), unit="read")
    torch.testing.assert_close(read.vectors()[1:].norm(dim=1), torch.ones(3))


def test_rows_that_are_no_triples_are_refused() -> None:
    with pytest.raises(RecipeError, match="and no texts; got rows of 2.\n  In a recipe write `corpus: {triples: {}}`"):
        placed(1, (0.0, 0.0))(want=frozenset({"distance"}), tokens=torch.tensor([[1, 2]]))


def test_a_step_on_two_wrong_triples_is_the_one_of_the_authors_code() -> None:
    """glorotxa/SME: `L2sim`, `margincost` and `TrainFn1Member` of model.py, and `normalize` after the batch in FB15k_exp.py."""
    rate, margin, facts = 0.01, 0.5, np.array([[0, 5, 1], [2, 6, 3]])
    wrong_heads, wrong_tails = np.array([4, 0]), np.array([2, 4])
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(7, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    network = GraphVectors(width=3, norm=2, unit="updated", vocab_size=8, entity_count=5)
    with torch.no_grad():
        network.embeddings.weight[1:].copy_(torch.from_numpy(vectors))
    gradient = np.zeros_like(vectors)
    for (head, relation, tail), other_head, other_tail in zip(facts, wrong_heads, wrong_tails, strict=True):
        for wrong in ((other_head, relation, tail), (head, relation, other_tail)):
            signs = {(head, relation, tail): 1, wrong: -1}
            offsets = {triple: vectors[triple[0]] + vectors[triple[1]] - vectors[triple[2]] for triple in signs}
            cost = margin + sum(signs[triple] * np.linalg.norm(offset) for triple, offset in offsets.items())
            if cost > 0:
                for triple, offset in offsets.items():
                    unit = signs[triple] * offset / np.linalg.norm(offset)
                    gradient[triple[0]] += unit
                    gradient[triple[1]] += unit
                    gradient[triple[2]] -= unit
    expected = vectors - rate * gradient
    expected[:5] /= np.linalg.norm(expected[:5], axis=1, keepdims=True)
    tokens = np.concatenate([
        [fact, (other_head, *fact[1:]), (*fact[:2], other_tail)]
        for fact, other_head, other_tail in zip(facts, wrong_heads, wrong_tails, strict=True)
    ]) + 1  # fmt: skip
    distance = network(want=frozenset({"distance"}), tokens=torch.from_numpy(tokens))["distance"]
    loss = Margin(by=margin)({"distance": distance}, Batch({"owner": torch.tensor([0, 0, 0, 1, 1, 1])}))
    loss.total.backward()
    with torch.no_grad():
        network.embeddings.weight -= rate * network.embeddings.weight.grad
    network(want=frozenset({"distance"}), tokens=torch.from_numpy(tokens))  # divides by the lengths before the next step
    np.testing.assert_allclose(network.embeddings.weight[1:].detach().numpy(), expected, atol=1e-6)
