"""Answer questions by stretches of a recording (SpeechBERT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.corpus.items.item_store import TIMES
from cloze.corpus.items.links import LINKED
from cloze.corpus.readers.questions import Questions
from cloze.corpus.records.spans import OTHER_TEXT, nearest_place
from cloze.corpus.records.spoken import spell_spoken
from cloze.decoding.layout import Framed, Marks
from cloze.decoding.links import with_links
from cloze.errors import CorpusError, TaskError
from cloze.exercises.items.link_items import LinkItems
from cloze.registry import register
from cloze.tasks.kinds.question_answering import ExtractedAnswer, Extractor, PredictedAnswer, QuestionAnswering, QuestionRow
from cloze.tasks.task import Report, silent
from cloze.text.tokenizer import Spelled

Seconds = tuple[float, float]


@dataclass(frozen=True)
class SpokenQuestions(QuestionAnswering):
    """Questions about recordings: contexts are what is said in them, words with a time each.

    Next to the metrics of texts, `aos` is the audio overlapping score (Lee et al., Spoken SQuAD, 2018): the time that the answer
    and the right one have in common, as a share of the time of both; of several right answers the best. `frame_f1` is F1 of their
    time. Both are computed as in DanielLin94144/DUAL-textless-SQA, `utils.py`, of the same group.
    """

    metrics: ClassVar[Mapping[str, bool]] = {**QuestionAnswering.metrics, "aos": True, "frame_f1": True}

    @property
    def learner(self) -> type[Extractor]:
        """What hears the recordings."""
        return Listener

    def description(self) -> dict[str, Any]:
        """Also that contexts are spoken."""
        return {**super().description(), "spoken": True}


@register("task", "question_answering")
def question_answering(
    text: str = "question", text_b: str = "context", label: str = "answers", picture: str | None = None, spoken: bool = False
) -> QuestionAnswering:
    """The span of a text that answers a question, or none if the text has no answer (SQuAD). The arguments name fields; of
    `spoken` contexts the network hears the recordings that `picture` names."""
    return (SpokenQuestions if spoken else QuestionAnswering)(text, text_b, label, picture=picture)


@dataclass(frozen=True)
class SpokenAnswer(ExtractedAnswer):
    """An answer and when it is said, in seconds from the beginning of the recording."""

    seconds: Seconds | None


class Listener(Extractor):
    """An extractor that reads the recording of each word of a context in the place of its token."""

    def encode(self, examples: Questions) -> list[QuestionRow]:
        """The questions in windows over their recordings. Raises a `TaskError` for a context that is not what is said."""
        rows = super().encode(examples)
        for row in rows:
            recorded = len(self._times(row))
            if recorded != len(row.start):
                raise TaskError(
                    f"{examples.path}:{row.record.line}: the context has {len(row.start)} spoken words, and its recording has "
                    f"{recorded}.\n  {OTHER_TEXT}"
                )
        return rows

    def spell(self, contexts: Sequence[str]) -> Spelled:
        """A token for each word that is said."""
        return spell_spoken(self.reader.tokenizer, contexts, spoken=[True] * len(contexts))

    def context_marks(self, contexts: Sequence[str], sizes: NDArray[np.int64]) -> Sequence[Marks]:
        """Each word is the next item."""
        return [
            {f"layers/{LINKED}": np.ones(size, np.int32), f"labels/{LINKED}": np.arange(1, size + 1, dtype=np.int32)}
            for size in sizes.tolist()
        ]

    def batch(self, framed: Sequence[Framed]) -> Batch:
        """Windows next to their recordings, with the links of their words."""
        return with_links(super().batch(framed), framed, LinkItems(set=self._set))

    def row_outputs(
        self, rows: Sequence[QuestionRow], size: int = 64, report: Report = silent
    ) -> list[PredictedAnswer]:
        """The best answers, with their overlap where the right ones are known."""
        outputs = super().row_outputs(rows, size, report)
        return [answer._replace(overlap=self._overlap(row, answer)) for row, answer in zip(rows, outputs, strict=True)]

    def predictions(
        self, examples: Questions, rows: Sequence[QuestionRow], outputs: Sequence[PredictedAnswer]
    ) -> list[ExtractedAnswer]:
        """The answer to every question, also as a stretch of its recording."""
        return [
            SpokenAnswer(**vars(answer), seconds=self._seconds(row, answer.start or 0, answer.end or 0))
            for row, answer in zip(rows, super().predictions(examples, rows, outputs), strict=True)
        ]

    @property
    def _set(self) -> str:
        """The set of recordings that the network reads."""
        return str(next(iter(self.reader.network.item_sets)))

    def _times(self, row: QuestionRow) -> NDArray[np.float32]:
        """When each word of a recording is said (W, 2)."""
        assert self.reader.pictures is not None  # `picture_numbers` has asked for them
        recordings = self.reader.pictures.sets[self._set]
        if TIMES not in recordings.arrays:
            raise CorpusError(f"the items {self._set!r} have no {TIMES!r}. Write them again: cloze corpus sounds")
        times: NDArray[np.float32] = recordings.arrays[TIMES][slice(*recordings.spans[row.picture].tolist())]
        return times

    def _seconds(self, row: QuestionRow, start: int, stop: int) -> Seconds | None:
        """When the characters of a context from `start` to `stop` are said; None if no word is among them."""
        words = np.flatnonzero((row.start < stop) & (row.stop > start))
        times = self._times(row)[words]
        return (round(float(times[0, 0]), 3), round(float(times[-1, 1]), 3)) if len(times) else None

    def _overlap(self, row: QuestionRow, predicted: PredictedAnswer) -> float | None:
        if row.record.answers is None:
            return None
        spans = [near for answer in row.record.answers if (near := nearest_place(answer, row.record.context)) is not None]
        answer = self._seconds(row, predicted.start, predicted.stop)
        references = [self._seconds(row, span.start, span.start + len(span.text)) for span in spans]
        return max((overlap(answer, reference) for reference in references), default=float(answer is None))


def overlap(answer: Seconds | None, reference: Seconds | None) -> float:
    """The time that two stretches have in common, as a share of the time of both; of no stretch and none, all.

    >>> overlap((1.0, 3.0), (2.0, 5.0))
    0.25
    """
    if answer is None or reference is None:
        return float(answer is reference)
    common = max(min(answer[1], reference[1]) - max(answer[0], reference[0]), 0.0)
    both = (answer[1] - answer[0]) + (reference[1] - reference[0]) - common
    return common / both if both else 0.0
