"""Text to text: any task as the generation of a target for a text (Raffel et al., 2020, §2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from cloze.corpus.readers.labelled import OPTION
from cloze.corpus.records.audits import Unwritable
from cloze.corpus.records.texts import joined, missing, references
from cloze.decoding.bound_head import bind_head
from cloze.decoding.generating.forms import Form, form_of
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams
from cloze.decoding.generating.sequence import Manner, end_role, has_decoder
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import cut_remark
from cloze.decoding.reader import Checkpoint, Reader, evaluating, orders_of
from cloze.decoding.reader_and_head import predicting_heads
from cloze.errors import CheckpointError, TaskError
from cloze.registry import register
from cloze.tasks.measures.overlap import (
    NAMES,
    TOKENIZATION,
    Counts,
    bleu_metric,
    bleu_remark,
    chrf,
    chrf_counts,
    chrf_of,
    figures,
    overlap,
)
from cloze.tasks.measures.overlap import bleu as bleu_of
from cloze.tasks.pictures import picture_numbers, with_picture
from cloze.tasks.task import Evaluation, Learner, PerExample, Prediction, Report, silent
from cloze.tasks.texts import LABEL, PICTURE, LabelledTexts, TableTask, parsed

GREEDY = Sampling(temperature=0.0)
USUAL_LENGTH = 64  # tokens that are written where a folder does not say
References = tuple[str, ...]  # of a text, each of which is right


@dataclass(frozen=True)
class TextToText(TableTask):
    """A task: which columns hold the text and the target, the prefix of every text, and how a target is found.

    `search` None takes the most probable token each time. `bleu` names the tokenization by which sacrebleu computes BLEU; None:
    it is not computed. A target that is a list of texts holds several references. `picture` is the column with the key of the
    picture or film that a row is about; None: rows are about texts alone.
    """

    label: str = "target"
    picture: str | None = None
    prefix: str = ""
    search: Beams | None = None
    bleu: str | None = None
    name: str = "text_to_text"
    pipeline: ClassVar[str | None] = "text2text-generation"
    lists: ClassVar[bool] = True

    @property
    def metrics(self) -> Mapping[str, bool]:
        """The loss first (lower is better), then the metrics of the written texts."""
        more = ("chrf",) if self.bleu is None else ("chrf", "bleu")
        return MappingProxyType({"loss": False, **dict.fromkeys((*NAMES, *more), True)})

    def with_beam_search(self, *, beams: int | None, length_penalty: float | None) -> TextToText:
        """The same task writing by a beam search; None: as it is."""
        if beams is None and length_penalty is None:
            return self
        search = self.search
        if beams is None and search is None:
            raise TaskError("--length-penalty is for a beam search: give --beams too.")
        count = search.count if beams is None and search is not None else int(beams or 1)
        default = 1.0 if search is None else search.length_penalty
        return replace(self, search=Beams(count, default if length_penalty is None else length_penalty))

    def read(self, path: Path | str, *, labelled: bool = True) -> LabelledTexts[References]:
        """The examples of a file; without `labelled` targets are not looked at."""
        table = self.table(path)
        texts = [joined(cell) for cell in table.column(self.text, OPTION)]
        targets = parsed(table, table.column(self.label, LABEL), self._references) if labelled else None
        pictures = table.column(self.picture, PICTURE) if self.picture is not None else None
        return LabelledTexts(texts, None, targets, table.path, table.lines, pictures)

    def _references(self, cell: Any) -> References:
        if not (targets := references(cell)):
            raise ValueError(missing(self.label))
        return targets

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Answerer:
        """What learned to write, of a fine-tuned folder."""
        names = predicting_heads(loaded)
        name = task_json["head"] if task_json.get("head") in names else next(iter(names), None)
        if name is None:
            raise CheckpointError(
                f"{loaded.folder}: to write a text needs a head that predicts tokens; this checkpoint has: "
                f"{', '.join(loaded.heads) or 'none'}.\n  Use a checkpoint that was trained with token_prediction."
            )
        reader = answering(loaded, Reader.of(loaded))
        head = bind_head(loaded.heads[name], None if has_decoder(reader) else loaded.reads.get(name))
        target_length = int(task_json.get("target_length") or USUAL_LENGTH)
        return Answerer(reader, head, self, length=task_json.get("length"), target_length=target_length)

    def truth(
        self, examples: LabelledTexts[References], labels: Sequence[str], *, numbered: bool = False
    ) -> list[References]:
        """The references of every text."""
        if examples.labels is None:
            raise TaskError(f"{examples.path}: has no targets; expected one in every row.")
        return examples.labels

    def per_example(self, truth: Any, outputs: Sequence[JudgedPair], labels: Sequence[str]) -> PerExample:
        """The outputs: a learner judges while it writes (`Answerer.per_example`)."""
        return outputs

    def compute_metrics(self, per_example: Sequence[JudgedPair], labels: Sequence[str]) -> dict[str, float]:
        """The loss of a token, and the means of the figures that are known."""
        if not per_example:
            raise TaskError("no examples with targets to measure on.")
        metrics = {"loss": sum(pair.loss for pair in per_example) / max(1, sum(pair.tokens for pair in per_example))}
        measured = [(pair.figures, pair.counts) for pair in per_example if pair.figures is not None and pair.counts is not None]
        if not measured:
            return metrics
        metrics |= {name: sum(scores[name] for scores, _ in measured) / len(measured) for name in NAMES}
        metrics["chrf"] = chrf_of(np.sum([counts for _, counts in measured], axis=0))
        return metrics | self.corpus_figures([pair.written for pair in per_example], [pair.references for pair in per_example])

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The figures of always writing one target."""
        outputs = [constant_answer] * len(truth)
        return {**overlap(outputs, truth), "chrf": chrf(outputs, truth), **self.corpus_figures(outputs, truth)}

    def corpus_figures(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        """The figures that others than cloze compute, of all texts together: BLEU, if it is asked for."""
        return {} if self.bleu is None else {"bleu": bleu_of(bleu_metric(self.bleu), texts, references)}

    def remarks(self, references: Sequence[Sequence[str]]) -> list[str]:
        """How such figures are computed, and whether these targets allow any but 0."""
        if self.bleu is None:
            return []
        metric = bleu_metric(self.bleu)
        remark = bleu_remark(metric, references, self.bleu)  # the signature is known afterwards
        signature = f"BLEU, from 0 to 100, is sacrebleu's: {metric.get_signature()}"
        return [signature] if remark is None else [signature, remark]

    def description(self) -> dict[str, Any]:
        """The columns, and the options that name none."""
        beams = {} if self.search is None else {"beams": self.search.count, "length_penalty": self.search.length_penalty}
        columns = with_picture({"text": self.text, "label": self.label}, self.picture)
        return {"columns": columns, "prefix": self.prefix, **beams}


@register("task", "text_to_text")
def text_to_text(
    text: str = "text", label: str = "target", prefix: str = "", beams: int | None = None,
    length_penalty: float | None = None, bleu: str | None = None, picture: str | None = None,
) -> TextToText:
    """Write a target for a text: translation, summaries, questions, labels as words, captions. `text` and `label` name columns;
    `picture` that with the key of the picture or film that a text is about.

    A target that is a list of texts holds several references; each of them is right.
    """
    if bleu is not None:
        bleu_metric(bleu)  # is it there?
    task = TextToText(text, label=label, picture=picture, prefix=prefix, bleu=bleu)
    return task.with_beam_search(beams=beams, length_penalty=length_penalty)


@dataclass(frozen=True)
class TextWithReferences:
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
class GeneratedAnswer(Prediction):
    """What was written for one row: the file's line it comes from, its text, whether the end came by itself, and how many tokens
    of the text did not fit."""

    line: int
    text: str
    output: str
    ended: bool
    cut: int = 0


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
        self._form = form_of(self.reader)

    def encode(self, examples: LabelledTexts[References]) -> list[Framed]:
        """The texts as the network reads them, with the prefix of the task."""
        ids = self.reader.ids([self.task.prefix + text for text in examples.texts])
        rows = [self._form.source(text_ids, max_length=self.length, max_new=self.target_length) for text_ids in ids]
        return [replace(row, picture=number) for row, number in zip(rows, picture_numbers(self.reader, examples), strict=True)]

    def encode_labelled(self, examples: LabelledTexts[References]) -> list[Any]:
        """The examples with the tokens of their targets, a `TextWithReferences` each."""
        targets = self.truth(examples)
        tokenizer = self.reader.tokenizer
        every = tokenizer.targets.encode_batch([text for target_texts in targets for text in target_texts])
        spelt, rows = iter([np.asarray(encoded.ids, np.int32) for encoded in every]), []
        for source, target_texts in zip(self.encode(examples), targets, strict=True):
            ids = [next(spelt) for _ in target_texts]
            target, lost = self._form.target(ids[0], most=self.target_length, max_length=self.length)
            rows.append(TextWithReferences(
                source, target, tuple(tokenizer.decode(tokens, skip_special=False) for tokens in ids), lost
            ))
        return rows

    @torch.inference_mode()
    def per_example(
        self, rows: Sequence[TextWithReferences], metric: str | None = None, *, size: int = 64, report: Report = silent
    ) -> list[JudgedPair]:
        """The loss of every target, not smoothed; unless that is all that is wanted, also the figures of what is written."""
        losses = [0.0] * len(rows)
        with evaluating(self):
            for index in self.reader.batches([len(row.source) for row in rows], rows=size):
                log_probabilities = self._form.log_probabilities(self.head, [rows[i] for i in index])
                for i, value in zip(index, log_probabilities, strict=True):
                    losses[i] = -value
            if metric == "loss":
                return [JudgedPair(loss, len(row.target)) for loss, row in zip(losses, rows, strict=True)]
        outputs = self.row_outputs([row.source for row in rows], size, report)
        return [
            JudgedPair(
                loss, len(row.target), text, row.references, figures(text, row.references), chrf_counts(text, row.references)
            )
            for loss, row, (text, _) in zip(losses, rows, outputs, strict=True)
        ]

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[Framed], size: int = 64, report: Report = silent) -> list[tuple[str, bool]]:
        """What is written for every text, without sentinels, and whether its end came by itself."""
        count = max(1, size // (self.task.search.count if self.task.search else 1))
        manner = Manner(self.target_length, GREEDY, self.task.search, rows=count, report=report)
        with evaluating(self):
            continuations = self._form.write(self.head, rows, manner)
        return [(self.reader.tokenizer.decode(self._form.text(text.ids)), text.ended) for text in continuations]

    def evaluate(
        self, examples: LabelledTexts[References], constant_answer: str | None = None, *, size: int = 64, report: Report = silent,
        outputs: Any = None,
    ) -> Evaluation:
        """All metrics on examples with targets. `outputs` are not used: the losses of the targets are needed, too."""
        rows = self.encode_labelled(examples)
        return self._evaluation_of(examples, rows, None, self.per_example(rows, size=size, report=report), constant_answer)

    def remarks(self, examples: LabelledTexts[References], rows: Sequence[Any], outputs: Any, per_example: Any) -> list[str]:
        """How texts are compared, which targets cannot be written as they are, and how many texts were cut."""
        targets = examples.labels or []
        other = sum(
            [text.split() for text in row.references] != [text.split() for text in target]
            for row, target in zip(rows, targets, strict=True)
        )
        spelt = f"{other} of {len(rows)} targets are compared as the vocabulary spells them, not as the file does."
        unwritable = Unwritable(self.reader.tokenizer)
        unwritable.add_targets(examples.path, targets)
        cut = cut_remark([row.source.cut for row in rows], self.length)
        return [
            f"ROUGE and F1 compare {TOKENIZATION}; of several references the best counts.",
            *self.task.remarks([row.references for row in rows]), *([spelt] if other else []), *unwritable.remarks(),
            *([] if cut is None else [cut]),
        ]  # fmt: skip

    def predictions(self, examples: LabelledTexts[References], rows: Sequence[Framed], outputs: Any) -> list[GeneratedAnswer]:
        """A text for every example."""
        return [
            GeneratedAnswer(line, text, output, ended, source.cut)
            for line, text, (output, ended), source in zip(examples.lines, examples.texts, outputs, rows, strict=True)
        ]


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
