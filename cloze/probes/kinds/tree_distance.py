"""`cloze probe distance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def read_file(self, path: str) -> ProbedTrees:
        from cloze.probes.distance import read_trees

        return read_trees(path, most=self.limit)

    def measure(self, loaded: Checkpoint, material: tuple[ProbedTrees, ProbedTrees]) -> Structural:
        from cloze.probes.distance import probe_distance

        return probe_distance(loaded, *material, seed=self.seed, length=self.length, size=self.batch)

    def tables(self, name: str, figures: Structural) -> list[Table]:
        return [layer_table(
            f"{name}: distances in the tree from each layer",
            {"edges found": figures.uuas, "rank correlation": figures.correlation},
            f"{figures.train:,} training and {figures.test:,} test sentences. A tree that links neighbouring words finds "
            f"{figures.chain:.3f} of the edges.",
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Structural]) -> list[Plot]:
        longest = max(len(probe.uuas) for probe in results.values())
        edges = by_layer_and_step(
            "edges of the tree that are found", {name: probe.uuas for name, probe in results.items()}, subjects,
            dashed={"neighbouring words": [next(iter(results.values())).chain] * longest},
        )
        ranks = {name: probe.correlation for name, probe in results.items()}
        return edges + by_layer_and_step("rank correlation of distances", ranks, subjects)
