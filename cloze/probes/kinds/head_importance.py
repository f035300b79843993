"""`cloze probe heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.errors import UserError
from cloze.probes.finding import Plot, Subject, Table
from cloze.probes.probe import LossProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.heads import HeadImportance


@register("probe", "heads")
@dataclass(frozen=True, kw_only=True)
class HeadProbe(LossProbe["HeadImportance"]):
    """How important each head is; the loss or a metric of the task as heads are closed (their gates set to 0)."""

    title = "How important are the heads?"
    sentences = 500

    importance: Annotated[
        str | None, typer.Option(help="a file like that of --text or --task, on which the importance is measured instead")
    ] = None
    metric: Annotated[str | None, typer.Option(help="the metric of the task that is measured; default: its first")] = None
    bleu: Annotated[str | None, typer.Option(help="the tokenization by which --metric bleu is computed, such as 13a")] = None
    each: Annotated[bool, typer.Option("--each", help="also close each head alone")] = False
    only: Annotated[bool, typer.Option("--only", help="also close all heads of a layer but one")] = False
    exact: Annotated[bool, typer.Option("--exact", help="measure the importance again after each step of closing heads")] = False
    spare: Annotated[int, typer.Option(min=0, help="heads of every layer that stay")] = 0

    def read(self) -> list[str]:
        texts = super().read()
        if self.task is None and (self.metric or self.bleu):
            raise UserError("--metric and --bleu are for labelled text (--task); the measure of plain text is its loss.")
        return texts

    def measure(self, loaded: Checkpoint, material: list[str]) -> HeadImportance:
        from cloze.probes.gates import head_kinds
        from cloze.probes.heads import Pruning, probe_heads

        head_kinds(loaded.network)  # an error for a network without heads comes before one for a checkpoint without a loss
        measuring: dict[str, Any] = {}
        if self.task is not None:
            measuring = {"metric": self.metric or ("bleu" if self.bleu else None), "bleu": self.bleu}
        examples, by = self.examples(loaded, material, self.task, self.most, **measuring), None
        if self.importance is not None:
            task = None if self.task is None else f"{self.task.rpartition('=')[0]}={self.importance}"
            texts = self.sentences_of(self.importance) if task is None else []
            by = self.examples(loaded, texts, task, self.most, **measuring)
        pruning = Pruning(seed=self.seed, spared=self.spare, exact=self.exact)
        return probe_heads(examples, by=by, pruning=pruning, size=self.batch, each_alone=self.each, only_one=self.only)

    def tables(self, name: str, figures: HeadImportance) -> list[Table]:
        columns = zip(figures.shares, figures.curve, figures.random, figures.deviation, strict=True)
        tables = [Table(
            f"{name}: {figures.measure} as heads are closed", ["closed", "least important first", "random order", "±"],
            [[f"{share:.0%}", *values] for share, *values in columns],
            _conclusion(figures),
        )]  # fmt: skip
        for kind in figures.kinds:
            for title, scores in (
                ("importance", figures.importance), (f"change of the {figures.measure} without it", figures.each),
                (f"change of the {figures.measure} with it alone in its layer", figures.only)
            ):
                if kind.argument in scores:
                    matrix = scores[kind.argument]
                    rows = [[str(n + 1), *map(float, matrix[n])] for n in reversed(range(len(matrix)))]
                    head = ["layer", *(str(h + 1) for h in range(kind.heads))]
                    tables.append(Table(f"{name}: {title} of every head, {kind.name}", head, rows, shaded=True))
            if kind.argument in figures.best:
                layers = enumerate(figures.best[kind.argument])
                tables.append(Table(
                    f"{name}: change of the {figures.measure} with one head in a layer, {kind.name}",
                    ["layer", "best head", "change"], [[str(n + 1), head + 1, change] for n, (head, change) in layers][::-1],
                ))
        return tables

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, HeadImportance]) -> list[Plot]:
        plots = []
        steps = [subject for subject in subjects if subject.step is not None]
        if len(steps) > 1:
            shares = [(float(subject.step or 0), results[subject.name].closable) for subject in steps]
            line = [(step, share) for step, share in shares if share is not None]
            plots += [Plot("share of heads that can be closed, over training", "step", {"closable": line})] if line else []
        for name, heads in results.items():
            lines = {
                "least important first": list(zip(heads.shares, heads.curve, strict=True)),
                "random order": list(zip(heads.shares, heads.random, strict=True)),
            }
            title = f"{name}: {heads.measure} as heads are closed"
            plots.append(Plot(title, "share of heads closed", lines, frozenset({"random order"})))
        return plots

    def data(self, figures: HeadImportance) -> dict[str, Any]:
        return {
            "importance": dict(figures.importance), "order": [list(head) for head in figures.order], "measure": figures.measure,
            "shares": list(figures.shares), "curve": list(figures.curve), "random": list(figures.random),
            "deviation": list(figures.deviation), "closable": figures.closable, "each": dict(figures.each),
            "only": dict(figures.only), "best": {argument: list(map(list, best)) for argument, best in figures.best.items()},
        }

    def remarks(self, figures: HeadImportance) -> Sequence[str]:
        chosen = [] if self.importance else [
            "the importance is measured on the same text as the curve, which favours its order: give another text to --importance"
        ]  # fmt: skip
        return [*figures.remarks, *chosen]


def _conclusion(figures: HeadImportance) -> str:
    """How many heads can be closed, in a sentence."""
    share, measure = figures.closable, figures.measure
    if share is None:
        return (
            f"The {measure} with all heads is {figures.curve[0]:.4f}, not above 0: this does not say how many heads can be "
            "closed. Give more rows, another --metric, or a checkpoint that learned more."
        )
    if share < figures.shares[-1]:
        return f"{share:.0%} of the heads can be closed before the {measure} is a tenth worse."
    return f"Without these heads the {measure} is not a tenth worse: here it hardly depends on attention."
