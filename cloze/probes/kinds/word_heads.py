"""`cloze probe attachments`."""

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
    from cloze.probes.attachments import HeadScores
    from cloze.probes.distance import ProbedTrees


@register("probe", "attachments")
@dataclass(frozen=True, kw_only=True)
class AttachmentProbe(TrainTestProbe["ProbedTrees", "HeadScores"]):
    """Which word is the head of each word (Hewitt & Liang, 2019), by a bilinear map or an MLP; with a control task (CoNLL-U)."""

    title = "Which word is the head of each word?"
    sentences = 1000

    control: Annotated[bool, typer.Option(help="also train on random labels (control task)")] = True
    hidden: Annotated[
        int | None, typer.Option(min=0, max=2, help="hidden layers; 0, the default: a bilinear map of rank --width")
    ] = None
    width: Annotated[int, typer.Option(min=1, help="hidden units, or the rank")] = 1000
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="dropout of the probe")] = 0.0

    def read_file(self, path: str) -> ProbedTrees:
        from cloze.probes.distance import read_trees

        return read_trees(path, most=self.limit)

    def measure(self, loaded: Checkpoint, material: tuple[ProbedTrees, ProbedTrees]) -> HeadScores:
        from cloze.probes.attachments import probe_attachments
        from cloze.probes.linear import HiddenLayers

        layers = HiddenLayers(self.hidden or 0, self.width, self.dropout)
        return probe_attachments(
            loaded, *material, layers, control=self.control, seed=self.seed, length=self.length, size=self.batch
        )

    def tables(self, name: str, figures: HeadScores) -> list[Table]:
        columns = {"edges found": figures.accuracy, "control": figures.control, "selectivity": figures.selectivity}
        return [layer_table(
            f"{name}: heads of words from each layer", columns,
            f"{figures.train:,} training and {figures.test:,} test sentences; without punctuation. {figures.neighbours:.3f} of "
            "the heads are neighbours of their word. In the control task, a head is the word itself, the first word or the last.",
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, HeadScores]) -> list[Plot]:
        dashed = {f"{name}, control": figures.control for name, figures in results.items()}
        accuracies = {name: figures.accuracy for name, figures in results.items()}
        plots = by_layer_and_step("heads that are found", accuracies, subjects, dashed=dashed)
        return plots + by_layer_and_step(
            "selectivity", {name: figures.selectivity for name, figures in results.items()}, subjects
        )

    def data(self, figures: HeadScores) -> dict[str, object]:
        return {**vars(figures), "selectivity": figures.selectivity}
