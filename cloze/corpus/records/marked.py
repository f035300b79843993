"""The class of the spans that are marked in a record: the relation of two names, the sense of a word, the type of an entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.marked_texts import TextFields, each_marked
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.answer import Answer, Columns, Labels, Record, RecordBlock, RecordEncoder, described_classes
from cloze.corpus.records.audits import Audit, CutWords, OddClasses
from cloze.corpus.records.span_marks import SpanMarks, mark_ids, marks_around
from cloze.corpus.records.spans import UNKNOWN, tokens_of
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError, counted
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


class _MarkedEncoder(RecordEncoder):
    labels: Labels

    def __init__(self, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(tokenizer, labels)
        self.unknown = 0
        self.mark_ids: NDArray[np.int64] | None = None  # of the tokens around each span

    @property
    def remarks(self) -> list[str]:
        """How many records are left out because they cannot be answered."""
        return [f"{self.unknown:,} records are left out: no token covers one of their spans"] if self.unknown else []

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        spelled = self.tokenizer.encode_spelled([record.texts[0] for record in records])
        span_count = len(records[0].answer[0])
        self.given = {"spans": span_count}
        tokens = np.full((len(records), span_count, 2), UNKNOWN, np.int32)
        codes = np.empty(len(records), np.int32)
        for number, record in enumerate(records):
            spans, label = record.answer
            codes[number] = self.labels.known_code(label, f"{path}:{record.line}")
            bounds = [span_tokens for span in spans if (span_tokens := tokens_of(spelled, number, *span)) is not None]
            if len(bounds) == span_count:
                tokens[number] = bounds
            else:
                self.unknown += 1
        marks = self._marks(tokens, spelled.offsets, f"{path}:{records[0].line}")
        columns = {"label": np.repeat(codes, span_count), "first": tokens[:, :, 0].ravel(), "last": tokens[:, :, 1].ravel()}
        places = np.concatenate([np.zeros(0, np.int64), *(record_marks.places for record_marks in marks)])
        ids = np.concatenate([np.zeros(0, np.int64), *(record_marks.ids for record_marks in marks)])
        offsets = spelled.offsets + np.cumsum([0, *(len(record_marks.ids) for record_marks in marks)])
        return RecordBlock(
            np.insert(spelled.ids, places, ids), np.insert(spelled.word_start, places, True), offsets, columns,
            np.full(len(records), span_count, np.int64), inserted=places,
        )

    def _marks(self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], where: str) -> list[SpanMarks]:
        """The marks of each record at their places among the tokens of all, and `tokens` (records, spans, 2) moved behind them; a
        record without one of its spans has none."""
        empty = np.zeros(0, np.int64)
        marks = [SpanMarks(empty, empty, empty)] * len(tokens)
        if self.mark_ids is None:
            return marks
        if len(self.mark_ids) != tokens.shape[1]:
            spans, count = counted(tokens.shape[1], "span"), counted(len(self.mark_ids), "mark")
            raise TaskError(f"{where}: {spans}, and class_of_spans.marks has {count}. Name one for each span.")
        for number in np.flatnonzero((tokens != UNKNOWN).all((1, 2))).tolist():
            record_marks = marks_around(tokens[number].astype(np.int64), self.mark_ids)
            marks[number] = record_marks._replace(places=record_marks.places + offsets[number])
            tokens[number] = record_marks.spans
        return marks


@register("answer", "class_of_spans")
class ClassOfSpans(Answer):
    """One class for the marked spans of a text. Every record has the same number of spans; files are JSON lines.

    `{"text": "Anna lives in Rome", "spans": [[0, 4], [14, 18]], "label": "lives_in"}`; where `text` is a list of words, spans
    count words. `spans` is the field with the spans; `none`: the label for "no relation", which micro-F1 does not count
    (TACRED's `no_relation`). `marks` are tokens of the vocabulary that stand around the spans, one for each span: `["#", "$"]`.
    """

    columns: Mapping[str, Any] = {"label": np.int32, "first": np.int32, "last": np.int32}
    coded: ClassVar[str | None] = "label"
    ragged: ClassVar[bool] = True  # a value for each span
    encodes = _MarkedEncoder
    gives: frozenset[str] = frozenset({"column/label", "spans"})
    tabular: ClassVar[bool] = False

    def __init__(self, *, spans: str = "spans", none: str | None = None, marks: list[str] | None = None) -> None:
        self.spans, self.none, self.marks = spans, none, marks

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> RecordEncoder:
        """The encoder, which knows the tokens of the marks."""
        encoder = _MarkedEncoder(tokenizer, Labels(classes))
        encoder.mark_ids = None if self.marks is None else mark_ids(tokenizer, self.marks)
        return encoder

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The texts of a file."""
        if columns.text_b is not None:
            raise TaskError("corpus.text_b: spans are marked in one text. Omit it.")
        for marked in each_marked(path, TextFields(columns.text, self.spans, columns.label), fault=fault):
            yield Record(marked.line, (marked.text,), (marked.spans, marked.label))

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the class of a record."""
        yield record.line, record.answer[1]

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Also what notices odd names of classes, and spans that are cut out of words."""
        return [*super().audits(tokenizer), OddClasses(lambda record: (record.answer[1],)), CutWords()]

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,), and `spans` (B, 2K): the first and the last token of each span, -1 for one that is not shown."""
        places = [parts.columns(stored[name], 0) for name in ("first", "last")]
        return {"column/label": stored["label"][:, 0], "spans": np.stack(places, axis=2).reshape(len(places[0]), -1)}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How often each class occurs, for objectives that need it."""
        labels = np.asarray(stored["label"])[np.asarray(stored["bounds"])[:-1]]
        return {"label_counts": np.bincount(labels[labels >= 0], minlength=len(classes)).tolist()}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent one."""
        return described_classes(np.asarray(stored["label"])[np.asarray(stored["bounds"])[:-1]], classes)

    def lost(self, stored: Mapping[str, NDArray[Any]], max_tokens: int) -> int:
        """How many records lose a span if a text is cut to `max_tokens` tokens."""
        last, begin = np.asarray(stored["last"]), np.asarray(stored["bounds"])[:-1]
        return int(np.logical_or.reduceat(last >= max_tokens, begin).sum()) if len(begin) else 0
