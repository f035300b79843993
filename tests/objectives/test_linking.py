"""The losses of linkers by hand: which candidates are right, which are asked, and the mean."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from cloze.batch import Batch
from cloze.objectives import LinkChoice, Linking

CANDIDATES = np.array([[0, 0], [1, 2], [3, 0], [5, 0]], np.int32)
TABLES = {"surfaces": SimpleNamespace(size=3, matrix=None, candidates=CANDIDATES, priors=np.ones((4, 2), np.float32))}
SCORES = torch.tensor([0.1, -0.5, -0.3, 0.05, 0.4], dtype=torch.double)


def batch(right: list[list[int]]) -> Batch:
    return Batch({"items/surface": torch.tensor([[1, 2], [1, 0]]), "items/entity": torch.tensor(right)})


def test_right_candidates_lie_above_the_margin_and_others_below() -> None:
    objective, given = Linking(tables=TABLES), batch([[1, 4], [2, 0]])  # 4: no entity
    loss = objective({"linking/surface": SCORES}, given)
    torch.testing.assert_close(loss.total, torch.tensor(0.1 + 0.0 + 0.0 + 0.25 + 0.0, dtype=torch.double))
    assert objective.count(given) == 5 and loss.metrics["correct"] == 4


def test_names_that_are_not_asked_do_not_count() -> None:
    objective, given = Linking(tables=TABLES), batch([[2, 0], [0, 0]])
    loss = objective({"linking/surface": SCORES}, given)
    torch.testing.assert_close(loss.total, torch.tensor(0.3 + 0.7, dtype=torch.double))
    assert objective.count(given) == 2 and loss.metrics["correct"] == 0


def test_a_choice_among_the_candidates_of_a_name_costs_minus_the_log_of_the_share_of_the_right_one() -> None:
    objective, given = LinkChoice(tables=TABLES), batch([[2, 0], [1, 0]])
    loss = objective({"linking/surface": SCORES}, given)
    shares = torch.softmax(SCORES[:2], 0)[1], torch.softmax(SCORES[3:], 0)[0]
    torch.testing.assert_close(loss.total, -(shares[0].log() + shares[1].log()))
    assert objective.count(given) == 2 and loss.metrics["correct"] == 0


def test_a_name_without_the_right_candidate_does_not_count_and_a_single_candidate_costs_nothing() -> None:
    objective, given = LinkChoice(tables=TABLES), batch([[4, 3], [0, 0]])
    loss = objective({"linking/surface": SCORES}, given)
    assert loss.total == 0 and objective.count(given) == 1 and loss.metrics["correct"] == 1
