"""`cloze probe layers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from cloze.errors import Phrase, UserError, spelled_by
from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_table
from cloze.probes.probe import Figures, TrainTestProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.layers import LabelledWords, LayerScores
    from cloze.probes.linear import Control


@dataclass(frozen=True, kw_only=True)
class WordLabelProbe(TrainTestProbe["LabelledWords", Figures]):
    """A probe of the labels or senses of words; `files` says how --task names the two files, after the column of the labels."""

    sentences = 1500
    files: ClassVar[str] = "TRAIN,TEST"
    with_name = True

    control: Annotated[bool, typer.Option(help="also train on random labels (control task)")] = True

    @property
    def labels(self) -> str:
        """The column of the labels, or `sense`."""
        return (self.task or "").partition("=")[0]

    @property
    def senses(self) -> bool:
        """Whether they are senses of words."""
        return self.labels == "sense"

    @property
    def control_task(self) -> Control | None:
        """How the labels of the control task are drawn; None without one."""
        if not self.control:
            return None
        return "shuffled" if self.senses else "kinds"

    def read_file(self, path: str) -> LabelledWords:
        from cloze.probes.layers import marked_spans, sense_words, tagged_words

        if self.senses:
            return (sense_words if path.endswith(".xml") else marked_spans)(path, most=self.limit)
        with spelled_by(self._as_task):
            return tagged_words(path, self.labels, most=self.limit)

    def _as_task(self, phrase: Phrase) -> str | None:
        """How a phrase about the columns of labelled words is written: `--task` names that of the label, and no other is
        chosen."""
        if phrase.parameter.key == "label":
            return phrase.naming(f"--task {phrase.parameter.value}={self.files}")
        return "" if phrase.parameter.key in ("text", "columns") else None


@register("probe", "layers")
@dataclass(frozen=True, kw_only=True)
class LayerProbe(WordLabelProbe["LayerScores"]):
    """How well each layer predicts labels or senses of words, by a linear map or an MLP; with a control task."""

    form = "COLUMN=TRAIN,TEST or sense=TRAIN,TEST"
    needs = {"width": "hidden", "dropout": "hidden"}

    task: Annotated[str | None, typer.Option(help=form)] = None
    hidden: Annotated[
        int | None, typer.Option(min=0, max=2, help="a second probe with 1 or 2 hidden layers; 0: a linear map of rank --width")
    ] = None
    width: Annotated[int, typer.Option(min=1, help="hidden units of the second probe")] = 1000
    wordnet: Annotated[str | None, typer.Option(help="index.sense: senses of lemmas that the training file lacks")] = None
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="dropout of the second probe")] = 0.0

    @property
    def title(self) -> str:
        return f"What can be read from each layer: {self.labels}"

    @property
    def second_name(self) -> str:
        """What the second probe is called."""
        return f"MLP-{self.hidden}" if self.hidden else f"rank {self.width}"

    def read_file(self, path: str) -> LabelledWords:
        from cloze.corpus.readers.sense_xml import first_senses

        if self.wordnet is not None and not self.senses:
            raise UserError(f"--wordnet names senses of lemmas, and the labels are {self.labels}. Leave it out.")
        probed = super().read_file(path)
        return probed if self.wordnet is None else replace(probed, fallback=first_senses(self.wordnet))

    def measure(self, loaded: Checkpoint, material: tuple[LabelledWords, LabelledWords]) -> LayerScores:
        from cloze.probes.layers import LayerScores, nearest_senses, split_of
        from cloze.probes.linear import HiddenLayers, probe_linear

        split, remarks = split_of(loaded, *material, length=self.length, size=self.batch)
        scores, second = probe_linear(split, seed=self.seed, control=self.control_task), None
        if self.hidden is not None:
            layers = HiddenLayers(self.hidden, self.width, self.dropout)
            second = probe_linear(split, seed=self.seed, control=self.control_task, layers=layers)
        return LayerScores(scores, nearest_senses(split) if self.senses else None, second, remarks)

    def tables(self, name: str, figures: LayerScores) -> list[Table]:
        scores, near, second = figures.scores, figures.senses, figures.second
        columns = {"accuracy": scores.accuracy, "control": scores.control, "selectivity": scores.selectivity}
        if second is not None:
            columns |= {self.second_name: second.accuracy, "its control": second.control, "its selectivity": second.selectivity}
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
        selectivity = {name: probe.selectivity for name, probe in scores.items()}
        second = {
            f"{name}, {self.second_name}": layers.second.selectivity for name, layers in results.items() if layers.second
        }
        plots += by_layer_and_step("selectivity", selectivity, subjects, dashed=second)
        nearest = {name: figures.senses.mean for name, figures in results.items() if figures.senses}
        return plots + (by_layer_and_step("accuracy of the nearest sense", nearest, subjects) if nearest else [])

    def data(self, figures: LayerScores) -> dict[str, Any]:
        scores, near, second = figures.scores, figures.senses, figures.second
        nearest = {} if near is None else {"nearest_occurrence": near.occurrence, "nearest_sense": near.mean}
        first = {"accuracy": scores.accuracy, "control": scores.control, "selectivity": scores.selectivity}
        hidden = {} if second is None else {
            "hidden": {"accuracy": second.accuracy, "control": second.control, "selectivity": second.selectivity}
        }  # fmt: skip
        return first | vars(scores) | nearest | hidden

    def remarks(self, figures: LayerScores) -> Sequence[str]:
        scores = figures.scores
        nothing = (
            f"no layer is better than {scores.without_network:.3f}, the most frequent label without a network: nothing is shown"
        )
        return [*figures.remarks, *([nothing] if max(scores.accuracy) <= scores.without_network else [])]
