"""`cloze probe distance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_table
from cloze.probes.probe import TrainTestProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.distance import ProbedTrees, Structural


@register("probe", "distance")
@dataclass(frozen=True, kw_only=True)
class DistanceProbe(TrainTestProbe["ProbedTrees", "Structural"]):
    """Structural probe (Hewitt & Manning, 2019): how well distances of vectors match those in dependency trees (CoNLL-U)."""

    title = "How well do distances of vectors follow the dependency tree?"
    sentences = 1000

    rank: Annotated[int, typer.Option(min=1, help="dimensions of the space in which distances are those of the tree")] = 64

    def read_file(self, path: str) -> ProbedTrees:
        from cloze.probes.distance import read_trees

        return read_trees(path, most=self.limit)

    def measure(self, loaded: Checkpoint, material: tuple[ProbedTrees, ProbedTrees]) -> Structural:
        from cloze.probes.distance import probe_distance

        return probe_distance(loaded, *material, rank=self.rank, seed=self.seed, length=self.length, size=self.batch)

    def tables(self, name: str, figures: Structural) -> list[Table]:
        return [layer_table(
            f"{name}: distances in the tree from each layer",
            {
                "edges found (UUAS)": figures.uuas, "rank correlation of distances": figures.correlation,
                "roots found": figures.root, "rank correlation of depths": figures.depth,
            },
            f"{figures.train:,} training and {figures.test:,} test sentences; edges and roots without punctuation. A tree that "
            f"links neighbouring words finds {figures.chain:.3f} of the edges.",
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Structural]) -> list[Plot]:
        longest = max(len(probe.uuas) for probe in results.values())
        titles = ("edges of the tree that are found", "rank correlation of distances", "roots that are found",
                  "rank correlation of depths")  # fmt: skip
        figures = {name: (probe.uuas, probe.correlation, probe.root, probe.depth) for name, probe in results.items()}
        neighbours = {"neighbouring words": [next(iter(results.values())).chain] * longest}
        return [
            plot for number, title in enumerate(titles)
            for plot in by_layer_and_step(
                title, {name: lines[number] for name, lines in figures.items()}, subjects, dashed={} if number else neighbours
            )
        ]  # fmt: skip
