"""Networks that learn to write a target for a text, each in its own form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from cloze.corpus.records.audits import Unwritable
from cloze.decoding.generating.forms import Form, form_of
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.sequence import Manner, end_role, has_decoder
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader, bound, evaluating, orders_of
from cloze.errors import CheckpointError, TaskError
from cloze.tasks.measures.chrf import Counts, chrf_counts, chrf_of
from cloze.tasks.measures.overlap import NAMES, TOKENIZATION, figures
from cloze.tasks.task import Evaluation, Learner, Report, cut_remark

GREEDY = Sampling(temperature=0.0)
USUAL_LENGTH = 64  # tokens that are written where a folder does not say


@dataclass(frozen=True)
class Texts:
    """Texts, the references of each (None where they were not read) and where they come from."""

    texts: list[str]
    targets: list[tuple[str, ...]] | None
    path: str
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Pair:
    """A framed text and the tokens of its first reference, their end included; `references` are all, as tokens spell them.

    `lost` counts the tokens of the first that did not fit.
    """

    source: Framed
    target: Ids
    references: tuple[str, ...]
    lost: int

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens of either did not fit."""
        return {"text": self.source.cut, "target": self.lost}

    def __len__(self) -> int:
        return len(self.source) + len(self.target)


class JudgedPair(NamedTuple):
    """The loss of a target, summed over its tokens, and how many those are; unless only that was asked for, what was written for
    it, its references, the figures of that pair, and the counts that chrF adds up."""

    loss: float
    tokens: int
    written: str = ""
    references: tuple[str, ...] = ()
    figures: Mapping[str, float] | None = None
    counts: Counts | None = None


@dataclass(frozen=True)
class Output:
    """What was written for one row: the file's line it comes from, its text, whether the end came by itself, and how many tokens
    of the text did not fit."""

    line: int
    text: str
    output: str
    ended: bool
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object of this output; a text that was read whole has no `cut`."""
        return {name: value for name, value in self.__dict__.items() if name != "cut" or value}


class Answerer(Learner):
    """A network that writes. The loss that is measured is the mean cross-entropy of the tokens of each first reference, the end
    included, each given those before it; the form says what is learned from (`cloze.decoding.generating.forms`).

    What is written is compared with references as the vocabulary spells them, so that one without capitals is not blamed for
    them; every evaluation reports how many are spelt otherwise than in the file. A character that the vocabulary lacks is
    never right. `target_length` is the most tokens that are written.
    """

    def __init__(self, reader: Reader, head: Any, task: Any, *, length: int | None, target_length: int) -> None:
        super().__init__(reader, head, task, length=length)
        self.target_length = target_length
        self._form = form_of(self.exact)

    def answered(self, examples: Texts) -> list[Pair]:
        """The examples with the tokens of their targets."""
        if examples.targets is None:
            raise TaskError(f"{examples.path}: has no targets; expected one in every row.")
        tokenizer = self.reader.tokenizer
        every = tokenizer.encode_batch([text for references in examples.targets for text in references])
        spelt, rows = iter([np.asarray(encoded.ids, np.int32) for encoded in every]), []
        for source, references in zip(self._asked(examples), examples.targets, strict=True):
            ids = [next(spelt) for _ in references]
            target, lost = self._form.target(ids[0], most=self.target_length, max_length=self.length)
            rows.append(Pair(source, target, tuple(tokenizer.decode(tokens, skip_special=False) for tokens in ids), lost))
        return rows

    @torch.inference_mode()
    def judge(
        self, rows: Sequence[Pair], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> list[JudgedPair]:
        """The loss of every target, not smoothed; unless that is all that is wanted, also the figures of what is written."""
        losses = [0.0] * len(rows)
        with evaluating(self):
            for index in by_length([len(row.source) for row in rows], rows=size):
                log_probabilities = self._form.log_probabilities(self.head, [rows[i] for i in index])
                for i, value in zip(index, log_probabilities, strict=True):
                    losses[i] = -value
            if metric == "loss":
                return [JudgedPair(loss, len(row.target)) for loss, row in zip(losses, rows, strict=True)]
            written = self._texts([row.source for row in rows], size, report)
        return [
            JudgedPair(
                loss, len(row.target), text, row.references, figures(text, row.references), chrf_counts(text, row.references)
            )
            for loss, row, (text, _) in zip(losses, rows, written, strict=True)
        ]

    def metrics(self, judged: Sequence[JudgedPair]) -> dict[str, float]:
        """The loss of a token, and the means of the figures that are known."""
        if not judged:
            raise TaskError("no examples with targets to measure on.")
        metrics = {"loss": sum(pair.loss for pair in judged) / max(1, sum(pair.tokens for pair in judged))}
        measured = [(pair.figures, pair.counts) for pair in judged if pair.figures is not None and pair.counts is not None]
        if not measured:
            return metrics
        metrics |= {name: sum(scores[name] for scores, _ in measured) / len(measured) for name in NAMES}
        metrics["chrf"] = chrf_of(np.sum([counts for _, counts in measured], axis=0))
        return metrics | self.task.corpus_figures([pair.written for pair in judged], [pair.references for pair in judged])

    def evaluate(
        self, examples: Texts, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """All metrics on examples with targets."""
        rows = self.answered(examples)
        targets = examples.targets or []
        judged = self.judge(rows, size=size, report=report)
        baseline = None if always is None else {"always": always, **self.task.constant(always, examples, ())}
        other = sum(
            [text.split() for text in row.references] != [text.split() for text in target]
            for row, target in zip(rows, targets, strict=True)
        )
        remark = f"{other} of {len(rows)} targets are compared as the vocabulary spells them, not as the file does."
        remarks = [
            f"ROUGE and F1 compare {TOKENIZATION}; of several references the best counts.",
            *self.task.remarks([row.references for row in rows]),
        ]
        remarks += [remark] if other else []
        unwritable = Unwritable(self.reader.tokenizer)
        unwritable.add_targets(examples.path, targets)
        remarks += unwritable.remarks()
        cut = cut_remark([row.source.cut for row in rows], self.length)
        return Evaluation(
            len(rows), self.metrics(judged), baseline, (*remarks, *([] if cut is None else [cut])), judged=judged
        )

    @torch.inference_mode()
    def predict(self, examples: Texts, *, size: int = 64, report: Report = lambda done: None) -> list[Output]:
        """A text for every example."""
        sources = self._asked(examples)
        with evaluating(self):
            written = self._texts(sources, size, report)
        return [
            Output(line, text, output, ended, source.cut)
            for line, text, (output, ended), source in zip(examples.lines, examples.texts, written, sources, strict=True)
        ]

    def _asked(self, examples: Texts) -> list[Framed]:
        ids = self.reader.ids([self.task.prefix + text for text in examples.texts])
        return [self._form.source(text_ids, max_length=self.length, room=self.target_length) for text_ids in ids]

    def _texts(self, sources: Sequence[Framed], size: int, report: Report) -> list[tuple[str, bool]]:
        rows = max(1, size // (self.task.search.count if self.task.search else 1))
        manner = Manner(self.target_length, GREEDY, self.task.search, rows=rows, report=report)
        written = self._form.write(self.head, sources, manner)
        return [(self.reader.tokenizer.decode(text.ids), text.ended) for text in written]  # without sentinels, as elsewhere


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> Answerer:
    """What learned to write, of a fine-tuned checkpoint; `described` is its task.json."""
    names = [name for name, head in loaded.heads.items() if head.over_vocabulary]
    name = described["head"] if described.get("head") in names else next(iter(names), None)
    if name is None:
        raise CheckpointError(
            f"{loaded.folder}: to write a text needs a head that predicts tokens; this checkpoint has: "
            f"{', '.join(loaded.heads) or 'none'}.\n  Use a checkpoint that was trained with token_prediction."
        )
    reader = answering(loaded, Reader.of(loaded, precision=precision))
    read = None if has_decoder(reader) else loaded.reads.get(name)
    head = bound(loaded.heads[name], read)
    max_length = int(described.get("target_length") or USUAL_LENGTH)
    return Answerer(reader, head, task, length=described.get("length"), target_length=max_length)


def writing_form(loaded: Checkpoint) -> Form:
    """How a checkpoint lays a text and its target out; a `CheckpointError` if it cannot write."""
    return form_of(answering(loaded, Reader.of(loaded)))


def answering(loaded: Checkpoint, reader: Reader) -> Reader:
    """A checkpoint's reader in an order in which it answers texts; a `CheckpointError` if there is none.

    A network that reads from left to right is given a pair's layout, if it has none, with a separator behind the text; both are
    kept by what is saved.
    """
    orders = orders_of(loaded)
    if has_decoder(reader):
        return reader
    if "source_to_target" in orders:
        return replace(reader, order="source_to_target")
    if "left_to_right" in orders:
        pair = reader.reading.pair or _continued(reader)
        both: Any = (*orders, "source_to_target")
        reading = replace(reader.reading, pair=pair, orders=both)
        return replace(reader, order="source_to_target", reading=reading)
    raise CheckpointError(
        f"{loaded.folder}: text_to_text needs a network that writes; this one only reads ({' and '.join(orders)}).\n"
        "  Use a checkpoint of t5, bart, mass, unilm or gpt2; to classify texts: --task sentence_classification"
    )


def _continued(reader: Reader) -> str:
    """The layout of a pair for a network that knows single texts: a separator behind the text, the end behind the target."""
    roles, single = reader.tokenizer.roles, reader.reading.single
    end = end_role(reader)
    if end is None:
        raise CheckpointError("to write texts needs a token that ends them, [EOS] or [SEP], which the tokenizer does not have.")
    between = "" if not single.endswith("{A}") else " [SEP]" if "[SEP]" in roles else f" {end}"
    return f"{single}{between} {{B}} {end}"
