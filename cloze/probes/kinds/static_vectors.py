"""`cloze probe static`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cloze.errors import UserError
from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_name, unlike
from cloze.probes.probe import TextProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.interop.vectors import Vectors
    from cloze.probes.static import Compared
    from cloze.tasks.intrinsic.similarity import WordPair


class SimilarityData(NamedTuple):
    """Sentences, pairs of words with scores by the name of their set, and word vectors to compare with by name."""

    texts: list[str]
    sets: Mapping[str, Sequence[WordPair]]
    references: Mapping[str, Vectors]


@register("probe", "static")
@dataclass(frozen=True, kw_only=True)
class StaticProbe(TextProbe[SimilarityData, "Compared"]):
    """One vector per word, the first principal component of its occurrences."""

    title = "One vector per word from contextual ones"
    sentences = 50_000

    similarity: Annotated[Sequence[str], typer.Option(help="a file with two words and a score per line")] = ()
    against: Annotated[Sequence[Path], typer.Option(help="word vectors to compare with")] = ()
    contexts: Annotated[int, typer.Option(min=0, help="read the first so many occurrences of a word; 0: all")] = 50

    def read(self) -> SimilarityData:
        from cloze.interop.vectors import open_vectors
        from cloze.tasks.intrinsic.similarity import read_pairs

        texts = self.texts()
        if not self.similarity:
            raise UserError(f"{self.name} needs --similarity FILE: two words and a score per line; repeatable.")
        names = unlike([Path(file).name.partition(".")[0] for file in self.similarity], self.similarity)
        sets = {name: read_pairs(file) for name, file in zip(names, self.similarity, strict=True)}
        tables = unlike([path.name for path in self.against], self.against)
        return SimilarityData(texts, sets, {name: open_vectors(path) for name, path in zip(tables, self.against, strict=True)})

    def measure(self, loaded: Checkpoint, material: SimilarityData) -> Compared:
        from cloze.probes.static import compare, static_vectors

        words = sorted({word for pairs in material.sets.values() for pair in pairs for word in (pair.one, pair.two)})
        most = self.contexts or None
        vectors = static_vectors(loaded, material.texts, words, occurrences=most, length=self.length, size=self.batch)
        return compare(vectors, material.sets, material.references)

    def tables(self, name: str, figures: Compared) -> list[Table]:
        sets = list(figures.first)
        rows: list[list[Any]] = []
        for n in reversed(range(len(next(iter(figures.first.values()))))):
            rows += [[f"{layer_name(n)}, first component", *(figures.first[key][n] for key in sets)],
                     [f"{layer_name(n)}, mean", *(figures.mean[key][n] for key in sets)]]
        rows += [[title, *(scores[key] for key in sets)] for title, scores in figures.against.items()]
        rows.append(["pairs", *(figures.pairs[key] for key in sets)])
        return [Table(
            f"{name}: rank correlation with people's scores", ["vectors", *sets], rows,
            "Over the pairs whose words occur in the texts and, if others are given, in all of them.",
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Compared]) -> list[Plot]:
        plots: list[Plot] = []
        for key in next(iter(results.values())).first:
            lines = {name: correlations.first[key] for name, correlations in results.items()}
            longest = max(len(line) for line in lines.values())
            dashed = {f"{name}, mean": correlations.mean[key] for name, correlations in results.items()}
            dashed |= {title: [scores[key]] * longest for title, scores in next(iter(results.values())).against.items()}
            plots += by_layer_and_step(f"{key}: first components", lines, subjects, dashed=dashed)
        return plots
