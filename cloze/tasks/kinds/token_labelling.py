"""Label the words of a text: parts of speech, names, chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from cloze.corpus.readers.labelled import UNTRAINED, Format, Quoting, Trained
from cloze.corpus.readers.tagged import Tagged, read_tagged
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, propose
from cloze.registry import register
from cloze.schemes import Repair
from cloze.tasks.kinds.labeller import NAMES, WordLabeller, measured
from cloze.tasks.linear.linear_words import LinearLabelling
from cloze.tasks.pictures import keys_of, with_picture
from cloze.tasks.task import Unsearched


@dataclass(frozen=True)
class TokenLabelling(Unsearched):
    """Which columns hold a word and its label, and which spans labels mean that break their scheme. `picture` is the column with
    the key of the picture that a text is about, in JSON lines; `trained` is what the model of a folder was trained on."""

    text: str = "text"
    label: str = "label"
    repair: Repair = "begin"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    picture: str | None = None
    trained: Trained = UNTRAINED
    name: str = "token_labelling"
    does: ClassVar[str] = "labels words"
    of_words: ClassVar[bool] = True  # a text may be a list of its words
    writes: ClassVar[tuple[str, ...]] = ("conll",)

    @property
    def metrics(self) -> Mapping[str, bool]:
        """F1 of spans first; of all of them more is better."""
        return dict.fromkeys(NAMES, True)

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> TokenLabelling:
        """The same task for files in another format."""
        if quoting == "standard":
            raise TaskError("--quoting standard: in texts of labelled words a quote is a word like any other. Leave it out.")
        return replace(self, columns=tuple(columns) if columns else None, format=format)

    def read(self, path: Path | str, *, labelled: bool = True) -> Tagged:
        """The texts of a file."""
        tagged = read_tagged(
            path, text=self.text, label=self.label, columns=self.columns, format=self.format, labelled=labelled,
            trained=self.trained,
        )
        return replace(tagged, pictures=keys_of(path, tagged.lines, self.picture, self.format))

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> WordLabeller:
        """What labels words, of a fine-tuned folder."""
        name = described["head"] or "sequence_labelling"  # of a folder that transformers wrote: the part
        if name not in loaded.heads:
            raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
        return WordLabeller(
            Reader.of(loaded, precision=precision), loaded.heads[name], described["labels"], described["usual"], self,
            length=described.get("length"), numbered=bool(described.get("numbered")), ideographs=described.get("ideographs"),
        )

    def linear(self, labels: Sequence[str] = ()) -> LinearLabelling | None:
        """The label by a word's letters, its shape and its neighbours; none if texts are about pictures."""
        return None if self.picture is not None else LinearLabelling(self, labels)

    def constant(self, always: str, examples: Tagged, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        truth = examples.labels or []
        return measured(truth, [(always,) * len(text_labels) for text_labels in truth])

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": with_picture({"text": self.text, "label": self.label}, self.picture)}


@register("task", "token_labelling")
def token_labelling(
    text: str = "text", label: str = "label", repair: str = "begin", picture: str | None = None
) -> TokenLabelling:
    """The label of each word of a text: parts of speech, names. `text`, `label` and `picture` name columns.

    `repair` says which spans labels mean that break their scheme, when spans are counted: see `Repair`.
    """
    rules: dict[str, Repair] = {"begin": "begin", "drop": "drop"}
    if repair not in rules:
        raise TaskError(f"--repair {repair}: unknown rule. {propose(repair, rules)}")
    return TokenLabelling(text, label, rules[repair], picture=picture)
