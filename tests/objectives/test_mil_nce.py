"""MIL-NCE: the authors' figures, several right answers, clips that are no anchors, and films that are compared within groups."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.objectives import ContrastPairs, MilNce
from cloze.training.together import VectorCollector, replaying

TEXTS = torch.tensor([
    [-.64, 2, .76, -1.2], [.07, .58, -.19, .68], [-.07, .67, 1.44, -.68], [.2, -.46, .13, -1.19], [-.58, -.2, .9, 1.15],
    [-1.32, -.79, .65, -1.99], [-.46, -.1, 1.26, .69], [-.33, -.37, -.25, 1.52], [-.43, -.3, .35, -.12], [-.2, -1.11, -.01, -.44],
    [1.17, .65, -.02, .67], [-.34, 1.05, -.01, .58],
])  # fmt: skip
FILMS = torch.tensor([
    [-1.29, .35, -1.69, -2.04], [-.3, -.9, .16, 2.24], [-.83, -.62, .21, .49], [-.18, -.21, .7, .52], [-1.03, -.08, .04, -1.05],
    [.26, -.86, .97, .19], [.09, -.59, -.12, -2], [-1.13, .36, -2.13, .85], [-1.75, .76, -.85, .78], [.13, -1.54, 1.25, 1.44],
    [-.07, -.27, -.16, -.98], [1.1, -.54, -.05, -.79],
])  # fmt: skip
#: Twelve clips, three of each film, and which is the middle one.
CLIPS = torch.stack([torch.arange(12) // 3, torch.arange(12) % 3 - 1], dim=1)


def states(rows: slice) -> dict[str, Tensor]:
    return {"query": TEXTS[rows], "key": FILMS[rows]}


def clips(rows: slice) -> Batch:
    return Batch({"film": CLIPS[rows]})


@pytest.mark.parametrize(("rows", "expected"), [
    (slice(0, 6), 1.4556362628936768), (slice(6, 12), 0.886558473110199), (slice(0, 12), 2.2283453941345215),
])  # fmt: skip
def test_the_loss_of_a_group_is_that_of_the_authors_code(rows: slice, expected: float) -> None:
    """microsoft/UniVL at 8db88f39, modules/until_module.py: MILNCELoss(batch_size=videos, n_pair=3)(TEXTS @ FILMS.t())."""
    objective, batch = MilNce(width=4), clips(rows)
    loss = objective(states(rows), batch)
    assert objective.count(batch) == (rows.stop - rows.start) // 3
    assert loss.total.item() / objective.count(batch).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("rows", "expected"), [(slice(0, 6), 2.463036298751831), (slice(6, 12), 2.4949676990509033)])
def test_pairs_of_a_group_have_the_loss_of_the_authors_code(rows: slice, expected: float) -> None:
    """The same file: CrossEn()(TEXTS @ FILMS.t()), whose rows are texts."""
    objective: Any = ContrastPairs(width=1)
    torch.nn.init.ones_(objective.head.weight)
    batch = Batch({"tokens": torch.arange(12)[rows, None]})
    loss = objective({"pairs": (TEXTS[rows] @ FILMS[rows].t())[..., None]}, batch)
    assert loss.total.item() / 6 == pytest.approx(expected, rel=1e-6)


def test_a_clip_alone_with_its_film_has_no_loss_and_equal_scores_are_chance() -> None:
    assert MilNce(width=4)(states(slice(0, 3)), clips(slice(0, 3))).total.item() == 0
    loss = MilNce(width=4)({"query": torch.zeros(12, 4), "key": FILMS}, clips(slice(0, 12)))
    assert loss.total.item() / 4 == pytest.approx(math.log((3 + 9 + 9) / 3)), "of 21 scores three are right"
    assert loss.metrics["correct"] == 0


def test_a_step_in_pieces_has_the_loss_and_the_gradient_of_the_whole_one() -> None:
    objective, pieces = MilNce(width=4), [slice(0, 5), slice(5, 12)]  # a film is in both pieces
    text = TEXTS.clone().requires_grad_()
    whole = objective({"query": text, "key": FILMS}, clips(slice(0, 12)))
    (expected,) = torch.autograd.grad(whole.total, text)
    collecting = VectorCollector()
    with objective.loss_by(collecting), torch.no_grad():
        for rows in pieces:
            objective(states(rows), clips(rows))
    alone = SimpleNamespace(rank=0, world=1, gather=lambda tensor: [tensor])
    with objective.loss_by(replaying(objective, collecting.pieces, alone)):
        losses = [objective({"query": text[rows], "key": FILMS[rows]}, clips(rows)).total for rows in pieces]
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), text)
    torch.testing.assert_close(torch.stack(losses).sum(), whole.total)
    torch.testing.assert_close(gradient, expected)
