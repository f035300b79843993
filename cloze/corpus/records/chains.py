"""The coreference chains of a document: the mentions of each of its entities."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.coreference import CoreferenceDocument, describe_left_out, each_document
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.answer import Answer, Columns, Int32, Record, RecordBlock, RecordEncoder
from cloze.corpus.records.words import first_tokens
from cloze.errors import TaskError
from cloze.registry import register
from cloze.text.running import IdeographsOfWords

if TYPE_CHECKING:
    from cloze.corpus.records.windows import TextParts
    from cloze.text.tokenizer import Tokenizer

_USUAL = 100  # the most frequent mentions, which a baseline takes for all there are


class _ChainEncoder(RecordEncoder):
    def __init__(self, tokenizer: Tokenizer, labels: None) -> None:
        super().__init__(tokenizer, labels)
        self.ideographs = IdeographsOfWords()
        self.mentions, self.left_out = Counter[str](), Counter[str]()

    @property
    def described(self) -> Mapping[str, Any]:
        """How many ideographs a word has that is written in them."""
        return {} if self.ideographs.mean is None else {"ideographs": self.ideographs.mean}

    @property
    def constant_answer(self) -> str:
        """The most frequent mentions in lower case, as a JSON list."""
        names = sorted(self.mentions, key=lambda name: (-self.mentions[name], name))
        return json.dumps(names[:_USUAL], ensure_ascii=False)

    @property
    def remarks(self) -> list[str]:
        """How many mentions are left out."""
        return describe_left_out([self.left_out])

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        spelled = self.tokenizer.encode_spelled([record.texts[0] for record in records])
        documents: list[CoreferenceDocument] = [record.answer for record in records]
        first = [first_tokens(spelled, number, document.words) for number, document in enumerate(documents)]
        ends: list[Int32] = [np.zeros((0, 2), np.int32)]
        for document, tokens in zip(documents, first, strict=True):
            self.ideographs.add(document.words)
            self.left_out.update(document.left_out)
            for mentions in document.chains or ():
                ends.append(tokens[np.array(mentions)])
                self.mentions.update(" ".join(document.words[i : j + 1]).lower() for i, j in mentions)
        tokens_of_ends = np.concatenate(ends)
        columns = {"word": np.concatenate(first), "first": tokens_of_ends[:, 0], "last": tokens_of_ends[:, 1]}
        nested = {
            "words": np.array([len(document.words) for document in documents], np.int64),
            "chains": np.array([len(document.chains or ()) for document in documents], np.int64),
            "mentions": np.array([len(mentions) for d in documents for mentions in d.chains or ()], np.int64),
        }
        return RecordBlock(spelled.ids, spelled.word_start, spelled.offsets, columns, nested=nested)


@register("answer", "chains")
class ChainAnswers(Answer):
    """The chains of a document, each the mentions of one entity, each from its first to its last word.

    A word stands at its first token. A mention that a row does not contain whole is left out of it. Files are CoNLL-2012, CorefUD
    or JSON lines (see `corpus/readers/coreference.py`).
    """

    columns: Mapping[str, Any] = {"word": np.int32, "first": np.int32, "last": np.int32}
    nested: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "word": ("words",), "first": ("chains", "mentions"), "last": ("chains", "mentions"),
    }  # fmt: skip
    encodes = _ChainEncoder
    gives: frozenset[str] = frozenset({"column/chain", "spans", "words"})
    tabular: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The documents of a file; a record's text is its words, joined with spaces."""
        if columns.text_b is not None:
            raise TaskError("corpus.text_b: chains belong to one text. Omit it.")
        if columns.names is not None:
            raise TaskError("corpus.columns: files with chains have columns of their own. Omit it.")
        documents = each_document(path, text=columns.text, label=columns.label, format=columns.format, fault=fault)
        for document in documents:
            yield Record(document.line, (" ".join(document.words),), document)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`words` (B, W): the first token of each word, -1 if it is not visible. For every mention, `spans` (B, 2 M) has the
        first tokens of its first and of its last word, and `column/chain` (B, M) the number of its chain; -1 where it is not
        visible."""
        rows, chains, mentions = stored["first"].shape
        first, last = (parts.columns(stored[name].reshape(rows, chains * mentions), 0) for name in ("first", "last"))
        visible = (first >= 0) & (last >= 0)
        chain = np.repeat(np.arange(chains), mentions)
        spans = np.where(visible[:, :, None], np.stack([first, last], axis=2), -1)
        return {
            "words": parts.columns(stored["word"], 0), "spans": spans.reshape(rows, 2 * chains * mentions),
            "column/chain": np.where(visible, chain, -1).astype(np.int32),
        }  # fmt: skip

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """Whether chains of a single mention are marked."""
        return {"singletons": bool((np.diff(stored["mentions"]) == 1).any())}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How many chains and mentions there are."""
        return {"chains": len(stored["mentions"]) - 1, "mentions": len(stored["first"])}
