"""Hang the words of a sentence on one another: dependency trees, as in Universal Dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError
from cloze.registry import register
from cloze.tasks.kinds.conllu import Trees, read_trees
from cloze.tasks.kinds.parser import NAMES, Parser, constant
from cloze.tasks.task import Unsearched


@dataclass(frozen=True)
class DependencyParsing(Unsearched):
    """Which columns of CoNLL-U hold a word and the relation to its head."""

    text: str = "form"
    label: str = "deprel"
    format: Format | None = None
    name: str = "dependency_parsing"
    does: ClassVar[str] = "finds the best tree"
    of_words: ClassVar[bool] = True  # a text may be a list of its words
    writes: ClassVar[tuple[str, ...]] = ("conllu",)

    @property
    def metrics(self) -> Mapping[str, bool]:
        """The labelled attachment score first; of all of them more is better."""
        return dict.fromkeys(NAMES, True)

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> DependencyParsing:
        """The same task for files that are written in another way: sentences to parse may be JSON lines."""
        if columns is not None:
            raise TaskError("--columns: trees are read from CoNLL-U, which has its own ten columns. Leave it out.")
        if quoting == "standard":
            raise TaskError("--quoting standard: in CoNLL-U a quote is a word like any other. Leave it out.")
        return replace(self, format=format)

    def read(self, path: Path | str, *, labelled: bool = True) -> Trees:
        """The sentences of a file."""
        return read_trees(path, text=self.text, relation=self.label, format=self.format, labelled=labelled)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Parser:
        """What parses, of a fine-tuned folder."""
        name = described["head"]
        if name not in loaded.heads:
            raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
        reader = Reader.of(loaded, precision=precision)
        return Parser(
            reader, loaded.heads[name], described["labels"], self, length=described.get("length"),
            ideographs=described.get("ideographs"),
        )

    def constant(self, always: str, examples: Trees, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of attaching every word to the next one with one relation, and the last to the root."""
        assert examples.heads is not None and examples.relations is not None  # read with labels
        return constant(always, list(zip(examples.heads, examples.relations, strict=True)))

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "label": self.label}}


@register("task", "dependency_parsing")
def dependency_parsing(text: str = "form", label: str = "deprel") -> DependencyParsing:
    """The head of each word of a sentence and the relation to it. `text` and `label` name columns of CoNLL-U."""
    return DependencyParsing(text, label)
