"""Distillation of parameters: a student's are brought close to its teacher's by two maps that all layers share (Zhao et al.)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import Count, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.projections import stacked
from cloze.objectives.distillation.match import DistillationMatch, Over
from cloze.objectives.objective import SEQUENCES, Loss, at_least_float32
from cloze.registry import Given, register

Direction = Literal["down", "up"]


class ParameterPair(NamedTuple):
    """A matrix or vector of the student and the teacher's of the same name."""

    name: str
    student: Tensor
    teacher: Tensor


@register("objective", "match_parameters")
class MatchParameters(DistillationMatch):
    """Bring the parameters of a student close to those of a teacher with as many layers (Zhao et al., "Extreme language model
    compression with optimal subwords and shared projections", 2019).

    `read: {student: parameters, teacher: teacher.parameters}`. A teacher's matrix T and the student's S of the same name have the
    distance ‖U T V - S‖² (`down`) or ‖T - Uᵀ S Vᵀ‖² (`up`). U and V are learned, and all layers share them: there is one pair for
    the width, and one for the inner width, which is `inner` times as large in both networks. A vector has rows alone. Where a
    number of rows or columns is the same in both networks, nothing is mapped there. Rows of the teacher's table of tokens behind
    those of the student's ids are left out. `project: teacher` stands for the teacher's width; networks of equal widths need
    none. Matrices of queries, keys and values that stand one above the other are compared one by one.

    `over: sum` sums the squared differences of all numbers, `mean` averages them in each parameter; the distances of parameters
    are added. The teacher learns nothing from it. Parameters: `head.rows.*` (d, D) and `head.columns.*` (D, d), which start with
    orthonormal rows.
    """

    likelihood = False
    training_only = True
    width_arguments = ("project",)

    def __init__(
        self, *, direction: Direction = "down", project: Width | Literal["teacher"] | None = None, inner: Count = 4,
        over: Over = "mean", width: Given[int],
    ) -> None:
        super().__init__()
        self.direction, self.over = direction, over
        self.takes, self.optional = frozenset(), SEQUENCES
        teacher = project if isinstance(project, int) else width  # a teacher that is not bound yet counts as equally wide
        sizes = [(times * teacher, times * width) for times in dict.fromkeys((1, inner))] if teacher != width else []
        self.head = nn.ModuleDict({
            side: nn.ParameterDict({_key(source, here): _orthonormal(source, here, side) for source, here in sizes})
            for side in ("rows", "columns")
        })

    def teacher(self, states: Mapping[str, Any]) -> Any:
        """The teacher's parameters, without gradients."""
        return {name: tensor.detach() for name, tensor in states["teacher"].items()}

    def count(self, batch: Batch) -> Tensor:
        """The number of rows: what is summed is the distance, once for each of them."""
        return torch.tensor(float(len(sequence(batch))))

    def scores(self, states: Mapping[str, Any], batch: Batch) -> Tensor:
        """The distance, a number."""
        distances = [self._distance(pair) for pair in pairs_of(states["student"], self.teacher(states))]
        return torch.stack(distances).sum()

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The distance, for every row."""
        return Loss(scores * len(sequence(batch)), {})

    def _distance(self, pair: ParameterPair) -> Tensor:
        """The squared differences of one parameter."""
        student, teacher = at_least_float32(pair.student), at_least_float32(pair.teacher)
        moved = teacher if self.direction == "down" else student
        for axis, side in enumerate(("rows", "columns")[: student.dim()]):
            teacher_size, here = teacher.shape[axis], student.shape[axis]
            if teacher_size == here:
                continue
            mapping = self._map(pair.name, side, teacher_size, here)
            mapping = mapping if self.direction == "down" else mapping.t()
            moved = mapping @ moved if side == "rows" else moved @ mapping
        apart = (moved - (student if self.direction == "down" else teacher)).square()
        return apart.mean() if self.over == "mean" else apart.sum()

    def _map(self, name: str, side: str, teacher_size: int, student_size: int) -> Tensor:
        maps: Any = self.head
        matrices = maps[side]
        key = _key(teacher_size, student_size)
        if key not in matrices:
            listed = ", ".join(pair.replace("_", " to ") for pair in matrices) or "none"
            raise RecipeError(
                f"match_parameters: {name} has {teacher_size:,} {side} in the teacher and {student_size:,} in the student, and "
                f"there is no map between these.\n  Maps: {listed}. Give both networks an inner width that is `inner` times "
                "their width."
            )
        matrix: Tensor = matrices[key]
        return matrix


def pairs_of(student: Mapping[str, Tensor], teacher: Mapping[str, Tensor]) -> Iterator[ParameterPair]:
    """The parameters that both have, matrix by matrix; a `RecipeError` for networks of different layers."""
    apart = sorted(name for name in student.keys() ^ teacher.keys())
    if apart:
        raise RecipeError(
            f"match_parameters: {apart[0]} is a parameter of one network alone.\n"
            "  Use a student of the same kind with as many layers as its teacher."
        )
    for name, weight in student.items():
        target = teacher[name]
        if name.endswith("tokens.weight") and len(target) > len(weight):
            target = target[: len(weight)]
        parts = stacked(name)
        yield from (ParameterPair(name, *pair) for pair in zip(weight.chunk(parts), target.chunk(parts), strict=True))


def _key(teacher_size: int, student_size: int) -> str:
    return f"{teacher_size}_{student_size}"


def _orthonormal(teacher_size: int, student_size: int, side: str) -> nn.Parameter:
    """(d, D) for rows, (D, d) for columns."""
    shape = (student_size, teacher_size) if side == "rows" else (teacher_size, student_size)
    return nn.Parameter(nn.init.orthogonal_(torch.empty(shape)))
