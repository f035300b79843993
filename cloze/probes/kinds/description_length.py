"""`cloze probe description`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step, layer_name, layer_table
from cloze.probes.kinds.word_labels import WordLabelProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.description import Description
    from cloze.probes.layers import LabelledWords


@register("probe", "description")
@dataclass(frozen=True, kw_only=True)
class DescriptionProbe(WordLabelProbe["Description"]):
    """How many bits describe the labels of words, given a layer (online code; Voita & Titov, 2020); with a control task."""

    files = "TRAIN,DEV"
    needs = {"width": "hidden"}
    form = "COLUMN=TRAIN,DEV or sense=TRAIN,DEV"

    task: Annotated[str | None, typer.Option(help=f"{form}: TRAIN is described, DEV says when training stops")] = None
    hidden: Annotated[
        int | None, typer.Option(min=0, max=2, help="hidden layers, published: 2; 0: a map of rank --width; default: linear")
    ] = None
    width: Annotated[int, typer.Option(min=1, help="hidden units, or the rank")] = 1000
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="dropout of the probe")] = 0.0

    @property
    def title(self) -> str:
        return f"How many bits describe the labels: {self.labels}"

    def measure(self, loaded: Checkpoint, material: tuple[LabelledWords, LabelledWords]) -> Description:
        from cloze.probes.description import describe
        from cloze.probes.linear import HiddenLayers, LinearMap

        linear = LinearMap(self.dropout) if self.hidden is None else None
        layers = linear or HiddenLayers(self.hidden or 0, self.width, self.dropout)
        return describe(
            loaded, *material, layers, control=self.control_task, seed=self.seed, length=self.length, size=self.batch
        )

    def tables(self, name: str, figures: Description) -> list[Table]:
        words, code, control = figures.ends[-1], figures.labels, figures.control
        uniform_bits = figures.uniform / words
        columns: dict[str, Iterable[float]] = {
            "bits per label": code.lengths / words, "compression": figures.compression(code), "accuracy": code.accuracy,
        }  # fmt: skip
        if control is not None:
            columns |= {
                "control: bits": control.lengths / words, "its compression": figures.compression(control),
                "its accuracy": control.accuracy,
            }  # fmt: skip
        return [layer_table(
            f"{name}: online code of {self.labels} at each layer", columns,
            f"{words:,} labels of {figures.classes} classes in {len(figures.ends)} parts; {uniform_bits:.3f} bits each if all "
            f"classes were equally likely. Compression: how many times shorter the code is. Accuracy on {figures.held_out:,} "
            "words, which also said when to stop training.",
        )]  # fmt: skip

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, Description]) -> list[Plot]:
        labels = {name: figures.compression(figures.labels) for name, figures in results.items()}
        controls = {
            f"{name}, control": figures.compression(figures.control) for name, figures in results.items() if figures.control
        }
        plots = by_layer_and_step(f"compression: {self.labels}", labels, subjects, dashed=controls)
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, figures in results.items():
            best = int(figures.labels.lengths.argmin())
            for n in sorted({0, best}):
                lines[f"{name}, layer {layer_name(n)}" if n else f"{name}, input"] = self._per_label(figures, n)
        return [*plots, Plot("bits per label of each part, at the input and at the best layer", "part", lines)]

    def _per_label(self, figures: Description, layer: int) -> list[tuple[float, float]]:
        """The bits per label of each part."""
        words = [end - begin for begin, end in zip((0, *figures.ends), figures.ends, strict=False)]
        return [
            (float(part + 1), float(bits / count))
            for part, (bits, count) in enumerate(zip(figures.labels.bits[layer], words, strict=True))
        ]

    def data(self, figures: Description) -> dict[str, Any]:
        data: dict[str, Any] = {"uniform": figures.uniform, "ends": figures.ends, "classes": figures.classes}
        for name, code in (("labels", figures.labels), ("control", figures.control)):
            if code is not None:
                data[name] = {
                    "length": code.lengths, "compression": figures.compression(code), "parts": code.bits,
                    "accuracy": code.accuracy,
                }  # fmt: skip
        return data

    def remarks(self, figures: Description) -> Sequence[str]:
        longer = min(figures.labels.lengths) >= figures.uniform
        nothing = "no layer describes the labels in fewer bits than the uniform code: nothing is shown"
        return [*figures.remarks, *([nothing] if longer else [])]
