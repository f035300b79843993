"""The loss of every example, which probes differentiate and measure: that of the network's own head on texts, or of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cloze.batch import Batch
from cloze.corpus.readers.text_files import require_files
from cloze.decoding.generating.forms import ByDecoder, form_of
from cloze.decoding.generating.sequence import has_decoder
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader, describe_heads, head_of_kind
from cloze.decoding.scores.answer_scoring import split_pairs
from cloze.errors import UserError, spelled_by
from cloze.rng import Draw, row_keys
from cloze.tasks.kinds.classification import Classifier
from cloze.tasks.kinds.question_answering import ContextWindow, Extractor, QuestionRow
from cloze.tasks.kinds.regression import Regressor
from cloze.tasks.kinds.text_to_text import Answerer
from cloze.tasks.kinds.token_labelling import WordLabeller
from cloze.tasks.task import Learner
from cloze.tasks.tuned_folder import load_tuned, task_in_folder
from cloze.tasks.words import read_words

RATE = 0.15  # of the tokens of a text that are masked


class LossExamples(ABC):
    """Examples with a loss each. `measure` is what `value` gives, which is better if it is `higher`."""

    measure: str = "loss"
    higher: bool = False
    lengths: Sequence[int] = ()
    remarks: Sequence[str] = ()
    network: Any

    @abstractmethod
    def losses(self, index: Sequence[int]) -> Tensor:
        """The loss of some examples (B,), the mean over the answers of each, in one call of the network."""

    @torch.inference_mode()
    def mean_loss(self, *, size: int) -> float:
        """The mean loss of all examples."""
        totals = [self.losses(index).double().sum().item() for index in self.batches(size)]
        return float(sum(totals) / len(self.lengths))

    def value(self, *, size: int) -> float:
        """The measure over all examples: their mean loss, unless a subclass has another."""
        return self.mean_loss(size=size)

    def batches(self, size: int) -> Any:
        """Numbers of examples of like length."""
        return by_length(self.lengths, rows=size)


class _TextRow(NamedTuple):
    """A text as the network reads it, and the predictions: at which columns, and the right tokens."""

    row: Framed
    columns: Ids
    right: Ids


class TextExamples(LossExamples):
    """The texts that a network reads, with the loss of the head that it was pre-trained with.

    A network that fills gaps predicts `RATE` of the tokens of each text, the same whatever the batch; one that reads from left to
    right, every token after the first.
    """

    def __init__(self, loaded: Checkpoint, texts: Sequence[str], *, seed: int = 0, length: int | None = None) -> None:
        self.reader, self.network = Reader.of(loaded), loaded.network
        self.head = _head(loaded)
        if self.reader.order != "left_to_right" and "[MASK]" not in self.reader.tokenizer.roles:
            raise UserError(
                f"{loaded.folder}: its vocabulary has no [MASK] and it does not read from left to right: plain text has no loss "
                "here.\n  Give a network that predicts tokens of its texts or, for a fine-tuned folder, --task FILE."
            )
        self.rows = [
            self._with_targets(row, number, seed) for number, row in enumerate(self.reader.encode(texts, max_length=length))
        ]
        self.rows = [row for row in self.rows if len(row.columns)]
        if not self.rows:
            raise UserError("no text has a token to predict: give longer ones.")
        self.lengths = [len(row.row) for row in self.rows]

    def _with_targets(self, row: Framed, number: int, seed: int) -> _TextRow:
        columns = np.flatnonzero(self.reader.predictable(row))
        if self.reader.order == "left_to_right":
            columns = columns[columns > 0]
            return _TextRow(row, (columns - 1).astype(np.int32), row.ids[columns])
        drawn = Draw(row_keys(seed, "probe", items=np.array([number], np.int64))).uniform("mask", len(row))[0]
        chosen = np.sort(columns[np.argsort(drawn[columns], kind="stable")[: int(np.ceil(RATE * len(columns)))]])
        masked = row.masked(chosen, self.reader.tokenizer.role("[MASK]"))
        return _TextRow(masked, chosen.astype(np.int32), row.ids[chosen])

    def losses(self, index: Sequence[int]) -> Tensor:
        reader, rows = self.reader, [self.rows[i] for i in index]
        batch = reader.batch([row.row for row in rows])
        width = batch["tokens"].shape[1]
        flat = np.concatenate([n * width + row.columns.astype(np.int64) for n, row in enumerate(rows)])
        positions = torch.from_numpy(flat).to(reader.device)
        inputs, at = reader.prediction_inputs(self.head, batch, positions)
        scores = reader.token_scores(self.head, reader.states(inputs, self.head.reads), inputs, at)
        return _means(scores, [row.right for row in rows])


class AnswerExamples(LossExamples):
    """Texts and the answers that an encoder-decoder writes for them, with the loss of every token of the answer."""

    def __init__(self, loaded: Checkpoint, lines: Sequence[str], *, length: int | None = None) -> None:
        self.reader, self.network = Reader.of(loaded), loaded.network
        self.head, self.form = _head(loaded), ByDecoder(self.reader)
        with spelled_by(lambda phrase: ""):  # a probe reads no table
            texts, targets = split_pairs(lines)
        ids = [(np.asarray(self.reader.tokenizer.encode_template(text).ids, np.int32) for text in pair)
               for pair in zip(texts, targets, strict=True)]
        self.rows = [_Pair(self.form.source(a, max_length=length), self.form.target(b, most=length)[0]) for a, b in ids]
        self.lengths = [len(row.source) for row in self.rows]

    def losses(self, index: Sequence[int]) -> Tensor:
        rows = [self.rows[i] for i in index]
        return _losses_of_targets(self.reader, self.head, self.form, rows)


class _Pair(NamedTuple):
    source: Framed
    target: Ids


class TaskExamples(LossExamples):
    """Labelled rows of a fine-tuned learner, measured by a metric of its task: the first one, or the one that `metric` names.

    More is better of those that the task does not select a checkpoint by, such as the F1 of two classes.
    """

    def __init__(self, learner: Any, examples: Any, most: int | None = None, metric: str | None = None) -> None:
        self.measure = metric or next(iter(learner.task.metrics))
        self.higher = learner.task.metrics.get(self.measure, True)
        self.learner, self.network, self.rows = learner, learner.network, self._readable(learner, examples, most)
        self.lengths = [self._length(row) for row in self.rows]

    def _readable(self, learner: Any, examples: Any, most: int | None) -> list[Any]:
        """The rows that are measured."""
        rows: list[Any] = learner.encode_labelled(examples)[:most]
        return rows

    def _length(self, row: Any) -> int:
        """The number of tokens of a row."""
        return len(row.inputs)

    def value(self, *, size: int) -> float:
        """The metric as `cloze evaluate` computes it, without a linear model."""
        metrics = self.learner.compute_metrics(self.learner.per_example(self.rows, self.measure, size=size))
        if self.measure not in metrics:
            raise UserError(f"{self.measure} cannot be measured on these rows; expected one of: {', '.join(metrics)}.")
        return float(metrics[self.measure])


class ClassifiedExamples(TaskExamples):
    """The rows of a fine-tuned classifier."""

    def losses(self, index: Sequence[int]) -> Tensor:
        rows = [self.rows[i] for i in index]
        right = torch.tensor([row.truth for row in rows], device=self.learner.reader.device)
        return functional.cross_entropy(self.learner.scores([row.inputs for row in rows]), right, reduction="none")


class NumberExamples(TaskExamples):
    """The rows of a fine-tuned regressor, with the squared error of each, as in training."""

    def _length(self, row: Any) -> int:
        return len(row.inputs[0])

    def losses(self, index: Sequence[int]) -> Tensor:
        rows = [self.rows[i] for i in index]
        scores = self.learner.scores([framed for row in rows for framed in row.inputs])[:, 0]
        scores = scores.view(len(rows), -1).mean(1)  # of the orders of its texts
        return (scores - torch.tensor([row.truth for row in rows]).to(scores)) ** 2


class LabelledExamples(TaskExamples):
    """The texts of a fine-tuned labeller of words; those that need several windows are left out."""

    def _readable(self, learner: Any, examples: Any, most: int | None) -> list[Any]:
        if learner.head.chained:
            raise UserError("the labels of this labeller depend on each other (crf); expected one that labels each word alone.")
        rows, labels = learner.encode_labelled(examples)[:most], set(learner.label_names)
        readable = [row for row in rows if len(row.inputs.windows) == 1 and not labels.isdisjoint(row.truth)]
        if not readable:
            raise UserError("no labelled text fits into one row of this network.")
        left = len(rows) - len(readable)
        remark = f"{left:,} of {len(rows):,} texts were left out: too long for one row, or without a known label"
        self.remarks = [remark] if left else []
        return readable

    def _length(self, row: Any) -> int:
        return len(row.inputs.windows[0].row)

    def losses(self, index: Sequence[int]) -> Tensor:
        rows = [self.rows[i] for i in index]
        counts, names = [len(row.truth) for row in rows], self.learner.label_names
        scores, read = read_words(
            self.learner.reader, self.learner.head, [row.inputs.windows for row in rows], counts, width=len(names), size=len(rows)
        )
        right = np.array([names.index(label) if label in names else -1 for row in rows for label in row.truth])
        right[~read] = -1
        losses = functional.cross_entropy(scores, torch.from_numpy(right), ignore_index=-1, reduction="none")
        owner = torch.repeat_interleave(torch.tensor(counts))
        divisors = torch.zeros(len(rows)).index_add(0, owner, torch.from_numpy((right >= 0).astype(np.float32)))
        return torch.zeros(len(rows), dtype=losses.dtype).index_add(0, owner, losses) / divisors.clamp(min=1.0)


class QuestionExamples(TaskExamples):
    """The questions of a fine-tuned extractor of answers. The loss is that of training, the mean over the windows of a question:
    the first and the last token of the first answer, or of none in a window that does not contain it."""

    def losses(self, index: Sequence[int]) -> Tensor:
        rows = [self.rows[i].inputs for i in index]
        framed = [window.framed for row in rows for window in row.windows]
        batch = self.learner.reader.batch(framed)
        columns = [_answer_columns(row, window) for row in rows for window in row.windows]
        summaries = batch["summaries"].cpu() % batch["tokens"].shape[1]
        right = torch.tensor([pair or (int(s), int(s)) for pair, s in zip(columns, summaries, strict=True)]).T
        states = self.learner.reader.states(batch, self.learner.head.reads)
        scores = self.learner.reader.scores(self.learner.head, states, batch, batch["summaries"][:, None].expand(-1, 2))
        right = right.to(scores.device)
        first, last = (functional.cross_entropy(*side, reduction="none") for side in zip(scores, right, strict=True))
        losses = (first + last) / 2
        return torch.stack([part.mean() for part in losses.split([len(row.windows) for row in rows])])


def _answer_columns(row: QuestionRow, window: ContextWindow) -> tuple[int, int] | None:
    """The columns of the first and the last token of the first answer of a question in a window; None if it is not there."""
    if not row.record.answers:
        return None
    answer = row.record.answers[0]
    start = answer.start if answer.placed(row.record.context) else row.record.context.find(answer.text)
    tokens = np.flatnonzero((row.stop > start) & (row.start < start + len(answer.text))) - window.begin
    if start < 0 or not len(tokens) or tokens[0] < 0 or tokens[-1] >= len(window.columns):
        return None
    return int(window.columns[tokens[0]]), int(window.columns[tokens[-1]])


class WrittenExamples(TaskExamples):
    """The texts of a fine-tuned encoder-decoder and what it is to write, with the mean loss of the tokens of each target."""

    def __init__(self, learner: Any, examples: Any, most: int | None = None, metric: str | None = None) -> None:
        form = form_of(learner.reader)
        if not isinstance(form, ByDecoder):
            raise UserError("this network writes without a decoder; expected an encoder-decoder.")
        self.form = form
        super().__init__(learner, examples, most, metric)

    def _length(self, row: Any) -> int:
        return len(row.source)

    def losses(self, index: Sequence[int]) -> Tensor:
        return _losses_of_targets(self.learner.reader, self.learner.head, self.form, [self.rows[i] for i in index])


def text_examples(loaded: Checkpoint, texts: Sequence[str], *, seed: int = 0, length: int | None = None) -> LossExamples:
    """Texts for the head that a network was pre-trained with; for an encoder-decoder, lines of a text, a tab and its answer."""
    if has_decoder(Reader.of(loaded)):
        return AnswerExamples(loaded, texts, length=length)
    return TextExamples(loaded, texts, seed=seed, length=length)


def task_examples(
    loaded: Checkpoint, labelled: str, *, most: int | None = None, metric: str | None = None, bleu: str | None = None,
    length: int | None = None,
) -> LossExamples:
    """Labelled rows for a fine-tuned checkpoint, the first `most` of them: `FILE`, or `TASK=FILE` if it has several tasks.

    `metric` names what is measured, None the first metric of the task; `bleu` is the tokenization by which BLEU is computed;
    `length` is how many tokens of a text are read, None as many as in training.
    """
    name, _, file = labelled.rpartition("=")
    require_files([file])
    task = None if bleu is None else task_in_folder(Path(loaded.folder), name or None, bleu=bleu)
    learner = load_tuned(loaded, task, name=name or None, length=length)[0]
    return learner_examples(learner, learner.task.read(file), most=most, metric=metric)


#: The examples of each learner that has a loss for every example.
_EXAMPLES: Mapping[type[Learner], type[TaskExamples]] = {
    Classifier: ClassifiedExamples, Regressor: NumberExamples, WordLabeller: LabelledExamples, Extractor: QuestionExamples,
    Answerer: WrittenExamples,
}  # fmt: skip


def learner_examples(learner: Learner, examples: Any, *, most: int | None = None, metric: str | None = None) -> TaskExamples:
    """Labelled examples with the loss of a learner; a `UserError` for a task without a loss per example here."""
    for kind, examples_of_kind in _EXAMPLES.items():
        if isinstance(learner, kind):
            return examples_of_kind(learner, examples, most, metric)
    raise UserError(
        f"a folder that was fine-tuned for {learner.task.name}: expected sentence_classification, pair_classification, "
        "regression, token_labelling, question_answering or text_to_text.\n  Its heads on plain text: leave --task out and give "
        "--text FILE."
    )


def _head(loaded: Checkpoint) -> Any:
    head = head_of_kind(loaded, "token_prediction")
    if head is None:
        raise UserError(
            f"{loaded.folder}: needs a head that predicts tokens; this checkpoint has: {describe_heads(loaded)}.\n"
            "  For a fine-tuned folder, give labelled text with --task TASK=FILE."
        )
    return head


def _losses_of_targets(reader: Reader, head: Any, form: ByDecoder, rows: Sequence[Any]) -> Tensor:
    """The mean loss of the tokens of each target (B,)."""
    batch: Batch = form.with_targets(rows, head.set)
    scores = reader.token_scores(head, form.readings(head, batch), batch, batch[f"positions/{head.set}"])
    return _means(scores, [row.target for row in rows])


def _means(scores: Tensor, right: Sequence[Ids]) -> Tensor:
    """The mean loss of each row, from the scores of all its tokens (M, V)."""
    counts = torch.tensor([len(row) for row in right], device=scores.device)
    ids = torch.from_numpy(np.concatenate(right).astype(np.int64)).to(scores.device)
    losses = functional.cross_entropy(scores, ids, reduction="none")
    return torch.stack([part.mean() for part in losses.split(counts.tolist())])
