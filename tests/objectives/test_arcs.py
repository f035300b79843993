"""Arcs between words: the biaffine scores written out, chances at the start, what is asked and what only may be a head."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock
from cloze.objectives import arcs

WIDTH, CLASSES = 6, 3


def made(drawn: bool = True) -> Any:
    torch.manual_seed(0)
    objective = arcs(classes=CLASSES, arc_width=5, relation_width=4, width=WIDTH, clock=Clock()).double().eval()
    if drawn:
        for part in objective.parameters():
            part.data.normal_(generator=torch.Generator().manual_seed(part.numel()))
    return objective


def states(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def batch_of(positions: list[int], heads: list[int], labels: list[int], weights: list[float], shape: tuple[int, int]) -> Batch:
    made: dict[str, Tensor] = {"tokens": torch.zeros(shape, dtype=torch.long)}
    for name, answers in (("label", labels), ("head", heads)):
        made[f"positions/{name}"] = torch.tensor(positions, dtype=torch.long)
        made[f"weights/{name}"] = torch.tensor(weights, dtype=torch.float32)
        made[f"targets/{name}"] = torch.tensor(answers, dtype=torch.long)
    return Batch(made)


@torch.no_grad()
def written_out(objective: Any, words: Tensor, heads: list[int], labels: list[int], asked: list[int]) -> float:
    """The loss of one sentence, pair by pair."""
    head = objective.head
    views = F.leaky_relu(head.views(torch.cat([head.root[None], words])), 0.1)
    arc_d, arc_h, rel_d, rel_h = views.split(head.sizes, 1)
    one = torch.ones(1, dtype=torch.float64)
    total = 0.0
    for word in range(1, len(words) + 1):
        scores = torch.tensor([
            -torch.inf if other == word else float(torch.cat([arc_d[word], one]) @ head.arc @ arc_h[other])
            for other in range(len(words) + 1)
        ])  # fmt: skip
        pair = [
            float(torch.cat([rel_d[word], one]) @ form @ torch.cat([rel_h[heads[word - 1]], one])) for form in head.relation
        ]
        if word in asked:
            total -= float(scores.log_softmax(0)[heads[word - 1]]) + float(torch.tensor(pair).log_softmax(0)[labels[word - 1]])
    return total


def test_the_loss_is_that_of_all_pairs_written_out() -> None:
    objective, hidden = made(), states(2, 7)
    # two sentences of 3 and 2 words; one word, whose head is not read, is not asked and may be a head
    batch = batch_of([1, 2, 5, 8, 12, 0, 0], [2, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 2, 0, 0], [1, 1, 0, 1, 1, 0, 0], (2, 7))
    found = objective({"hidden": hidden}, batch).total
    expected = written_out(objective, hidden[0, [1, 2, 5]], [2, 0, 0], [1, 0, 0], [1, 2])
    expected += written_out(objective, hidden[1, [1, 5]], [0, 1], [0, 2], [1, 2])
    torch.testing.assert_close(float(found.detach()), expected, atol=1e-5, rtol=0)
    assert float(objective.count(batch)) == 4


def test_at_the_start_all_heads_and_relations_are_equally_likely() -> None:
    objective = made(drawn=False)
    loss = objective({"hidden": states(1, 5)}, batch_of([1, 2, 4], [2, 0, 1], [0, 1, 2], [1, 1, 1], (1, 5))).total
    torch.testing.assert_close(float(loss.detach()), 3 * (math.log(3) + math.log(CLASSES)))  # two words and the root


def test_zero_answers_give_a_zero_connected_to_every_parameter() -> None:
    objective = made()
    loss = objective({"hidden": states(1, 4)}, batch_of([], [], [], [], (1, 4)))
    loss.total.backward()
    assert loss.total.item() == 0
    assert all(part.grad is not None and not part.grad.any() for part in objective.parameters())


def test_gradients_agree_with_finite_differences() -> None:
    objective = made()
    batch = batch_of([1, 2, 3, 5], [2, 0, 2, 0], [1, 0, 2, 1], [1, 1, 1, 1], (2, 4))
    names, values = zip(*((name, part.detach().clone().requires_grad_()) for name, part in objective.named_parameters()),
                        strict=True)  # fmt: skip

    def run(hidden: Tensor, *given: Tensor) -> Any:
        return torch.func.functional_call(objective, dict(zip(names, given, strict=True)), ({"hidden": hidden}, batch)).total

    assert torch.autograd.gradcheck(run, (states(2, 4).requires_grad_(), *values))


def test_metrics_count_the_words_whose_best_head_is_right() -> None:
    objective = made()
    hidden = states(1, 5)
    batch = batch_of([1, 2, 4], [0, 1, 1], [0, 0, 0], [1, 1, 0], (1, 5))
    views = objective.scores({"hidden": hidden}, batch)
    best = objective.head.arcs(views[None], torch.tensor([3]))[0].argmax(1).tolist()
    right = batch_of([1, 2, 4], best, [0, 0, 0], [1, 1, 0], (1, 5))
    assert objective({"hidden": hidden}, right).metrics["correct"] == 2
