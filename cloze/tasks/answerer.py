"""Networks that learn to write: what all of them share, and the encoder-decoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader
from cloze.decoding.sampling import Sampling
from cloze.decoding.search import Written
from cloze.decoding.sequence import Manner, answer_framed, answer_text, end_id, has_decoder, start_id
from cloze.errors import CheckpointError, TaskError
from cloze.interop.model import Head as StoredHead
from cloze.objectives import Classify, token_prediction
from cloze.objectives.heads import VocabularyHead
from cloze.rng import fold
from cloze.tasks.overlap import overlap
from cloze.tasks.settings import Settings
from cloze.tasks.task import Evaluation, Learner, Report, copied, evaluating

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Texts:
    """Texts, targets (None where they were not read) and where they come from."""

    texts: list[str]
    targets: list[str] | None
    path: str
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Pair:
    """A framed text and the tokens to write for it, their end included; `reference` is the target as tokens spell it.

    `lost` counts the target's tokens that did not fit.
    """

    source: Framed
    target: Ids
    reference: str
    lost: int

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens of either did not fit."""
        return {"text": self.source.cut, "target": self.lost}

    def __len__(self) -> int:
        return len(self.source) + len(self.target)


@dataclass(frozen=True)
class Output:
    """What was written for one row: the file's line it comes from, its text, and whether the end came by itself."""

    line: int
    text: str
    output: str
    ended: bool

    def record(self) -> dict[str, Any]:
        """The JSON object of this output."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Head:
    """The head that predicts tokens: its name in the checkpoint, the objective, and the head as the folder keeps it."""

    name: str
    objective: Any
    kept: StoredHead


class TextLearner(Learner):
    """A network that writes. The loss is the mean cross-entropy of a target's tokens, its end included.

    Targets are compared as the vocabulary spells them, so that one without capitals is not blamed for them; how many are
    spelt otherwise than in the file is told with every evaluation. A character that the vocabulary lacks is never right.
    """

    def __init__(self, reader: Reader, head: Head, task: Any, *, length: int | None) -> None:
        super().__init__(reader, head.objective, task, length=length)
        self.made = head
        lesson = Classify(head.objective.head, set=head.objective.set, smoothing=task.smoothing)
        self._lesson = (lesson,)  # hidden in a tuple: its parameters are those of `head`

    @abstractmethod
    def sources(self, texts: Sequence[str]) -> list[Framed]:
        """Texts as the network reads them."""

    @abstractmethod
    def target(self, ids: Ids) -> tuple[Ids, int]:
        """What is to be written for the ids of a target, the end included, and how many ids did not fit."""

    @abstractmethod
    def summed(self, reader: Reader, objective: Classify, rows: Sequence[Pair]) -> tuple[Tensor, int]:
        """The summed loss of some rows, and of how many tokens."""

    @abstractmethod
    def write(self, sources: Sequence[Framed], *, size: int, report: Report) -> list[Written]:
        """What is written for framed texts; runs in eval mode."""

    def answered(self, examples: Texts) -> list[Pair]:
        """The examples with the tokens of their targets."""
        if examples.targets is None:
            raise TaskError(f"{examples.path}: has no targets; expected one in every row.")
        rows = []
        targets = self.reader.tokenizer.encode_batch(examples.targets)
        for source, encoded in zip(self._asked(examples), targets, strict=True):
            ids = np.asarray(encoded.ids, np.int32)
            target, lost = self.target(ids)
            rows.append(Pair(source, target, self.reader.tokenizer.decode(ids, skip_special=False), lost))
        return rows

    def loss(self, rows: Sequence[Pair]) -> Tensor:
        """The mean loss of the targets' tokens, smoothed as the task says."""
        total, count = self.summed(self.reader, self._lesson[0], rows)
        return total / count

    @torch.inference_mode()
    def measure(
        self, rows: Sequence[Pair], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> dict[str, float]:
        """The loss, not smoothed; unless that is all that is wanted, also the figures of what is written."""
        total, count = 0.0, 0
        with evaluating(self):
            for index in by_length([len(row) for row in rows], rows=size):
                some, tokens = self.summed(self.exact, self.head, [rows[i] for i in index])
                total, count = total + float(some), count + tokens
            found = {"loss": total / max(1, count)}
            if metric == "loss":
                return found
            written = self._texts([row.source for row in rows], size, report)
        return {**found, **overlap([text for text, _ in written], [row.reference for row in rows])}

    def evaluate(
        self, examples: Texts, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """All metrics on examples with targets."""
        rows = self.answered(examples)
        targets = examples.targets or []
        metrics = self.measure(rows, size=size, report=report)
        baseline = None if always is None else {"always": always, **overlap([always] * len(targets), targets)}
        other = sum(row.reference.split() != target.split() for row, target in zip(rows, targets, strict=True))
        remark = f"{other} of {len(rows)} targets are compared as the vocabulary spells them, not as the file does."
        return Evaluation(len(rows), metrics, baseline, (remark,) if other else ())

    @torch.inference_mode()
    def predict(self, examples: Texts, *, size: int = 64, report: Report = lambda done: None) -> list[Output]:
        """A text for every example."""
        with evaluating(self):
            written = self._texts(self._asked(examples), size, report)
        return [
            Output(line, text, output, ended)
            for line, text, (output, ended) in zip(examples.lines, examples.texts, written, strict=True)
        ]

    def _asked(self, examples: Texts) -> list[Framed]:
        return self.sources([self.task.prefix + text for text in examples.texts])

    def _texts(self, sources: Sequence[Framed], size: int, report: Report) -> list[tuple[str, bool]]:
        rows = max(1, size // (self.task.search.count if self.task.search else 1))
        written = self.write(sources, size=rows, report=report)
        return [(answer_text(self.reader, one.ids), one.ended) for one in written]

    def stored(self) -> dict[str, StoredHead]:
        """The head that predicts tokens, under its name in the checkpoint; other heads are left behind."""
        return {self.made.name: replace(self.made.kept, state=self.head.state_dict())}

    def description(self) -> dict[str, Any]:
        """The cut of texts and the head's name."""
        return {"length": self.length, "head": self.made.name}


class Answerer(TextLearner):
    """An encoder-decoder: reads the text, then writes the target behind the token that its decoder begins with.

    A target is laid out as a single text is, which is how transformers' tokenizers make labels: BART also writes the
    first token of the template.
    """

    def sources(self, texts: Sequence[str]) -> list[Framed]:
        """Texts in the template of a single text."""
        return self.reader.encode(texts, longest=self.length)

    def target(self, ids: Ids) -> tuple[Ids, int]:
        """The ids in the same template; the end token closes it where the template does not."""
        end = end_id(self.reader)
        bound = min(n for n in (self.task.target_length, self.reader.longest) if n is not None)
        framed = self.reader.single([ids], longest=bound)
        if end < 0 or framed.ids[-1] == end:
            return framed.ids, framed.cut
        framed = self.reader.single([ids], longest=bound - 1)
        return np.append(framed.ids, np.int32(end)), framed.cut

    def summed(self, reader: Reader, objective: Classify, rows: Sequence[Pair]) -> tuple[Tensor, int]:
        """Every token of the target, asked where the decoder has read what stands before it."""
        lengths = np.array([len(row.target) for row in rows])
        shape = len(rows), int(lengths.max())
        real = np.arange(shape[1]) < lengths[:, None]
        answers_ = np.concatenate([row.target for row in rows]).astype(np.int64)
        read = np.full(shape, reader.tokenizer.roles.get("[PAD]", 0), np.int64)
        read[real] = answers_
        read = np.concatenate([np.full((len(rows), 1), start_id(reader), np.int64), read[:, :-1]], axis=1)
        made = {
            "decoder_tokens": read, f"targets/{objective.set}": answers_, f"places/{objective.set}": np.flatnonzero(real)
        }
        if not real.all():
            made["decoder_block"] = real.astype(np.int64)
        further = Batch({name: torch.from_numpy(array) for name, array in made.items()}, checked=True).to(reader.device)
        batch = Batch({**reader.batch([row.source for row in rows]), **further}, checked=True)
        states = reader.states(batch, ("decoder_hidden",))
        with reader.autocast():
            loss = objective({objective.reads[0]: states["decoder_hidden"]}, batch)
        return loss.total, len(answers_)

    def write(self, sources: Sequence[Framed], *, size: int, report: Report) -> list[Written]:
        """Token after token with a cache, or by beam search."""
        manner = Manner(self.task.target_length, GREEDY, self.task.search, rows=size, report=report)
        return answer_framed(self.exact, self.head, sources, manner)


def begin(
    loaded: Checkpoint, task: Any, settings: Settings, seed: int, precision: torch.dtype | None = None
) -> TextLearner:
    """What learns to write, before training: a copy of network and head, or a fresh twin of both."""
    kind, (name, kept) = kind_of(loaded), stored_head(loaded)
    reader = copied(loaded, settings, seed, precision)
    table = reader.network.tables["tokens"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(seed, "head") % 2**63)
        objective = token_prediction(
            **kept.arguments, width=reader.network.width, vocab_size=table.num_embeddings, table=table
        )
    if not settings.from_scratch:
        objective.load_state_dict(loaded.heads[name].state_dict())
    objective.to(reader.device)
    return kind(reader, Head(name, objective, kept), task, length=settings.length)


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> TextLearner:
    """What learned to write, of a fine-tuned checkpoint."""
    kind, (name, kept) = kind_of(loaded), stored_head(loaded)
    reader = Reader.of(loaded, precision=precision)
    return kind(reader, Head(name, loaded.heads[name], kept), task, length=described.get("length"))


def stored_head(loaded: Any) -> tuple[str, StoredHead]:
    """The head that predicts tokens, by name; without one a `CheckpointError`."""
    for name, head in loaded.heads.items():
        if isinstance(head.head, VocabularyHead):
            return name, loaded.imported.model.heads[name]
    raise CheckpointError(
        f"{loaded.folder}: to write a text needs a head that predicts tokens; this checkpoint has: "
        f"{', '.join(loaded.heads) or 'none'}.\n  Use a checkpoint that was trained with token_prediction."
    )


def kind_of(loaded: Checkpoint) -> type[TextLearner]:
    """What learns to write with a network of this kind; a `CheckpointError` for one that cannot."""
    if has_decoder(Reader.of(loaded)):
        return Answerer
    raise CheckpointError(
        f"{loaded.folder}: text_to_text needs a network with a decoder, which reads one text and writes another; this one "
        f"only reads ({loaded.order}).\n  Use a checkpoint of t5, bart or mass; to classify texts: --task sentence_classification"
    )
