"""`cloze probe edges`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_name, layer_table
from cloze.probes.probe import TrainTestProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.edges import EdgeScores, SpanTexts


@register("probe", "edges")
@dataclass(frozen=True, kw_only=True)
class EdgeProbe(TrainTestProbe["SpanTexts", "EdgeScores"]):
    """Edge probing (Tenney et al., 2019): labels of spans, from CoNLL-U or jiant's JSON, with a control task."""

    title = "What can be read from each layer: labels of spans"
    sentences = 1500

    control: Annotated[bool, typer.Option(help="also train on random labels (control task)")] = True
    single: Annotated[bool, typer.Option("--single", help="probe each layer alone, not with those below")] = False

    def read_file(self, path: str) -> SpanTexts:
        from cloze.probes.edges import read_edges

        return read_edges(path, most=self.limit)

    def measure(self, loaded: Checkpoint, material: tuple[SpanTexts, SpanTexts]) -> EdgeScores:
        from cloze.probes.edges import probe_edges

        return probe_edges(
            loaded, *material, single=self.single, control=self.control, seed=self.seed, length=self.length, size=self.batch
        )

    def tables(self, name: str, figures: EdgeScores) -> list[Table]:
        columns = {"F1": figures.f1, "control": figures.control, "selectivity": figures.selectivity}
        tables = [layer_table(
            f"{name}: labels of spans from " + ("each layer" if self.single else "each layer and those below"), columns,
            f"{figures.train:,} training and {figures.test:,} test targets, {figures.classes} labels. Micro-F1; of always giving "
            f"the most frequent labels: {figures.majority:.3f}. At the top layer precision {figures.precision:.3f}, recall "
            f"{figures.recall:.3f}. The control gives the words of a first span random labels, the same everywhere.",
        )]  # fmt: skip
        if not self.single:
            rows = [[layer_name(n), weight] for n, weight in enumerate(figures.weights)][::-1]
            tables.append(Table(
                f"{name}: weights of the layers in the mixture of all", ["layer", "weight"], rows,
                f"Centre of gravity {figures.gravity:.2f}; expected layer of the gains {figures.expected:.2f}.",
            ))  # fmt: skip
        return tables

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, EdgeScores]) -> list[Plot]:
        dashed = {f"{name}, control": figures.control for name, figures in results.items()}
        plots = by_layer_and_step(
            "F1 of labels of spans", {name: figures.f1 for name, figures in results.items()}, subjects, dashed=dashed
        )
        if not self.single:
            weights = {name: figures.weights for name, figures in results.items()}
            plots += by_layer_and_step("weights of the layers in the mixture of all", weights, subjects)
        return plots

    def data(self, figures: EdgeScores) -> dict[str, object]:
        return {name: value for name, value in vars(figures).items() if name != "remarks"} | {"selectivity": figures.selectivity}

    def remarks(self, figures: EdgeScores) -> Sequence[str]:
        return figures.remarks
