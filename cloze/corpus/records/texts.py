"""The text to generate for a record: a translation, a summary, an answer. There may be several references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import members
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Record, RecordBlock, RecordEncoder
from cloze.corpus.records.audits import Audit, Unwritable
from cloze.corpus.records.table import table_rows
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


class _TextEncoder(RecordEncoder):
    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        encoded = self.tokenizer.encode_flat([record.texts[0] for record in records])
        targets = [target for record in records for target in record.answer]
        tokens, _, offsets = self.tokenizer.targets.encode_flat(targets)
        sizes = np.diff(offsets)
        ordinal = np.concatenate([np.arange(len(record.answer)) for record in records])
        owner = np.repeat(np.arange(len(records)), [len(record.answer) for record in records])
        counts = np.bincount(owner, weights=sizes, minlength=len(records)).astype(np.int64)
        columns = {"token": tokens, "reference": np.repeat(ordinal, sizes).astype(np.int32)}
        return RecordBlock(*encoded, columns, counts)


@register("answer", "text")
class TextAnswer(Answer):
    """A text, or a list of texts in JSON lines: the references. All of them are stored, as the companion `target`.

    An input that is a list of texts, such as the sentences of an abstract, is joined with spaces. `prefix`, such as `summarize:
    `, is put before every input (Raffel et al., 2020, §2.4).
    """

    columns: Mapping[str, Any] = {"token": np.int32, "reference": np.int32}
    ragged: ClassVar[bool] = True
    encodes = _TextEncoder
    gives: frozenset[str] = frozenset({"target.tokens", "target.length", "target.parts"})

    def __init__(self, *, prefix: str = "") -> None:
        self.prefix = prefix

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table."""
        if columns.text_b is not None:
            raise TaskError("corpus.text_b: a text is generated from one text. Omit it.")
        for line, (text, target) in table_rows(path, columns, fault, lists=True):
            targets = references(target)
            if targets:
                yield Record(line, (self.prefix + joined(text),), targets)
            else:
                unusable(path, line, missing(columns.label), fault=fault)

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Also what looks for targets that the vocabulary cannot write."""
        return [*super().audits(tokenizer), *([] if tokenizer is None else [Unwritable(tokenizer)])]

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`target.tokens` (B, K), the references one after another, their `target.length`, and `target.parts` (B, R, 2): where
        each begins and ends, -1 for none."""
        number, tokens = stored["reference"], stored["token"]
        real = number >= 0
        most = max(int(number.max(initial=0)) + 1, 1)
        stop = np.stack([(real & (number <= index)).sum(1) for index in range(most)], axis=1).astype(np.int64)
        start = np.concatenate([np.zeros_like(stop[:, :1]), stop[:, :-1]], axis=1)
        mask = np.arange(most) <= number.max(axis=1, initial=0)[:, None]
        target_parts = np.where(mask[:, :, None], np.stack([start, stop], axis=2), -1)
        filled = np.where(real, tokens, 0) if tokens.shape[1] else np.zeros((len(tokens), 1), np.int32)
        return {
            "target.tokens": filled.astype(np.int32), "target.length": real.sum(1).astype(np.int32), "target.parts": target_parts,
        }  # fmt: skip

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """`constant_answer`: the most frequent first reference, as tokens; in a tie, the earliest."""
        counts: Counter[bytes] = Counter()
        for begin, end in zip(stored["bounds"][:-1], stored["bounds"][1:], strict=True):
            first = np.searchsorted(stored["reference"][begin:end], 0, side="right")
            counts[np.asarray(stored["token"][begin : begin + first]).tobytes()] += 1
        return {"constant_answer": np.frombuffer(counts.most_common(1)[0][0], np.int32)}


@register("answer", "open")
class OpenAnswer(TextAnswer):
    """The texts that answer a question, one or a list of them, wherever a text says so: the field `answers` (B, K)."""

    gives: frozenset[str] = frozenset({"answers"})

    def __init__(self) -> None:
        super().__init__()

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`answers` (B, K): 1 + the ids of each answer, with a 0 behind it."""
        number, tokens = stored["reference"], stored["token"]
        answers = np.zeros((len(number), number.shape[1] + int(number.max(initial=0)) + 1), np.int32)
        row, column = np.nonzero(number >= 0)
        answers[row, column + number[row, column]] = tokens[row, column] + 1
        return {"answers": answers}

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Those of every answer."""
        return Answer.audits(self, tokenizer)


def joined(cell: str) -> str:
    """A text, or the texts of a list with spaces between them."""
    return " ".join(member for member in members(cell) if member is not None)


def references(cell: str) -> tuple[str, ...]:
    """The reference texts of a cell; empty if one of them is empty."""
    texts = tuple(member or "" for member in members(cell))
    return texts if all(text.strip() for text in texts) else ()


def missing(column: str) -> str:
    """The message about a row without references."""
    return f"an empty {column!r}; expected a text to write in every row, or a list of texts."
