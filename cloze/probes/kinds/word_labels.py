"""`cloze probe layers` and `cloze probe edges`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.errors import Phrase, spelled_by
from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_table
from cloze.probes.probe import TrainTestProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.layers import LayerScores, Probed


@dataclass(frozen=True, kw_only=True)
class LabelProbe(TrainTestProbe["Probed", "LayerScores"]):
    """A probe that predicts labels from each layer by a linear map, and random labels by another."""

    sentences = 1500

    control: Annotated[bool, typer.Option(help="also train on random labels (control task)")] = True

    @property
    @abstractmethod
    def labels(self) -> str:
        """What the labels are, in titles."""

    @property
    def senses(self) -> bool:
        """Whether they are senses of words, which are also taken from the nearest neighbours."""
        return False

    @property
    def title(self) -> str:
        return f"What can be read from each layer: {self.labels}"

    def measure(self, loaded: Checkpoint, material: tuple[Probed, Probed]) -> LayerScores:
        from cloze.probes.layers import LayerScores, nearest_senses, split_of
        from cloze.probes.linear import probe_linear

        split, remarks = split_of(loaded, *material, length=self.length, size=self.batch)
        control: Any = ("shuffled" if self.senses else "kinds") if self.control else None
        scores = probe_linear(split, seed=self.seed, control=control)
        return LayerScores(scores, nearest_senses(split) if self.senses else None, remarks)

    def tables(self, name: str, figures: LayerScores) -> list[Table]:
        scores, near = figures.scores, figures.senses
        columns = {"accuracy": scores.accuracy, "control": scores.control, "selectivity": scores.selectivity}
        if near is not None:
            columns |= {"nearest occurrence": near.occurrence, "nearest sense": near.mean}
        return [layer_table(
            f"{name}: {self.labels} from each layer", columns,
            f"{scores.train:,} training and {scores.test:,} test examples of {scores.classes} classes. Without a network: "
            f"{scores.majority:.3f} by the most frequent label, {scores.by_kind:.3f} by the most frequent one of each word. "
            + ("The control gives every example the label of a random one." if near else
               "The control gives every word a random label; a probe that learns it as well has only learned words."),
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, LayerScores]) -> list[Plot]:
        scores = {name: figures.scores for name, figures in results.items()}
        plots = by_layer_and_step(
            f"accuracy: {self.labels}", {name: probe.accuracy for name, probe in scores.items()}, subjects,
            dashed={
                **{f"{name}, control": probe.control for name, probe in scores.items()},
                **{f"{name}, without a network": [probe.without_network] * len(probe.accuracy) for name, probe in scores.items()},
            },
        )
        plots += by_layer_and_step("selectivity", {name: probe.selectivity for name, probe in scores.items()}, subjects)
        nearest = {name: figures.senses.mean for name, figures in results.items() if figures.senses}
        return plots + (by_layer_and_step("accuracy of the nearest sense", nearest, subjects) if nearest else [])

    def data(self, figures: LayerScores) -> dict[str, Any]:
        scores, near = figures.scores, figures.senses
        nearest = {} if near is None else {"nearest_occurrence": near.occurrence, "nearest_sense": near.mean}
        first = {"accuracy": scores.accuracy, "control": scores.control, "selectivity": scores.selectivity}
        return first | vars(scores) | nearest

    def remarks(self, figures: LayerScores) -> Sequence[str]:
        scores = figures.scores
        nothing = (
            f"no layer is better than {scores.without_network:.3f}, the most frequent label without a network: nothing is shown"
        )
        return [*figures.remarks, *([nothing] if max(scores.accuracy) <= scores.without_network else [])]


@register("probe", "edges")
@dataclass(frozen=True, kw_only=True)
class EdgeProbe(LabelProbe):
    """How well each layer predicts dependency relations (CoNLL-U)."""

    labels = "relations of words to their heads"

    def read_file(self, path: str) -> Probed:
        from cloze.probes.layers import related_words

        return related_words(path, most=self.limit)


@register("probe", "layers")
@dataclass(frozen=True, kw_only=True)
class LayerProbe(LabelProbe):
    """How well each layer predicts labels or senses of words; with a control task."""

    form = "COLUMN=TRAIN,TEST or sense=TRAIN,TEST"
    with_name = True

    task: Annotated[str | None, typer.Option(help=form)] = None

    @property
    def labels(self) -> str:
        """The column of the labels, or `sense`."""
        return (self.task or "").partition("=")[0]

    @property
    def senses(self) -> bool:
        return self.labels == "sense"

    def read_file(self, path: str) -> Probed:
        from cloze.probes.layers import marked_spans, tagged_words

        if self.senses:
            return marked_spans(path, most=self.limit)
        with spelled_by(_as_task):
            return tagged_words(path, self.labels, most=self.limit)


def _as_task(phrase: Phrase) -> str | None:
    """How a phrase about the columns of labelled words is written: `--task` names that of the label, and no other is chosen."""
    if phrase.parameter.key == "label":
        return phrase.naming(f"--task {phrase.parameter.value}=TRAIN,TEST")
    return "" if phrase.parameter.key in ("text", "columns") else None
