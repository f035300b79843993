"""The label of each word of a text: parts of speech, names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.tagged import each_tagged
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.answer import Answer, Columns, Int32, Labels, Record, RecordBlock, RecordEncoder, described_classes
from cloze.corpus.records.audits import Audit, BrokenSchemes, Undivided
from cloze.corpus.records.windows import TextParts
from cloze.errors import Parameter, TaskError
from cloze.registry import register
from cloze.text.running import IdeographsOfWords

if TYPE_CHECKING:
    from cloze.text.tokenizer import Spelled, Tokenizer


class WordLabels(NamedTuple):
    """The words of a text, their labels, and the line of each."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    at: tuple[int, ...]


class EncoderOfWords(RecordEncoder):
    """An encoder of texts that are given as words."""

    labels: Labels

    def __init__(self, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(tokenizer, labels)
        self.ideographs = IdeographsOfWords()

    @property
    def described(self) -> Mapping[str, Any]:
        """How many ideographs a word has that is written in them."""
        return {} if self.ideographs.mean is None else {"ideographs": self.ideographs.mean}


class _WordEncoder(EncoderOfWords):
    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        spelled = self.tokenizer.encode_spelled([record.texts[0] for record in records])
        words = [record.answer.words for record in records]
        self.ideographs.add(word for text_words in words for word in text_words)
        codes = np.array([self.labels.code(label) for record in records for label in record.answer.labels], dtype=np.int32)
        first = [first_tokens(spelled, number, text_words) for number, text_words in enumerate(words)]
        counts = np.array([len(text_words) for text_words in words], dtype=np.int64)
        columns = {"label": codes, "first": np.concatenate(first) if first else np.zeros(0, np.int32)}
        return RecordBlock(spelled.ids, spelled.word_start, spelled.offsets, columns, counts)


@register("answer", "words")
class WordAnswers(Answer):
    """A label for each word, predicted at the word's first token (Devlin et al., 2019, §5.3).

    A word without a visible token has no target: it did not fit, or the tokenizer drops it.
    """

    columns: Mapping[str, Any] = {"label": np.int32, "first": np.int32}
    coded: ClassVar[str | None] = "label"
    ragged: ClassVar[bool] = True
    encodes = _WordEncoder
    gives: frozenset[str] = frozenset({"column/label", "words"})
    tabular: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The texts of a file of labelled words; a record's text is its words, joined with spaces."""
        if columns.text_b is not None:
            raise TaskError("corpus.text_b: words are labelled in one text. Omit it.")
        texts = each_tagged(
            path, text=columns.text, label=columns.label, columns=columns.names, format=columns.format, fault=fault,
            like=Parameter("corpus.text", "NAME"),
        )
        for text in texts:
            yield Record(text.line, (" ".join(text.words),), WordLabels(text.words, text.labels or (), text.at))

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the label of every word."""
        yield from zip(record.answer.at, record.answer.labels, strict=True)

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Also what looks for labels that violate their scheme, and for texts that nothing divides."""
        return [*super().audits(tokenizer), BrokenSchemes(), Undivided()]

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B, K), -1 for an unknown label, and `words` (B, K), the first token of each word, -1 if it is not
        visible."""
        return {"column/label": stored["label"], "words": parts.columns(stored["first"], 0)}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How often each class occurs, for objectives that need it."""
        labels = np.asarray(stored["label"])
        return {"label_counts": np.bincount(labels[labels >= 0], minlength=len(classes)).tolist()}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent one."""
        return described_classes(stored["label"], classes)


def first_tokens(spelled: Spelled, number: int, words: Sequence[str], *, spaced: bool = False) -> Int32:
    """For each word of a text, joined by spaces, its first token; -1 for a word that the tokenizer drops.

    `spaced`: a token that is only the space before a word counts as the word's first, as it does in transformers' `word_ids`.
    """
    span = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
    sizes = np.array([len(word) for word in words], np.int64)
    begins = np.cumsum(sizes + 1) - sizes - 1
    # tokens that end after the beginning of the word
    first = np.searchsorted(spelled.end[span], begins - int(spaced), side="right")
    beginning = np.append(spelled.begin[span], np.iinfo(np.int64).max)
    return np.where(beginning[first] < begins + sizes, first, -1).astype(np.int32)
