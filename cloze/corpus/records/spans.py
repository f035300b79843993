"""The answer to a question: a span of its context, which is written or spoken, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.links import LINKED
from cloze.corpus.readers.questions import AnswerSpan, QuestionFields, each_question, misplaced
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Int32, Record, RecordBlock, RecordEncoder
from cloze.corpus.records.spoken import spell_spoken
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.corpus.records.record_store import RecordStore
    from cloze.text.tokenizer import Spelled, Tokenizer

#: Stored in place of a token: the context has no answer, or none that can be used.
NONE, UNKNOWN = -1, -2
OTHER_TEXT = "Ask about the texts that were aligned: cloze corpus sounds writes them next to the recordings."


class _SpanEncoder(RecordEncoder):
    def __init__(self, tokenizer: Tokenizer, labels: None) -> None:
        super().__init__(tokenizer, labels)
        self.seen: Counter[str] = Counter()
        self.unknown = 0

    @property
    def constant_answer(self) -> str:
        """The most frequent answer, "" for none."""
        return self.seen.most_common(1)[0][0] if self.seen else ""

    @property
    def remarks(self) -> list[str]:
        """How many questions are left out."""
        return [f"{self.unknown:,} questions are left out: their context contains none of their answers"] if self.unknown else []

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        spelled = self.spell([text for record in records for text in record.texts])
        tokens = np.array([self._tokens(spelled, 2 * n + 1, r.answer) for n, r in enumerate(records)], np.int32).reshape(-1, 2)
        self.seen.update(r.answer.text if isinstance(r.answer, AnswerSpan) else "" for r in records if r.answer != UNKNOWN)
        self.unknown += int((tokens[:, 0] == UNKNOWN).sum())
        columns: dict[str, Int32] = {"first": tokens[:, 0], "last": tokens[:, 1]}
        return RecordBlock(spelled.ids, spelled.word_start, spelled.offsets, columns)

    def spell(self, texts: Sequence[str]) -> Spelled:
        """The tokens of texts, each second one of which is a context."""
        return self.tokenizer.encode_spelled(texts)

    @staticmethod
    def _tokens(spelled: Spelled, number: int, answer: AnswerSpan | int | None) -> tuple[int, int]:
        if not isinstance(answer, AnswerSpan):
            return (NONE, NONE) if answer is None else (UNKNOWN, UNKNOWN)
        return tokens_of(spelled, number, answer.start, answer.start + len(answer.text)) or (UNKNOWN, UNKNOWN)


class _SpokenEncoder(_SpanEncoder):
    """Also stores how many words each context has."""

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        block = super().__call__(records, path)
        words = np.diff(block.offsets)[1::2].astype(np.int32)
        return block._replace(columns={**block.columns, "words": words})

    def spell(self, texts: Sequence[str]) -> Spelled:
        return spell_spoken(self.tokenizer, texts, spoken=[bool(number % 2) for number in range(len(texts))])


@register("answer", "span")
class SpanAnswer(Answer):
    """A span of the second text, the context of a question, or none if the context does not answer it (Rajpurkar et al., 2016,
    2018).

    Files are SQuAD-shaped JSON or JSON lines (see `corpus/readers/questions.py`); the first of several right answers is used. An
    answer that is not at its offset is an error; with `offsets: find`, the occurrence nearest to the offset is used, and a
    question none of whose answers occurs in its context is left out.

    A `spoken` context is a recording (SpeechBERT): it has a token for each word that is said, and the labelled layer `linked`
    says that its words are the items of the record's recording, in their order (`link_items`).
    """

    columns: Mapping[str, Any] = {"first": np.int32, "last": np.int32}
    encodes = _SpanEncoder
    gives: frozenset[str] = frozenset({"column/label", "spans"})
    tabular: ClassVar[bool] = False

    def __init__(self, *, offsets: Literal["strict", "find"] = "strict", spoken: bool = False) -> None:
        self.offsets, self.spoken = offsets, spoken
        if spoken:
            self.columns, self.encodes = {**self.columns, "words": np.int32}, _SpokenEncoder
            self.gives = self.gives | {f"layers/{LINKED}", f"labels/{LINKED}"}

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The questions of a file: question, context, and the first answer that is at its start offset."""
        if columns.text_b is None:
            raise TaskError("corpus.text_b: the answer to a question is a span of a second text. Name its field.")
        for question in each_question(path, QuestionFields(columns.text, columns.text_b, columns.label), fault=fault):
            texts = question.question.strip(), question.context
            if not question.answers:
                yield Record(question.line, texts, None)
                continue
            answers = [answer for answer in question.answers if answer.placed(question.context)]
            if self.offsets == "find":
                answers += [near for answer in question.answers if (near := nearest_place(answer, question.context)) is not None]
                yield Record(question.line, texts, answers[0] if answers else UNKNOWN)
                continue
            for answer in question.answers:
                if not answer.placed(question.context):
                    why = misplaced(answer, question.context)
                    where = f"{question.place}: " if question.place else ""
                    unusable(path, question.line, f"{where}{why}\n{_WAY_OUT}", fault=fault)
            if answers:
                yield Record(question.line, texts, answers[0])

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`spans` (B, 2): the first and the last token of the answer, -1 if the row does not contain all of it.

        `column/label` (B,): 1 if the row contains the answer, 0 if not, -1 if the question has no usable answer.
        """
        span = np.stack([stored["first"], stored["last"]], axis=1)
        columns = parts.columns(span, -1)
        mask = np.all(columns >= 0, axis=1)
        label = np.where(span[:, 0] == UNKNOWN, -1, mask)
        fields = {"column/label": label.astype(np.int32), "spans": np.where(mask[:, None], columns, -1)}
        return fields | (_links(parts) if self.spoken else {})

    def require_items(self, store: RecordStore) -> None:
        """Of a spoken context, a recording of each word."""
        assert store.items is not None
        words = np.asarray(store.stored["words"]) if self.spoken else np.zeros(0, np.int32)
        for name, item_set in store.items.sets.items():
            start, stop = item_set.spans[store.items.pictures[: len(words)]].reshape(-1, 2).T
            for record in np.flatnonzero(stop - start != words)[:1].tolist():
                key = store.items.keys[store.items.pictures[record]]
                raise TaskError(
                    f"{store.about['files'][0]}: a context has {words[record]} spoken words, and its recording {key!r} has "
                    f"{stop[record] - start[record]} {name!r}.\n  {OTHER_TEXT}"
                )

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How many tokens the longest answer has."""
        answered = stored["first"] >= 0
        return {"longest": int((stored["last"] - stored["first"])[answered].max(initial=0)) + 1}


_WAY_OUT = (
    "  Correct it; or search for the answers, which drops questions whose answers are not in the context: "
    "--set corpus.answer.span.offsets=find"
)


def nearest_place(answer: AnswerSpan, context: str) -> AnswerSpan | None:
    """The occurrence of the answer nearest to its offset; None if the context does not contain it."""
    start = max(answer.start, 0)
    offsets = context.rfind(answer.text, 0, start + len(answer.text)), context.find(answer.text, start)
    places = [offset for offset in offsets if offset >= 0]
    return AnswerSpan(answer.text, min(places, key=lambda offset: abs(offset - answer.start))) if places else None


def _links(parts: TextParts) -> dict[str, NDArray[np.int32]]:
    """The labelled layer of the words of contexts, the second texts of rows (B, L): each is the next item."""
    begin, size = parts.kept[:, 0, None], parts.kept[:, 1, None]
    columns = np.arange(max(int(parts.kept.sum(1).max(initial=1)), 1)) - begin
    inside = (columns >= 0) & (columns < size)
    items = np.where(inside, columns + parts.first[:, 1, None] + 1, 0).astype(np.int32)
    return {f"layers/{LINKED}": inside.astype(np.int32), f"labels/{LINKED}": items}


class Tokens(NamedTuple):
    """The first and the last token of a stretch of text."""

    first: int
    last: int


def tokens_of(spelled: Spelled, number: int, start: int, stop: int) -> Tokens | None:
    """The tokens of one of several texts that cover its characters from `start` to `stop`; None if no token does."""
    span = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
    inside = np.flatnonzero((spelled.begin[span] < stop) & (spelled.end[span] > start))
    return Tokens(int(inside[0]), int(inside[-1])) if len(inside) else None
