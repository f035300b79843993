"""A network that reads texts and a head that classifies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from cloze.errors import CheckpointError, TaskError
from cloze.interop.model import Head as StoredHead
from cloze.objectives import ActivationPenalty, Classify, classify, pooled_classification, relation_prediction
from cloze.objectives.heads import ClassHead, VocabularyHead
from cloze.rng import fold
from cloze.tasks.auxiliary import language_head, predicted
from cloze.tasks.labels import Examples, label_ids
from cloze.tasks.metrics import measure
from cloze.tasks.settings import Settings
from cloze.tasks.task import Evaluation, FramedRow, Report, clock_of, cut_remark, evaluating
from cloze.tasks.trained import TrainedLearner, copied
from cloze.tasks.truncated import require_carry, states_in_pieces

SET = "label"
HEAD = "classification"
_SIZE, _CHANGE = ActivationPenalty(of="size"), ActivationPenalty(of="change")  # without parameters, always as in training


@dataclass(frozen=True)
class Labelled(FramedRow):
    """A framed example and the number of its label."""

    label: int


@dataclass(frozen=True)
class Choice:
    """The label of one row: the file's line it comes from, its texts, the probability of every label, and how many tokens did not
    fit."""

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object of this choice; a task with one text has no `text_b`, a text that was read whole no `cut`."""
        record = dict(self.__dict__)
        if self.text_b is None:
            del record["text_b"]
        if not self.cut:
            del record["cut"]
        return record


@dataclass(frozen=True)
class Head:
    """A classification head and what a recipe would write for it: the registered objective and its arguments."""

    objective: Any
    part: str
    arguments: dict[str, Any]


def make_head(reader: Reader, *, classes: int, dropout: float, labels_tokens: bool, plain: Any = None) -> Head:
    """The head that transformers' `…ForSequenceClassification` has for this kind of network.

    Left to right: one linear map on the last token, without a bias (GPT-2). A network with narrow embeddings or a head
    that labels tokens (`labels_tokens`): dense, GELU, linear (ELECTRA). One that has a head with a dense map and a norm without
    offsets (`plain`): these two and linear (ModernBERT). Any other: dense, tanh, linear (BERT, RoBERTa). Only vectors without
    layers above them get one linear map (fastText).
    """
    given: dict[str, Any] = {"width": reader.network.width, "clock": clock_of(reader.network)}
    arguments: dict[str, Any] = {"set": SET, "classes": classes, "dropout": dropout}
    if reader.order == "left_to_right":
        arguments |= {"reading": "summary", "transform": None}
        objective = classify(**arguments, **given)
        objective.head.get_submodule("output").bias.requires_grad_(False)  # zero, and transformers has none
        return Head(objective, "classify", arguments)
    if len(reader.network.depth_groups()) == 1:
        arguments |= {"reading": "summary", "transform": None}
        return Head(classify(**arguments, **given), "classify", arguments)
    narrow = getattr(reader.network, "embedding_width", reader.network.width) != reader.network.width
    if narrow or labels_tokens:
        arguments |= {"reading": "summary", "transform": "gelu"}
        return Head(classify(**arguments, **given), "classify", arguments)
    if plain is not None:
        like = {"transform": plain.transform, "norm_epsilon": plain.norm.eps, "biases": False}
        arguments |= {"reading": "summary", **like}
        return Head(classify(**arguments, **given), "classify", arguments)
    arguments |= {"pool": True}
    return Head(relation_prediction(**arguments, **given), "relation_prediction", arguments)


def pooling_head(reader: Reader, settings: Settings, *, classes: int) -> Head:
    """A head over all tokens, as published for its `pool`: ULMFiT's dense map on `concat`, SiATL's dropout in `attention`."""
    arguments: dict[str, Any] = {"set": SET, "classes": classes, "pool": settings.pool, "dropout": settings.dropout}
    if settings.pool == "concat":
        arguments |= {"hidden": 50, "norm": True, "pooled_dropout": 0.4}
    if settings.pool == "attention":
        arguments |= {"energy_dropout": 0.3}
    if settings.task_lstm:
        arguments |= {"recurrent": settings.task_lstm}
    given = {"width": reader.network.width, "clock": clock_of(reader.network)}
    return Head(pooled_classification(**arguments, **given), "pooled_classification", arguments)


class Classifier(TrainedLearner):
    """A reader with a head over `labels`.

    `truncate` (every, keep) reads texts in pieces. `language` is the head that goes on predicting the next token, with the weight
    that `weight` gives for the share of the run that is over. `penalties` are weights of the mean square of the last layer's
    states and of their changes, over the tokens that count.
    """

    def __init__(
        self, reader: Reader, head: Head, labels: Sequence[str], task: Any, *, length: int | None,
        truncate: tuple[int, int] | None = None, language: Any = None, weight: Callable[[float], float] = lambda share: 0.0,
        penalties: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(reader, head.objective, task, length=length)
        self.truncate, self.weight = truncate, weight
        self.penalties = [] if penalties is None else list(zip(penalties, (_SIZE, _CHANGE), strict=True))
        self.language = language
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
        batch, states = self._read(self.exact, rows, self.head.reads)
        places = torch.arange(len(rows), device=self.exact.device)
        return self.exact.scores(self.head, states, batch, places)

    def loss(self, rows: Sequence[Labelled]) -> Tensor:
        """The mean loss of some rows, and the weighted one of the language model beside it."""
        weight = self.weight(self.share) if self.language is not None else 0.0
        also = tuple(self.language.reads) if weight else ()
        penalised = ("hidden",) if self.penalties else ()
        batch, states = self._read(self.reader, [row.framed for row in rows], (*self.head.reads, *also, *penalised))
        answers = {
            f"targets/{self.head.set}": torch.tensor([row.label for row in rows], device=self.reader.device),
            f"places/{self.head.set}": torch.arange(len(rows), device=self.reader.device),
        }
        with self.reader.autocast():
            loss = self.head({name: states[name] for name in self.head.reads}, Batch({**batch, **answers}, checked=True))
        total: Tensor = loss.total / len(rows)
        if weight:
            summed, count = predicted(self.language, self.reader, batch, states)
            total = total + weight * summed / max(count, 1)
        for share, penalty in self.penalties:
            found = penalty(dict.fromkeys(penalty.reads, states["hidden"]), batch).total
            total = total + share * found / penalty.count(batch).clamp(min=1)
        return total

    @torch.inference_mode()
    def language_loss(self, rows: Sequence[Labelled], *, size: int = 64) -> float:
        """The mean loss of the language model on the texts of some rows, in nats a token; how much of it was forgotten."""
        if self.language is None:
            raise TaskError("this classifier has no language model beside it. Make one with settings.auxiliary.")
        summed, counted = 0.0, 0
        with evaluating(self):
            for index in by_length([len(row) for row in rows], rows=size):
                batch, states = self._read(self.exact, [rows[i].framed for i in index], self.language.reads)
                some, count = predicted(self.language, self.exact, batch, states)
                summed, counted = summed + float(some), counted + count
        return summed / max(counted, 1)

    def _read(self, reader: Reader, rows: Sequence[Framed], want: Sequence[str]) -> tuple[Batch, dict[str, Any]]:
        """A batch of rows and its states; read in pieces, tokens that do not count are as padding to heads."""
        batch = reader.batch(rows)
        if self.truncate is None:
            return batch, self.states(reader, rows, batch, want)
        hidden, counts = states_in_pieces(reader, batch, every=self.truncate[0], keep=self.truncate[1])
        return Batch({**batch, "block": counts.long()}, checked=True), {"hidden": hidden}

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

    def judge(
        self, rows: Sequence[Labelled], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.int64]:
        """The right label and the most probable one of every row: (N, 2)."""
        truth = np.array([row.label for row in rows], np.int64)
        guess = self.probabilities([row.framed for row in rows], size=size, report=report).argmax(1)
        return np.stack([truth, guess], axis=1)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Every metric of pairs of labels (N, 2)."""
        truth, guess = np.asarray(judged).T
        return measure(truth, guess, len(self.names))

    def evaluate(
        self, examples: Examples, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """Metrics on labelled examples; a label that training never saw is a `TaskError`."""
        rows = self.answered(examples)
        judged = self.judge(rows, size=size, report=report)
        baseline = None
        if always is not None:
            constant = np.full_like(judged[:, 0], self.names.index(always))
            baseline = {"always": always, **measure(judged[:, 0], constant, len(self.names))}
        remark = cut_remark([row.framed.cut for row in rows], self.length)
        return Evaluation(len(rows), self.metrics(judged), baseline, () if remark is None else (remark,), judged=judged)

    def predict(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> list[Choice]:
        """The most probable label of every example."""
        framed = self.encode(examples)
        probabilities = self.probabilities(framed, size=size, report=report)
        others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
        made = []
        for line, text, other, read, row in zip(examples.lines, examples.texts, others, framed, probabilities, strict=True):
            best = int(row.argmax())
            shares = {label: round(float(p), 6) for label, p in zip(self.names, row, strict=True)}
            made.append(Choice(line, text, other, self.names[best], round(float(row[best]), 6), shares, read.cut))
        return made

    def scored(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """Every example with the probabilities of all labels as its label, by the names of the task's columns: what the answer
        `scores` reads."""
        found = self.probabilities(self.encode(examples), size=size, report=report)
        others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
        for line, text, other, row in zip(examples.lines, examples.texts, others, found.tolist(), strict=True):
            second = {} if other is None else {self.task.text_b: other}
            yield {"line": line, self.task.text: text, **second, self.task.label: dict(zip(self.names, row, strict=True))}

    def stored(self) -> dict[str, StoredHead]:
        """The classification head; the checkpoint's other heads are left behind."""
        return {HEAD: StoredHead(self.made.part, self.made.arguments, self.head.state_dict())}

    def description(self) -> dict[str, Any]:
        """The labels in the order of the head's outputs."""
        described = {"labels": list(self.names), "length": self.length, "head": HEAD}
        return described if self.truncate is None else {**described, "truncate": list(self.truncate)}


def begin(
    loaded: Checkpoint, task: Any, labels: Sequence[str], settings: Settings, seed: int,
    precision: torch.dtype | None = None,
) -> Classifier:
    """A classifier before training: the checkpoint's network or a fresh twin, and a head drawn from the seed."""
    if settings.task_lstm and settings.pool is None:
        raise TaskError(f"--task-lstm {settings.task_lstm}: say with --pool how what it gives becomes one vector.")
    reader = copied(loaded, settings, seed, precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(seed, "head") % 2**63)
        if settings.pool is not None:
            head = pooling_head(reader, settings, classes=len(labels))
        else:
            labels_tokens, plain = "token_labelling" in heads_by_kind(loaded), plain_head(loaded)
            head = make_head(
                reader, classes=len(labels), dropout=settings.dropout, labels_tokens=labels_tokens, plain=plain
            )
    if not settings.from_scratch:
        copy_pool(head.objective, loaded)
        copy_transform(head.objective, loaded)
    head.objective.to(reader.device)
    if settings.truncate is not None:
        require_carry(reader)
    language = None if settings.auxiliary is None else language_head(loaded, reader, settings)
    return Classifier(
        reader, head, labels, task, length=settings.length, truncate=settings.truncate, language=language,
        weight=settings.auxiliary_weight, penalties=settings.penalties,
    )


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
    """The classifier of a fine-tuned checkpoint; a sequence-classification folder that transformers wrote works too."""
    summaries = [name for name, head in loaded.heads.items() if getattr(head, "kind", None) == "relation_prediction"]
    name = str(described["head"] or (summaries or ["relation_prediction"])[0])
    if name not in loaded.heads:
        raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    reader = Reader.of(loaded, precision=precision)
    truncate = tuple(described["truncate"]) if described.get("truncate") else None
    return Classifier(
        reader, Head(loaded.heads[name], "", {}), described["labels"], task, length=described.get("length"), truncate=truncate
    )


def plain_head(loaded: Checkpoint) -> Any:
    """The layers of a checkpoint's head that has a dense map and a norm without offsets, or None."""
    heads = [getattr(head, "head", None) for head in loaded.heads.values()]
    found = [head for head in heads if isinstance(head, (VocabularyHead, ClassHead))]
    return next((head for head in found if head.norm is not None and head.norm.bias is None), None)


def start_head(head: Any, loaded: Checkpoint) -> None:
    """Start the layers of a new head from those of the checkpoint: its pooler, or a dense map and a norm."""
    if isinstance(getattr(head, "head", None), ClassHead):
        copy_pool(head, loaded)
        copy_transform(head, loaded)


def copy_transform(head: Any, loaded: Checkpoint) -> None:
    """Start a head's dense map and norm from those that predict words, as transformers does: they have one name there."""
    plain = plain_head(loaded)
    if plain is not None and isinstance(head.head, ClassHead) and head.head.norm is not None:
        for name in ("dense", "norm"):
            head.head.get_submodule(name).load_state_dict(plain.get_submodule(name).state_dict())


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
