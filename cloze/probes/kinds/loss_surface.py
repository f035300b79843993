"""`cloze probe surface`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.errors import UserError
from cloze.probes.finding import Finding, HeatMap, Plot, Subject, Table
from cloze.probes.probe import LossProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.surface import LossLine, Surface


@register("probe", "surface")
@dataclass(frozen=True, kw_only=True)
class SurfaceProbe(LossProbe["Surface"]):
    """The loss around a checkpoint, and on the line and the plane through two or three (Hao et al., 2019; Li et al., 2018)."""

    title = "How does the loss change with the weights?"
    sentences = 100

    points: Annotated[int, typer.Option(min=3, help="points on a line")] = 21
    grid: Annotated[int, typer.Option(min=0, help="points on each axis of the plane; 0: no plane")] = 9
    beyond: Annotated[float, typer.Option(min=0.0, help="how far a line goes beyond its checkpoints, in its lengths")] = 0.5

    def measure(self, loaded: Checkpoint, material: list[str]) -> Surface:
        return self._surface({"checkpoint": loaded}, material)

    def run(self, subjects: Sequence[Subject], load: Callable[[Subject], Checkpoint]) -> Finding:
        """Measure all checkpoints together, with the head and the task of the second one."""
        if len(subjects) > 3:
            raise UserError(f"{self.name} measures one, two or three checkpoints, got {len(subjects)}. Name fewer.")
        material = self.read()
        surface = self._surface({subject.name: load(subject) for subject in subjects}, material)
        return self.finding(subjects, {", ".join(subject.name for subject in subjects): surface})

    def _surface(self, checkpoints: Mapping[str, Checkpoint], material: list[str]) -> Surface:
        from cloze.probes.surface import MeasuredPlaces, loss_surface, require_same_classes

        measured = list(checkpoints)[:2][-1]
        if self.task is not None:
            require_same_classes(checkpoints, measured, self.task.rpartition("=")[0] or None)
        examples = self.examples(checkpoints[measured], material, self.task, self.limit)
        places = MeasuredPlaces(self.points, self.grid, self.beyond)
        return loss_surface(checkpoints, examples, measured, places, seed=self.seed, size=self.batch)

    def finding(self, subjects: Sequence[Subject], results: Mapping[str, Surface]) -> Finding:
        """Its data are those of each checkpoint, of each pair and of the plane."""
        (surface,) = results.values()
        data = {**surface.around, **surface.between, **({} if surface.plane is None else {"plane": surface.plane})}
        return Finding(
            self.name, self.title, self.tables("", surface), self.plots(subjects, results),
            {name: dict(vars(part)) for name, part in data.items()}, surface.remarks,
        )

    def tables(self, name: str, figures: Surface) -> list[Table]:
        note = "In a random direction, whose filters are as long as those of the weights."
        tables = [_along("loss around each checkpoint", figures.around, note)]
        if figures.between:
            tables.append(Table(
                "between two checkpoints", ["from, to", "distance", "of the weights", "loss at 0", "loss at 1", "barrier"],
                [
                    [pair, line.length, line.relative, _at(line, 0.0), _at(line, 1.0), line.barrier]
                    for pair, line in figures.between.items()
                ],
                "Barrier: how far the loss in between rises above the straight line between both ends.",
            ))  # fmt: skip
            tables.append(_along("loss from the first checkpoint (0) to another one (1)", figures.between))
        if (plane := figures.plane) is not None:
            rows = [[f"{y:.3g}", *map(float, losses)] for y, losses in zip(plane.y, plane.losses, strict=True)]
            places = "; ".join(f"{name} at ({x:g}, {y:g})" for name, (x, y) in plane.places.items())
            tables.append(Table("loss on a plane", ["", *(f"{x:.3g}" for x in plane.x)], rows[::-1], f"{places}."))
        return tables

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Surface]) -> list[Plot | HeatMap]:
        (surface,) = results.values()
        plots: list[Plot | HeatMap] = []
        for title, x, lines in (
            ("loss around each checkpoint", "distance in a random direction", surface.around),
            ("loss from the first checkpoint to another one", "share of the way", surface.between),
        ):
            if lines:
                points = {name: list(zip(line.x.tolist(), line.losses.tolist(), strict=True)) for name, line in lines.items()}
                plots.append(Plot(title, x, points))
        if (plane := surface.plane) is not None:
            towards = [f"towards {name}" for name in plane.places][1:]
            x_name, y_name, *_ = [*towards, "random direction", "random direction"]
            places = plane.x.tolist(), plane.y.tolist()
            title = "loss on a plane; darker: higher, by rank"
            plots.append(HeatMap(title, x_name, y_name, *places, plane.losses.tolist(), plane.places))
        return plots


def _along(title: str, lines: Mapping[str, LossLine], note: str = "") -> Table:
    """The losses of lines with the same places."""
    x = next(iter(lines.values())).x
    losses = zip(*(line.losses for line in lines.values()), strict=True)
    rows = [[f"{at:.3g}", *map(float, values)] for at, values in zip(x, losses, strict=True)]
    return Table(title, ["", *lines], rows, note)


def _at(line: LossLine, x: float) -> float:
    """The loss at a place of a line."""
    import numpy as np

    return float(np.interp(x, line.x, line.losses))
