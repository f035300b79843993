"""`cloze probe geometry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_table
from cloze.probes.probe import TextProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.geometry import Geometry


@register("probe", "geometry")
@dataclass(frozen=True, kw_only=True)
class GeometryProbe(TextProbe[list[str], "Geometry"]):
    """How contextual the vectors of words are."""

    title = "How contextual are the vectors of words?"
    sentences = 5000

    least: Annotated[int, typer.Option(min=2, help="measure words that occur at least this often")] = 5
    words: Annotated[int, typer.Option(min=0, help="measure at most this many words; 0: all")] = 200
    occurrences: Annotated[int, typer.Option(min=0, help="measure at most this many occurrences of a word; 0: all")] = 30
    unit: Annotated[
        Literal["words", "pieces"], typer.Option(help="words without punctuation, or the pieces of the vocabulary, as published")
    ] = "words"

    def read(self) -> list[str]:
        return self.texts()

    def measure(self, loaded: Checkpoint, material: list[str]) -> Geometry:
        from cloze.probes.geometry import Sampled, geometry

        sampled = Sampled(self.words or None, self.least, self.occurrences or None, seed=self.seed, unit=self.unit)
        return geometry(loaded, material, sampled, length=self.length, size=self.batch)

    def tables(self, name: str, figures: Geometry) -> list[Table]:
        from cloze.probes.measures import ESTIMATORS

        cosines = (
            "self-similarity", "baseline", "adjusted", "intra-sentence", "intra-sentence adjusted", "standardised adjusted"
        )
        shares = [f"{estimator}{end}" for estimator in ESTIMATORS for end in ("", " baseline", " adjusted")]
        calm = sorted(figures.words, key=lambda word: figures.words[word][-1])
        lists = [["least self-similar", ", ".join(calm[:10])], ["most self-similar", ", ".join(calm[::-1][:10])]]
        return [
            layer_table(
                f"{name}: contextuality by layer", {column: figures.measures[column] for column in cosines},
                f"{len(figures.words):,} {self.unit} and {figures.sentences:,} sentences; adjusted: minus the baseline, the mean "
                f"cosine of random {self.unit}.",
            ),
            layer_table(
                f"{name}: variance explained by one direction", {column: figures.measures[column] for column in shares},
                "Three estimators: uncentred is the paper's formula, centred is PCA, truncated is what early public code "
                "computed.",
            ),
            Table(f"{name}: {self.unit} at the top layer", ["", self.unit], lists),
        ]

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Geometry]) -> list[Plot]:
        from cloze.probes.measures import ESTIMATORS

        titles = {"baseline": "anisotropy: mean cosine of random words", "adjusted": "self-similarity, adjusted"}
        titles |= {name: f"variance explained, {name}" for name in ESTIMATORS}
        plots: list[Plot] = []
        for measure in ("self-similarity", "baseline", "adjusted", "intra-sentence adjusted", *ESTIMATORS):
            values = {name: space.measures[measure].tolist() for name, space in results.items()}
            plots += by_layer_and_step(titles.get(measure, measure), values, subjects)
        return [plot for plot in plots if any(plot.lines.values())]
