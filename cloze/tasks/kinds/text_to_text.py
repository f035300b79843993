"""Text to text: any task as the generation of a target for a text (Raffel et al., 2020, §2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from cloze.corpus.readers.labelled import OPTION, UNTRAINED, Format, Quoting, Table, Trained, read_table
from cloze.corpus.records.texts import joined, missing, references
from cloze.decoding.generating.search import Beams
from cloze.decoding.reader import Checkpoint
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.kinds.answerer import Answerer, Texts, load
from cloze.tasks.measures.bleu import bleu as bleu_of
from cloze.tasks.measures.bleu import bleu_metric, bleu_remark
from cloze.tasks.measures.chrf import chrf
from cloze.tasks.measures.overlap import NAMES, overlap


@dataclass(frozen=True)
class TextToText:
    """A task: which columns hold the text and the target, the prefix of every text, and how a target is found.

    `search` None takes the most probable token each time. `bleu` names the tokenization by which sacrebleu computes BLEU; None:
    it is not computed. `columns`, `format` and `quoting` are those of `read_table`.
    """

    text: str = "text"
    label: str = "target"
    prefix: str = ""
    search: Beams | None = None
    bleu: str | None = None
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"
    trained: Trained = UNTRAINED
    name: str = "text_to_text"
    of_words: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def metrics(self) -> Mapping[str, bool]:
        """The loss first (lower is better), then the metrics of the written texts."""
        more = ("chrf",) if self.bleu is None else ("chrf", "bleu")
        return MappingProxyType({"loss": False, **dict.fromkeys((*NAMES, *more), True)})

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> TextToText:
        """The same task for files in another format."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def linear(self, labels: Sequence[str] = ()) -> None:
        """None: a linear model writes no text."""

    def deciding(self, *, beams: int | None, length_penalty: float | None) -> TextToText:
        """The same task writing by a beam search; None: as it is."""
        if beams is None and length_penalty is None:
            return self
        search = self.search
        if beams is None and search is None:
            raise TaskError("--length-penalty is for a beam search: give --beams too.")
        count = search.count if beams is None and search is not None else int(beams or 1)
        usual = 1.0 if search is None else search.length_penalty
        return replace(self, search=Beams(count, usual if length_penalty is None else length_penalty))

    def table(self, path: Path | str) -> Table:
        """The rows of a file."""
        return read_table(
            path, format=self.format, columns=self.columns, quoting=self.quoting, trained=self.trained, lists=True
        )

    def read(self, path: Path | str, *, labelled: bool = True) -> Texts:
        """The examples of a file; without `labelled` targets are not looked at."""
        table = self.table(path)
        texts = [joined(cell) for cell in table.column(self.text, OPTION)]
        targets = [references(cell) for cell in table.column(self.label, OPTION.sibling("label", "NAME"))] if labelled else None
        for target, line in zip(targets or (), table.lines, strict=False):
            if not target:
                raise TaskError(f"{table.path}:{line}: {missing(self.label)}")
        return Texts(texts, targets, table.path, table.lines)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Answerer:
        """What learned to write, of a fine-tuned folder."""
        return load(loaded, self, described, precision)

    def constant(self, always: str, examples: Texts, labels: Sequence[str]) -> dict[str, float]:
        """The figures of always writing one target."""
        written, targets = [always] * len(examples), examples.targets or ()
        return {**overlap(written, targets), "chrf": chrf(written, targets), **self.corpus_figures(written, targets)}

    def corpus_figures(self, written: Sequence[str], wanted: Sequence[Sequence[str]]) -> dict[str, float]:
        """The figures that others than cloze compute, of all texts together: BLEU, if it is asked for."""
        return {} if self.bleu is None else {"bleu": bleu_of(bleu_metric(self.bleu), written, wanted)}

    def remarks(self, wanted: Sequence[Sequence[str]]) -> list[str]:
        """How such figures are computed, and whether these targets allow any but 0."""
        if self.bleu is None:
            return []
        metric = bleu_metric(self.bleu)
        remark = bleu_remark(metric, wanted, self.bleu)  # the signature is known afterwards
        signature = f"BLEU, from 0 to 100, is sacrebleu's: {metric.get_signature()}"
        return [signature] if remark is None else [signature, remark]

    def description(self) -> dict[str, Any]:
        """The columns, and the options that name none."""
        beams = {} if self.search is None else {"beams": self.search.count, "length_penalty": self.search.length_penalty}
        return {"columns": {"text": self.text, "label": self.label}, "prefix": self.prefix, **beams}


@register("task", "text_to_text")
def text_to_text(
    text: str = "text", label: str = "target", prefix: str = "", beams: int | None = None,
    length_penalty: float | None = None, bleu: str | None = None,
) -> TextToText:
    """Write a target for a text: translation, summaries, questions, labels as words. `text` and `label` name columns.

    A target that is a list of texts holds several references; each of them is right.
    """
    if bleu is not None:
        bleu_metric(bleu)  # is it there?
    return TextToText(text, label, prefix, bleu=bleu).deciding(beams=beams, length_penalty=length_penalty)
