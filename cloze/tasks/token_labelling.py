"""Label the words of a text: parts of speech, names, chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.corpus.readers.tagged import Tagged, read_tagged
from cloze.corpus.records.answer import label_names
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, nearest
from cloze.objectives import sequence_labelling
from cloze.registry import register
from cloze.rng import fold
from cloze.schemes import Repair
from cloze.tasks.classifier import SET, Head
from cloze.tasks.features import count_layers, place_and_penalty, refuse_training
from cloze.tasks.kept import KeptLayers
from cloze.tasks.labeller import NAMES, WordLabeller, measured
from cloze.tasks.settings import Settings
from cloze.tasks.task import clock_of
from cloze.tasks.trained import copied


@dataclass(frozen=True)
class TokenLabelling:
    """Which columns hold a word and its label, and how the network is used: trained, or all of its layers frozen (`mix`)."""

    text: str = "text"
    label: str = "label"
    mix: str | None = None
    penalty: float = 0.001
    repair: Repair = "begin"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    name: str = "token_labelling"
    of_words: ClassVar[bool] = True  # a text may be a list of its words

    @property
    def metrics(self) -> Mapping[str, bool]:
        """F1 of spans first; of all of them more is better."""
        return dict.fromkeys(NAMES, True)

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> TokenLabelling:
        """The same task for files that are written in another way."""
        if quoting == "standard":
            raise TaskError("--quoting standard: in texts of labelled words a quote is a word like any other. Leave it out.")
        return replace(self, columns=tuple(columns) if columns else None, format=format)

    def deciding(self, *, beams: int | None, length_penalty: float | None) -> TokenLabelling:
        """The same task: each word is labelled by itself, there is nothing to search."""
        if beams is not None or length_penalty is not None:
            raise TaskError(f"--beams and --length-penalty are for tasks that write a text; {self.name} labels words.")
        return self

    def read(self, path: Path | str, *, labelled: bool = True) -> Tagged:
        """The texts of a file."""
        return read_tagged(
            path, text=self.text, label=self.label, columns=self.columns, format=self.format, labelled=labelled
        )

    def begin(
        self, loaded: Checkpoint, train: Tagged, settings: Settings, seed: int, precision: torch.dtype | None
    ) -> WordLabeller:
        """What labels words with the labels of the training texts, before training.

        Of the settings, `task_lstm` is the width of the task's own LSTMs (0 if not given; of mixed layers 256).
        """
        self._check(settings)
        labels = label_names([label for own in train.labels or () for label in own])
        if len(labels) < 2:
            raise TaskError(f"{train.path}: {len(labels)} distinct labels in {self.label!r}; expected at least two.")
        reader = copied(loaded, settings, seed, precision)
        arguments: dict[str, Any] = {
            "classes": len(labels), "set": SET, "encoder": settings.task_lstm, "dropout": settings.dropout,
        }  # fmt: skip
        if self.mix is not None:
            arguments |= self._mixed(loaded, reader, settings)
        network = reader.network
        given: dict[str, Any] = {"width": network.width, "vocab_size": reader.tokenizer.size, "clock": clock_of(network)}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(fold(seed, "head") % 2**63)
            objective = sequence_labelling(**arguments, **given).to(reader.device)
        head = Head(objective, "sequence_labelling", arguments)
        frozen = self.mix is not None
        made = WordLabeller(reader, head, labels, usual(train), self, length=settings.length, frozen=frozen)
        made.kept = KeptLayers() if frozen else None
        return made

    def _check(self, settings: Settings) -> None:
        refused = {"--pool": settings.pool, "--auxiliary": settings.auxiliary, "--truncate": settings.truncate}
        for option, value in refused.items():
            if value is not None:
                raise TaskError(f"{option} is for tasks that classify a text; {self.name} labels every word. Leave it out.")
        if self.mix is not None:
            refuse_training(settings, f"{self.name} with --mix")

    def _mixed(self, loaded: Checkpoint, reader: Reader, settings: Settings) -> dict[str, Any]:
        if "layers" not in reader.network.gives:
            raise CheckpointError(f"{loaded.folder}: this network gives its top layer alone. Leave out --mix.")
        return {
            "layers": count_layers(reader), "mix": self.mix, "penalty": self.penalty, "encoder": settings.task_lstm or 256,
            "embedding_width": 0 if self.mix == "input" else 100,
        }  # fmt: skip

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> WordLabeller:
        """What labels words, of a fine-tuned folder."""
        name = described["head"] or "sequence_labelling"  # of a folder that transformers wrote: the part
        if name not in loaded.heads:
            raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
        head = Head(loaded.heads[name], "sequence_labelling", {})
        return WordLabeller(
            Reader.of(loaded, precision=precision), head, described["labels"], described["usual"], self,
            length=described.get("length"), frozen=self.mix is not None,
        )

    def facts(self, train: Tagged, dev: Tagged) -> dict[str, Any]:
        """The metrics of always answering the most frequent training label, and how often each label occurs there."""
        most = usual(train)
        base = {"always": most, **self.constant(most, dev, ())}
        return {"label_counts": dict(_counts(train)), "baseline": base}

    def constant(self, always: str, examples: Tagged, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        truth = examples.labels or []
        return measured(truth, [(always,) * len(own) for own in truth])

    def description(self) -> dict[str, Any]:
        """The columns and the options."""
        made: dict[str, Any] = {"columns": {"text": self.text, "label": self.label}}
        return made if self.mix is None else {**made, "mix": self.mix, "penalty": self.penalty}


def usual(train: Tagged) -> str:
    """The most frequent label."""
    return _counts(train).most_common(1)[0][0]


def _counts(train: Tagged) -> Counter[str]:
    return Counter(label for own in train.labels or () for label in own)


@register("task", "token_labelling")
def token_labelling(
    text: str = "text", label: str = "label", mix: str | None = None, penalty: float = 0.001, repair: str = "begin"
) -> TokenLabelling:
    """The label of each word of a text: parts of speech, names. `text` and `label` name columns.

    `repair` says which spans labels stand for that break their scheme, when spans are counted: see `Repair`.

    Without `mix` the network is trained, with one linear map on each word's first token. With it the network stays as it is, and
    its mixed layers are read by a task model (ELMo); see `frozen_features`.
    """
    rules: dict[str, Repair] = {"begin": "begin", "drop": "drop"}
    if repair not in rules:
        raise TaskError(f"--repair {repair}: unknown rule. {nearest(repair, rules)}")
    if mix is None:
        return TokenLabelling(text, label, repair=rules[repair])
    place, penalty = place_and_penalty(mix, penalty)
    return TokenLabelling(text, label, place, penalty, rules[repair])
