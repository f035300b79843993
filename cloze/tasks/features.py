"""Classify texts from the frozen layers of a network: ELMo's use, at the input or the output of a task model, or at both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch

from cloze.corpus.records.answer import label_names
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, nearest
from cloze.objectives.mixed import Where, mixed_classification
from cloze.registry import register
from cloze.rng import fold
from cloze.tasks.classification import Classification
from cloze.tasks.classifier import HEAD, SET, Classifier, Head
from cloze.tasks.kept import KeptLayers
from cloze.tasks.labels import Examples
from cloze.tasks.settings import Settings
from cloze.tasks.task import clock_of
from cloze.tasks.trained import copied


class FeatureClassifier(Classifier):
    """A task model over `labels` that reads all layers of a network which is never trained and drops nothing."""

    usual_rate = 1e-3  # everything that learns begins at random

    def __init__(self, reader: Reader, head: Head, labels: Sequence[str], task: Any, *, length: int | None) -> None:
        super().__init__(reader, head, labels, task, length=length)
        self.network.requires_grad_(False)

    def train(self, mode: bool = True) -> FeatureClassifier:
        """The task model alone learns."""
        super().train(mode)
        self.network.eval()
        return self


@dataclass(frozen=True)
class FeatureClassification(Classification):
    """Which columns hold text and label, where the layers come in, and what it costs to mix them unevenly."""

    mix: str = "input"
    penalty: float = 0.001

    def begin(
        self, loaded: Checkpoint, train: Examples, settings: Settings, seed: int, precision: torch.dtype | None
    ) -> FeatureClassifier:
        """A task model over the labels of the training examples, before training.

        Of the settings, `task_lstm` is the width of its LSTMs (256 if not given), `pool` what pools (max).
        """
        labels = label_names(train.labels or ())
        if len(labels) < 2:
            raise TaskError(f"{train.path}: {len(labels)} distinct labels in {self.label!r}; expected at least two.")
        refuse_training(settings, self.name)
        reader = copied(loaded, settings, seed, precision)
        if "layers" not in reader.network.gives:
            raise CheckpointError(f"{loaded.folder}: this network gives its top layer alone. Use --task sentence_classification.")
        arguments: dict[str, Any] = {
            "layers": count_layers(reader), "classes": len(labels), "set": SET, "mix": self.mix,
            "encoder": settings.task_lstm or 256, "embedding_width": 0 if self.mix == "input" else 100,
            "penalty": self.penalty, "pool": settings.pool or "max", "dropout": settings.dropout,
        }  # fmt: skip
        given = {
            "width": reader.network.width, "vocab_size": reader.tokenizer.size, "clock": clock_of(reader.network),
        }  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(fold(seed, "head") % 2**63)
            objective = mixed_classification(**arguments, **given).to(reader.device)
        head = Head(objective, "mixed_classification", arguments)
        made = FeatureClassifier(reader, head, labels, self, length=settings.length)
        made.kept = KeptLayers()
        return made

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> FeatureClassifier:
        """The task model of a fine-tuned folder."""
        if HEAD not in loaded.heads:
            raise CheckpointError(f"{loaded.folder}: the head {HEAD!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
        reader = Reader.of(loaded, precision=precision)
        head = Head(loaded.heads[HEAD], "mixed_classification", {})
        return FeatureClassifier(reader, head, described["labels"], self, length=described.get("length"))

    def description(self) -> dict[str, Any]:
        """The columns and the options."""
        return {**super().description(), "mix": self.mix, "penalty": self.penalty}


def count_layers(reader: Reader) -> int:
    """How many layers the network gives, the words themselves among them."""
    with torch.inference_mode():
        batch = reader.batch(reader.encode(["a"]))
        return len(reader.states(batch, {"layers"})["layers"])


def refuse_training(settings: Settings, name: str) -> None:
    """A `TaskError` for settings that only mean something where a network is trained."""
    refused = {
        "--unfreeze": settings.unfreeze, "--layerwise": settings.layerwise, "--auxiliary": settings.auxiliary,
        "--truncate": settings.truncate,
    }  # fmt: skip
    for option, value in refused.items():
        if value is not None:
            raise TaskError(f"{option} is for networks that are trained; {name} leaves the network as it is.")


def place_and_penalty(mix: str, penalty: float) -> tuple[str, float]:
    """`both:0.01` as the place where layers come in and the penalty of mixing them unevenly; `penalty` where none is said."""
    place, colon, number = mix.partition(":")
    if place not in get_args(Where):
        raise TaskError(f"unknown --mix {place!r}. {nearest(place, get_args(Where))}")
    try:
        penalty = float(number) if colon else penalty
    except ValueError:
        penalty = -1.0
    if not penalty >= 0:
        raise TaskError(f"--mix {mix}: expected a penalty of 0 or more behind the colon, such as {place}:0.001.")
    return place, penalty


@register("task", "frozen_features")
def frozen_features(
    text: str = "text", label: str = "label", mix: str = "input", penalty: float = 0.001
) -> FeatureClassification:
    """The class of a text from all layers of a network that stays as it is, mixed by learned weights.

    `mix`: where they come in, `input`, `output` or `both`, with the penalty behind a colon if not given: `both:0.01`.
    """
    place, penalty = place_and_penalty(mix, penalty)
    return FeatureClassification("frozen_features", text, None, label, mix=place, penalty=penalty)
