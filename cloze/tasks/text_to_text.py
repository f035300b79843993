"""Text to text: any task as writing a target for a text (Raffel et al., 2020, §2.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from cloze.corpus.readers.labelled import Format, Quoting, read_table
from cloze.decoding.reader import Checkpoint
from cloze.decoding.search import Beams
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.answerer import Answerer, Texts, begin, load
from cloze.tasks.overlap import NAMES, overlap
from cloze.tasks.settings import Settings


@dataclass(frozen=True)
class TextToText:
    """A task: which columns hold the text and the target, what stands before every text, how a target is learned and found.

    `target_length` is the most tokens of a target, its end included; `smoothing` the label smoothing in training; `masked`
    the share of a target that a network which fills gaps learns from at once, None being 0.7; `search` None takes the most
    probable token each time. `columns`, `format` and `quoting` are those of `read_table`.
    """

    text: str = "text"
    target: str = "target"
    prefix: str = ""
    target_length: int = 64
    smoothing: float = 0.0
    masked: float | None = None
    search: Beams | None = None
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"
    name: str = "text_to_text"

    @property
    def metrics(self) -> Mapping[str, bool]:
        """The loss first, of which less is better; then the figures of what is written."""
        return MappingProxyType({"loss": False, **dict.fromkeys(NAMES, True)})

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> TextToText:
        """The same task for files that are written in another way."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def deciding(self, *, beams: int | None, length_penalty: float | None) -> TextToText:
        """The same task writing by a beam search."""
        if beams is None and length_penalty is not None:
            raise TaskError("--length-penalty is for a beam search: give --beams too.")
        penalty = 1.0 if length_penalty is None else length_penalty
        return self if beams is None else replace(self, search=Beams(beams, penalty))

    def read(self, path: Path | str, *, labelled: bool = True) -> Texts:
        """The examples of a file; without `labelled` targets are not looked at."""
        table = read_table(path, format=self.format, columns=self.columns, quoting=self.quoting)
        texts = table.column(self.text, "--text NAME")
        targets = table.column(self.target, "--target NAME") if labelled else None
        for target, line in zip(targets or (), table.lines, strict=False):
            if not target.strip():
                raise TaskError(f"{table.path}:{line}: an empty {self.target!r}; expected a text to write in every row.")
        return Texts(texts, targets, table.path, table.lines)

    def begin(
        self, loaded: Checkpoint, train: Texts, settings: Settings, seed: int, precision: torch.dtype | None
    ) -> Answerer:
        """What learns to write, with the head that the checkpoint predicts tokens with."""
        return begin(loaded, self, settings, seed, precision)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Answerer:
        """What learned to write, of a fine-tuned folder."""
        return load(loaded, self, described, precision)

    def facts(self, train: Texts, dev: Texts) -> dict[str, Any]:
        """The figures of always writing the most frequent training target."""
        always = Counter(train.targets or ()).most_common(1)[0][0]
        return {"baseline": {"always": always, **self.constant(always, dev, ())}}

    def constant(self, always: str, examples: Texts, labels: Sequence[str]) -> dict[str, float]:
        """The figures of always writing one target."""
        return overlap([always] * len(examples), examples.targets or ())

    def description(self) -> dict[str, Any]:
        """The columns, and the options that are none."""
        return {
            "columns": {"text": self.text, "target": self.target},
            "prefix": self.prefix, "target_length": self.target_length, "smoothing": self.smoothing,
            **({} if self.masked is None else {"masked": self.masked}),
        }  # fmt: skip


@register("task", "text_to_text")
def text_to_text(
    text: str = "text", target: str = "target", prefix: str = "", target_length: int = 64, smoothing: float = 0.0,
    masked: float | None = None,
) -> TextToText:
    """Write a target for a text: translation, summaries, questions, labels as words. `text` and `target` name columns."""
    if target_length < 2:
        raise TaskError(f"--target-length {target_length}: expected at least 2, a token and the end.")
    if not 0.0 <= smoothing < 1.0:
        raise TaskError(f"--smoothing {smoothing}: expected a share of an answer, from 0 to below 1.")
    if masked is not None and not 0.0 < masked <= 1.0:
        raise TaskError(f"--masked {masked}: expected a share of a target's tokens, above 0 and at most 1, such as 0.7.")
    return TextToText(text, target, prefix, target_length, smoothing, masked)
