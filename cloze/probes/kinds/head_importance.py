"""`cloze probe heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.probes.finding import Plot, Subject, Table
from cloze.probes.probe import LossProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.heads import HeadImportance


@register("probe", "heads")
@dataclass(frozen=True, kw_only=True)
class HeadProbe(LossProbe["HeadImportance"]):
    """How important each head is; the loss or accuracy as heads are closed (their gates set to 0)."""

    title = "How important are the heads?"
    sentences = 500

    each: Annotated[bool, typer.Option("--each", help="also close each head alone")] = False

    def measure(self, loaded: Checkpoint, material: list[str]) -> HeadImportance:
        from cloze.probes.gates import families
        from cloze.probes.heads import probe_heads

        families(loaded.network)  # an error for a network without heads comes before one for a checkpoint without a loss
        examples = self.examples(loaded, material, self.most)
        return probe_heads(examples, seed=self.seed, size=self.batch, single_heads=self.each)

    def tables(self, name: str, figures: HeadImportance) -> list[Table]:
        columns = zip(figures.shares, figures.curve, figures.random, figures.deviation, strict=True)
        tables = [Table(
            f"{name}: {figures.measure} as heads are closed", ["closed", "least important first", "random order", "±"],
            [[f"{share:.0%}", *values] for share, *values in columns],
            f"{figures.closable:.0%} of the heads can be closed before the {figures.measure} is a tenth worse."
            if figures.closable < 1 else
            f"Without any head the {figures.measure} is not a tenth worse: here it hardly depends on attention.",
        )]  # fmt: skip
        for kind in figures.families:
            for title, scores in (
                ("importance", figures.importance), (f"change of the {figures.measure} without it", figures.each)
            ):
                if kind.argument in scores:
                    matrix = scores[kind.argument]
                    rows = [[str(n + 1), *map(float, matrix[n])] for n in reversed(range(len(matrix)))]
                    head = ["layer", *(str(h + 1) for h in range(kind.heads))]
                    tables.append(Table(f"{name}: {title} of every head, {kind.name}", head, rows, shaded=True))
        return tables

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, HeadImportance]) -> list[Plot]:
        plots = []
        steps = [subject for subject in subjects if subject.step is not None]
        if len(steps) > 1:
            line = [(float(subject.step or 0), results[subject.name].closable) for subject in steps]
            plots.append(Plot("share of heads that can be closed, over training", "step", {"closable": line}))
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
        }

    def remarks(self, figures: HeadImportance) -> Sequence[str]:
        return figures.remarks
