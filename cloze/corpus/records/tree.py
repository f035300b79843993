"""The dependency tree of a sentence: the head of each word and the relation to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.trees import Tree, each_tree
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.answer import Answer, Columns, Record, RecordBlock, described_classes
from cloze.corpus.records.words import EncoderOfWords, first_tokens
from cloze.errors import TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.corpus.records.windows import TextParts


class _TreeEncoder(EncoderOfWords):
    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        spelled = self.tokenizer.encode_spelled([record.texts[0] for record in records])
        trees: list[Tree] = [record.answer for record in records]
        self.ideographs.add(word for tree in trees for word in tree.words)
        columns = {
            "label": np.array([self.labels.code(relation) for tree in trees for relation in tree.relations], dtype=np.int32),
            "head": np.array([head for tree in trees for head in tree.heads], dtype=np.int32),
            "first": np.concatenate([first_tokens(spelled, number, tree.words) for number, tree in enumerate(trees)]),
        }
        counts = np.array([len(tree.words) for tree in trees], dtype=np.int64)
        return RecordBlock(spelled.ids, spelled.word_start, spelled.offsets, columns, counts)


@register("answer", "tree")
class TreeAnswers(Answer):
    """The head and the relation of each word, predicted at the word's first token; files are CoNLL-U.

    Only visible words are numbered: a word without a visible token is ignored, and a word whose head is not visible has no head.
    """

    columns: Mapping[str, Any] = {"label": np.int32, "head": np.int32, "first": np.int32}
    coded: ClassVar[str | None] = "label"
    ragged: ClassVar[bool] = True
    encodes = _TreeEncoder
    gives: frozenset[str] = frozenset({"column/relation", "column/head", "words"})
    tabular: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The sentences of a file; a record's text is its words, joined with spaces."""
        if columns.text_b is not None:
            raise TaskError("corpus.text_b: a tree belongs to one sentence. Omit it.")
        if columns.names is not None:
            raise TaskError("corpus.columns: CoNLL-U has its own ten columns. Omit it.")
        for tree in each_tree(path, text=columns.text, relation=columns.label, fault=fault):
            yield Record(tree.line, (" ".join(tree.words),), tree)

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The relation of every word, with its line."""
        yield from zip(record.answer.at, record.answer.relations, strict=True)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`words` (B, K): the first token of each word, -1 if it is not visible. `column/relation` (B, K), -1 for an unknown
        relation. `column/head` (B, K): 0 for the root, n for the n-th visible word, -1 if head or word is not visible."""
        words = parts.columns(stored["first"], 0)
        number = np.where(words >= 0, np.cumsum(words >= 0, axis=1), -1)
        number = np.concatenate([np.zeros((len(words), 1), number.dtype), number], axis=1)
        head = np.take_along_axis(number, np.maximum(stored["head"], 0), axis=1)
        return {
            "column/relation": stored["label"], "words": words,
            "column/head": np.where((words >= 0) & (stored["head"] >= 0), head, -1).astype(np.int32),
        }  # fmt: skip

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The relations, how often each occurs, and the most frequent one."""
        return described_classes(stored["label"], classes)
