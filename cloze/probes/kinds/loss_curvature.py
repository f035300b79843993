"""`cloze probe curvature`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloze.probes.finding import Plot, Subject, Table
from cloze.probes.probe import LossProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.curvature import Curvature


@register("probe", "curvature")
@dataclass(frozen=True, kw_only=True)
class CurvatureProbe(LossProbe["Curvature"]):
    """The curvature of the loss in the weights of each layer."""

    title = "How sharply does the loss bend?"
    sentences = 200

    def measure(self, loaded: Checkpoint, material: list[str]) -> Curvature:
        from cloze.probes.curvature import curvature, layer_weights

        layer_weights(loaded.network)  # an error for a network without them comes before one for a checkpoint without a loss
        return curvature(self.examples(loaded, material, self.task), most=self.limit, seed=self.seed, size=self.batch)

    def tables(self, name: str, figures: Curvature) -> list[Table]:
        mean, deviation, sensitivity = figures.eigenvalues.mean(0), figures.eigenvalues.std(0), figures.sensitivity
        rank = (-sensitivity).argsort(kind="stable").argsort(kind="stable")
        rows = [
            [str(n + 1), float(mean[n]), float(deviation[n]), float(sensitivity[n]), int(rank[n]) + 1]
            for n in range(len(sensitivity))
        ]
        note = f"On {len(figures.eigenvalues)} parts of the data. Rank 1 is the most sensitive: it needs the most bits."
        if (mean < 0).any():
            note += " Where the mean is negative, the network is not at a minimum."
        title = f"{name}: the Hessian's top eigenvalue by layer"
        return [Table(title, ["layer", "mean", "±", "|mean| + ±", "rank"], rows, note)]

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Curvature]) -> list[Plot]:
        lines = {name: [(float(n + 1), float(y)) for n, y in enumerate(probe.sensitivity)] for name, probe in results.items()}
        return [Plot("sensitivity: |mean| + deviation of the top eigenvalue", "layer", lines)]

    def data(self, figures: Curvature) -> dict[str, Any]:
        return {"eigenvalues": figures.eigenvalues, "sensitivity": figures.sensitivity}

    def remarks(self, figures: Curvature) -> Sequence[str]:
        return figures.remarks
