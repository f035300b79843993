"""A network that reads texts and a head that classifies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader, heads_by_kind
from cloze.errors import CheckpointError
from cloze.interop.model import Head as StoredHead
from cloze.objectives import Classify, classify, relation_prediction
from cloze.rng import fold
from cloze.tasks.labels import Examples, label_ids
from cloze.tasks.metrics import measure
from cloze.tasks.settings import Settings
from cloze.tasks.task import Evaluation, Learner, Report, copied, evaluating

SET = "label"
HEAD = "classification"


@dataclass(frozen=True)
class Labelled:
    """A framed example and the number of its label."""

    framed: Framed
    label: int

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens did not fit."""
        return {"text": self.framed.cut}

    def __len__(self) -> int:
        return len(self.framed)


@dataclass(frozen=True)
class Choice:
    """The label of one row: the file's line it comes from, its texts, and the probability of every label."""

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]

    def record(self) -> dict[str, Any]:
        """The JSON object of this choice; a task with one text has no `text_b`."""
        record = dict(self.__dict__)
        if self.text_b is None:
            del record["text_b"]
        return record


@dataclass(frozen=True)
class Head:
    """A classification head and what a recipe would write for it: the registered objective and its arguments."""

    objective: Classify
    part: str
    arguments: dict[str, Any]


def make_head(reader: Reader, *, classes: int, dropout: float, labels_tokens: bool) -> Head:
    """The head that transformers' `…ForSequenceClassification` has for this kind of network.

    Left to right: one linear map on the last token, without a bias (GPT-2). A network with narrow embeddings or a head
    that labels tokens (`labels_tokens`): dense, GELU, linear (ELECTRA). Any other: dense, tanh, linear (BERT, RoBERTa).
    """
    given: dict[str, Any] = {"width": reader.network.width, "clock": reader.network.clock}
    arguments: dict[str, Any] = {"set": SET, "classes": classes, "dropout": dropout}
    if reader.order == "left_to_right":
        arguments |= {"reading": "summary", "transform": None}
        objective = classify(**arguments, **given)
        objective.head.get_submodule("output").bias.requires_grad_(False)  # zero, and transformers has none
        return Head(objective, "classify", arguments)
    narrow = getattr(reader.network, "embedding_width", reader.network.width) != reader.network.width
    if narrow or labels_tokens:
        arguments |= {"reading": "summary", "transform": "gelu"}
        return Head(classify(**arguments, **given), "classify", arguments)
    arguments |= {"pool": True}
    return Head(relation_prediction(**arguments, **given), "relation_prediction", arguments)


class Classifier(Learner):
    """A reader with a head over `labels`."""

    def __init__(self, reader: Reader, head: Head, labels: Sequence[str], task: Any, *, length: int | None) -> None:
        super().__init__(reader, head.objective, task, length=length)
        self.made = head
        self.names = tuple(labels)
        self.labels = self.names

    def encode(self, examples: Examples) -> list[Framed]:
        """The examples as the network reads them."""
        return self.reader.encode(examples.texts, examples.others, longest=self.length)

    def answered(self, examples: Examples) -> list[Labelled]:
        """The examples with the numbers of their labels."""
        labels = label_ids(examples, self.names).tolist()
        return [Labelled(framed, label) for framed, label in zip(self.encode(examples), labels, strict=True)]

    def scores(self, rows: Sequence[Framed]) -> Tensor:
        """Scores (B, C) of framed rows."""
        batch = self.exact.batch(rows)
        states = self.exact.states(batch, self.head.reads)
        places = torch.arange(len(rows), device=self.exact.device)
        return self.exact.scores(self.head, states, batch, places)

    def loss(self, rows: Sequence[Labelled]) -> Tensor:
        """The mean loss of some rows."""
        batch = self.reader.batch([row.framed for row in rows])
        states = self.reader.states(batch, self.head.reads)
        answers = {
            f"targets/{self.head.set}": torch.tensor([row.label for row in rows], device=self.reader.device),
            f"places/{self.head.set}": torch.arange(len(rows), device=self.reader.device),
        }
        with self.reader.autocast():
            loss = self.head({name: states[name] for name in self.head.reads}, Batch({**batch, **answers}, checked=True))
        total: Tensor = loss.total
        return total / len(rows)

    @torch.inference_mode()
    def probabilities(
        self, framed: Sequence[Framed], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The probability of each label for every row: (N, C), in the order of the rows; runs in eval mode."""
        with evaluating(self):
            found = np.empty((len(framed), len(self.names)), np.float32)
            for index in by_length([len(row) for row in framed], rows=size):
                found[index] = self.scores([framed[i] for i in index]).softmax(-1).cpu().numpy()
                report(len(index))
            return found

    def measure(
        self, rows: Sequence[Labelled], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> dict[str, float]:
        """Every metric of the most probable labels."""
        truth = np.array([row.label for row in rows], np.int64)
        guess = self.probabilities([row.framed for row in rows], size=size, report=report).argmax(1)
        return measure(truth, guess, len(self.names))

    def evaluate(
        self, examples: Examples, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """Metrics on labelled examples; a label that training never saw is a `TaskError`."""
        rows = self.answered(examples)
        metrics = self.measure(rows, size=size, report=report)
        if always is None:
            return Evaluation(len(rows), metrics, None)
        truth = np.array([row.label for row in rows], np.int64)
        constant = measure(truth, np.full_like(truth, self.names.index(always)), len(self.names))
        return Evaluation(len(rows), metrics, {"always": always, **constant})

    def predict(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> list[Choice]:
        """The most probable label of every example."""
        probabilities = self.probabilities(self.encode(examples), size=size, report=report)
        others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
        made = []
        for line, text, other, row in zip(examples.lines, examples.texts, others, probabilities, strict=True):
            best = int(row.argmax())
            shares = {label: round(float(p), 6) for label, p in zip(self.names, row, strict=True)}
            made.append(Choice(line, text, other, self.names[best], round(float(row[best]), 6), shares))
        return made

    def stored(self) -> dict[str, StoredHead]:
        """The classification head; the checkpoint's other heads are left behind."""
        return {HEAD: StoredHead(self.made.part, self.made.arguments, self.head.state_dict())}

    def description(self) -> dict[str, Any]:
        """The labels in the order of the head's outputs."""
        return {"labels": list(self.names), "length": self.length, "head": HEAD}


def begin(
    loaded: Checkpoint, task: Any, labels: Sequence[str], settings: Settings, seed: int,
    precision: torch.dtype | None = None,
) -> Classifier:
    """A classifier before training: the checkpoint's network or a fresh twin, and a head drawn from the seed."""
    reader = copied(loaded, settings, seed, precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(seed, "head") % 2**63)
        labels_tokens = "token_labelling" in heads_by_kind(loaded)
        head = make_head(reader, classes=len(labels), dropout=settings.dropout, labels_tokens=labels_tokens)
    if not settings.from_scratch:
        copy_pool(head.objective, loaded)
    head.objective.to(reader.device)
    return Classifier(reader, head, labels, task, length=settings.length)


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
    """The classifier of a fine-tuned checkpoint; a sequence-classification folder that transformers wrote works too."""
    summaries = [name for name, head in loaded.heads.items() if tuple(head.reads) == ("summary",)]
    name = str(described["head"] or (summaries or ["relation_prediction"])[0])
    if name not in loaded.heads:
        raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    reader = Reader.of(loaded, precision=precision)
    return Classifier(reader, Head(loaded.heads[name], "", {}), described["labels"], task, length=described.get("length"))


def copy_pool(head: Classify, loaded: Checkpoint) -> None:
    """Start the dense layer of a head from the pooler that was pre-trained with a relation objective, as BERT does.

    A folder that keeps BERT's pooler without such an objective gives that; where there is none the layer stays random.
    """
    mine = getattr(head.head, "pool", None)
    if mine is None:
        return
    pools = [getattr(other.head, "pool", None) for other in loaded.heads.values()]
    found = [pool.state_dict() for pool in pools if pool is not None]
    imported = getattr(loaded, "imported", None)
    if imported is not None and imported.architecture == "bert":
        spare = imported.model.spare
        found.append({key: spare[f"pooler.dense.{key}"] for key in ("weight", "bias") if f"pooler.dense.{key}" in spare})
    for state in found:
        if "weight" in state and state["weight"].shape == mine.weight.shape:
            mine.load_state_dict(state)
            return
