"""Distances of parameters: zero where student and teacher agree, maps that layers share, networks that cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.objectives import MatchParameters

ROWS = 3
BATCH = Batch({"tokens": torch.zeros(ROWS, 4, dtype=torch.long)})


def network(width: int, *, ids: int = 6, layers: int = 2, seed: int = 0) -> dict[str, Tensor]:
    """The parameters of a network with layers of `width`."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {"embeddings.tokens.weight": (ids, width), "embeddings.norm.weight": (width,)}
    for layer in range(layers):
        shapes[f"layers.{layer}.attention.projections.weight"] = (3 * width, width)
        shapes[f"layers.{layer}.attention.projections.bias"] = (3 * width,)
        shapes[f"layers.{layer}.inner.weight"] = (4 * width, width)
        shapes[f"layers.{layer}.outer.weight"] = (width, 4 * width)
    return {name: torch.randn(*shape, generator=draw, dtype=torch.double) for name, shape in shapes.items()}


def distance(objective: MatchParameters, student: dict[str, Tensor], teacher: dict[str, Tensor]) -> Tensor:
    """The loss of a step as the loop computes it."""
    return objective({"student": student, "teacher": teacher}, BATCH).total.detach() / float(objective.count(BATCH))


@pytest.mark.parametrize("over", ["sum", "mean"])
def test_a_student_that_equals_its_teacher_has_no_loss_and_no_map(over: Any) -> None:
    objective = MatchParameters(over=over, width=8, project=8)
    same = network(8)
    assert distance(objective, same, same).item() == 0.0
    assert list(objective.parameters()) == []
    other = network(8, seed=1)
    expected = sum(float((other[name] - same[name]).square().sum()) for name in same)
    assert float(distance(MatchParameters(over="sum", width=8), same, other)) == pytest.approx(expected)


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_student_that_is_the_projected_teacher_has_no_loss(direction: Any) -> None:
    """`down` projects the teacher's parameters, so the student has those; `up` the student's."""
    objective = MatchParameters(direction=direction, width=4, project=8, over="sum").double()
    assert sum(p.numel() for p in objective.parameters()) == 2 * (4 * 8 + 16 * 32)
    maps: Any = objective.head
    rows = {8: maps["rows"]["8_4"], 32: maps["rows"]["32_16"]}
    columns = {8: maps["columns"]["8_4"], 32: maps["columns"]["32_16"]}
    source = network(8) if direction == "down" else network(4)
    made = {}
    for name, tensor in source.items():
        parts = []
        for part in tensor.chunk(3 if "projections" in name else 1):
            if "tokens" not in name:  # the rows of a table are ids
                u = rows[part.shape[0] if direction == "down" else 2 * part.shape[0]]
                part = (u if direction == "down" else u.t()) @ part
            if part.dim() == 2:
                v = columns[part.shape[1] if direction == "down" else 2 * part.shape[1]]
                part = part @ (v if direction == "down" else v.t())
            parts.append(part)
        made[name] = torch.cat(parts)
    student, teacher = (made, source) if direction == "down" else (source, made)
    assert float(distance(objective, student, teacher)) < 1e-24
    assert float(distance(objective, {**student, "embeddings.norm.weight": student["embeddings.norm.weight"] + 1}, teacher)) == (
        pytest.approx(4.0)
    )


def test_the_loss_does_not_depend_on_the_batch_and_teaches_the_student_and_the_maps_alone() -> None:
    objective = MatchParameters(width=4, project=8).double()
    student = {name: tensor.requires_grad_() for name, tensor in network(4).items()}
    teacher = {name: tensor.requires_grad_() for name, tensor in network(8).items()}
    larger = Batch({"tokens": torch.zeros(7, 4, dtype=torch.long)})
    states = {"student": student, "teacher": teacher}
    found = [objective(states, batch).total / float(objective.count(batch)) for batch in (BATCH, larger)]
    torch.testing.assert_close(*found)
    found[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in [*student.values(), *objective.parameters()])
    assert all(tensor.grad is None for tensor in teacher.values())


def test_rows_of_the_teachers_own_ids_behind_those_of_the_text_are_left_out() -> None:
    objective, student, teacher = MatchParameters(width=8), network(8), network(8)
    teacher["embeddings.tokens.weight"] = torch.cat([teacher["embeddings.tokens.weight"], torch.ones(5, 8, dtype=torch.double)])
    assert distance(objective, student, teacher).item() == 0.0


def test_networks_that_cannot_be_compared_are_refused_in_words() -> None:
    with pytest.raises(RecipeError, match=r"layers\.2\.\S+ is a parameter of one network alone\.\n  Use a student"):
        distance(MatchParameters(width=8), network(8), network(8, layers=3))
    with pytest.raises(RecipeError, match=r"(?s)tokens.weight has 10 columns in the teacher and 8 in the student.*Maps: none"):
        distance(MatchParameters(width=8), network(8), network(10))
    short = {**network(4), "layers.0.inner.weight": torch.ones(9, 4, dtype=torch.double)}
    with pytest.raises(RecipeError, match=r"(?s)inner.weight has 32 rows in the teacher and 9 .*Maps: 32 to 16, 8 to 4\."):
        distance(MatchParameters(width=4, project=8).double(), short, network(8))
